"""UAT-Lite: know when not to trust a text classifier.

The public names are loaded on first use, so that importing a part (the metrics, say) does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from uatlite.errors import MissingDependency

if TYPE_CHECKING:
    from uatlite.attribution.layers import attribute as attribute
    from uatlite.attribution.layers import propagate as propagate
    from uatlite.classifier.classifiers import UncertaintyClassifier as UncertaintyClassifier
    from uatlite.classifier.classifiers import UncertaintyLabeler as UncertaintyLabeler
    from uatlite.classifier.classifiers import UncertaintyTagger as UncertaintyTagger
    from uatlite.classifier.classifiers import load as load
    from uatlite.classifier.predictions import Predictions as Predictions
    from uatlite.classifier.wrapped import wrap as wrap
    from uatlite.errors import UATLiteError as UATLiteError
    from uatlite.lab.evaluation import evaluate as evaluate
    from uatlite.lab.refine import refine as refine
    from uatlite.lab.report.evaluation_page import report as report
    from uatlite.model.prompt import LabelPrompt as LabelPrompt
    from uatlite.model.view import dropout_sites as dropout_sites
    from uatlite.passes.config import DropoutRates as DropoutRates
    from uatlite.passes.config import Layers as Layers
    from uatlite.passes.config import UATConfig as UATConfig
    from uatlite.passes.engine import Samples as Samples
    from uatlite.passes.engine import sample as sample

__version__ = "0.1.0"

# module -> the public names that it defines
_PUBLIC = {
    "uatlite.attribution.layers": ("attribute", "propagate"),
    "uatlite.classifier.classifiers": ("UncertaintyClassifier", "UncertaintyLabeler", "UncertaintyTagger", "load"),
    "uatlite.classifier.predictions": ("Predictions",),
    "uatlite.classifier.wrapped": ("wrap",),
    "uatlite.errors": ("UATLiteError",),
    "uatlite.lab.evaluation": ("evaluate",),
    "uatlite.lab.refine": ("refine",),
    "uatlite.lab.report.evaluation_page": ("report",),
    "uatlite.model.prompt": ("LabelPrompt",),
    "uatlite.model.view": ("dropout_sites",),
    "uatlite.passes.config": ("DropoutRates", "Layers", "UATConfig"),
    "uatlite.passes.engine": ("Samples", "sample"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _HOME:
        try:
            return getattr(import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "transformers"):
                raise
            raise MissingDependency(error.name, "torch") from error
    raise AttributeError(f"module 'uatlite' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
