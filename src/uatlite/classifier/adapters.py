"""The classifier where scikit-learn's tools expect one."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from uatlite.errors import ConfigurationError, nearest
from uatlite.text.labels import class_indices

if TYPE_CHECKING:
    from uatlite.classifier.one_class import ClassPredictions
    from uatlite.values import Text


PARAMETERS = ("model", "tokenizer", "config", "seed", "max_length", "windows", "indices")
"""What `__init__` takes and stores as it is."""


class ScikitLearnMixin:
    """What scikit-learn's tools need besides `predict`, `predict_proba` and `classes_`, without importing it."""

    if TYPE_CHECKING:

        @property
        def class_names(self) -> tuple[str, ...]: ...
        def calibrate(self, texts: Iterable[Any], labels: Iterable[Any]) -> Self: ...
        def predict(self, texts: Iterable[Any] | Text, *, check_shift: bool = True) -> ClassPredictions: ...

    def fit(self, texts: Iterable[Any], labels: Iterable[Any]) -> Self:
        """`calibrate` with its defaults; the model's weights stay as they are."""
        return self.calibrate(texts, labels)

    def score(self, texts: Iterable[Any], labels: Iterable[Any], sample_weight: Iterable[float] | None = None) -> float:
        """Accuracy on labelled texts."""
        predicted = self.predict(texts, check_shift=False).predicted
        right = predicted == class_indices(labels, self.class_names)
        return float(np.average(right, weights=None if sample_weight is None else np.asarray(sample_weight)))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of `__init__` by name."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **parameters: Any) -> Self:
        """Replace arguments of `__init__`. A calibration that no longer fits them is an error at the next `predict`."""
        for name, value in parameters.items():
            if name not in PARAMETERS:
                raise ConfigurationError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(PARAMETERS)}."
                    f"{nearest(name, PARAMETERS)}"
                )
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        """A new, uncalibrated classifier over the same model: its weights are never changed, so they are not copied."""
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        """The model was fine-tuned before; `calibrate` refines what can already be predicted."""
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True),
        )
