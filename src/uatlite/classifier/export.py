"""What becomes of a PyTorch classifier elsewhere: an exported one, compared with it, and a model for a pipeline.

A calibration holds for the weights it was made with. An fp32 graph gives the same logits to 1e-4 and keeps it. int8
moves the logits: there only the method with its read-out is kept, and the exported classifier is calibrated itself.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from uatlite.classifier import saving
from uatlite.classifier.answer_kind import Reading
from uatlite.classifier.exported import PLAIN, Difference, Manifest, OnnxRuntime
from uatlite.classifier.product import Product
from uatlite.classifier.runtime import TorchRuntime
from uatlite.errors import ModelError
from uatlite.methods.method import Method
from uatlite.methods.sampling import BASE
from uatlite.model.architectures import unwrap
from uatlite.model.plain import export_plain, quantise
from uatlite.model.tokens import FastTokenizer, TokenizerSettings, takes, tokenize
from uatlite.predictive import PassLogits
from uatlite.trust.calibrators import Calibrator
from uatlite.trust.distribution import probabilities
from uatlite.values import Choices, Text

if TYPE_CHECKING:
    from uatlite.classifier.classifiers import UncertaintyClassifier

_TOLERANCE = 1e-4
"""How far an fp32 graph's logits may be from PyTorch's."""
_SENTENCES = (
    "Good.",
    "It is not bad at all.",
    "The delivery took three weeks, and nobody could say where the parcel was.",
    "One of the best, most understated performances of the year: see it twice.",
    "I would like to move money from my savings account to the other one, please.",
    "What time is it?",
)
"""Texts to compare on where none are given."""


def export(
    product: Product[Any],
    directory: str | Path,
    *,
    int8: bool = False,
    texts: Sequence[Any] | None = None,
    labelled: tuple[Sequence[Any], Sequence[Any]] | None = None,
    reference: Sequence[Any] | None = None,
    overwrite: bool = False,
) -> Difference:
    """Write the classifier as an exported one, and say how it differs; `texts` are what both are compared on.

    With `labelled` texts and gold the exported one is calibrated, with the options that the classifier was calibrated
    with; `reference` texts are those of `calibrate`.
    """
    runtime, target, kind = product.runtime, Path(directory), product.kind
    if not isinstance(runtime, TorchRuntime):
        raise ModelError("this classifier is exported already; export the PyTorch checkpoint.")
    asked = {} if product.calibration_ is None else product.calibration_.asked
    if labelled is not None and asked is None:
        raise ModelError("it is not known with which options this classifier was calibrated; calibrate it again first.")
    saving.check_target(target, overwrite=overwrite)
    checked = sentences(product) if texts is None else kind.texts(texts, product.class_names)
    settings = replace(product.settings, method=BASE)
    plain = kind.read(runtime, checked, settings)
    _check_plain(product, plain.lesson)
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as made:
        graph = _written(runtime, Path(made), product, int8=int8)
        difference = compared(product, checked, plain, kind.read(graph, checked, settings))
        if not int8 and difference.largest > _TOLERANCE:
            raise ModelError(
                f"the graph of {runtime.architecture} gives other logits than PyTorch, by up to "
                f"{difference.largest:.2g}; {_TOLERANCE:g} is allowed. Please report it with the name of the model."
            )
        graph.manifest = replace(graph.manifest, difference=difference)
        exported: Any = type(product)(graph, graph.tokenizer, product.method, **product.options)
        exported.columns = product.columns
        if not int8 and product.calibration_ is not None:
            exported.calibration_ = replace(product.calibration_, model_hash=exported.runtime.hash)
        if labelled is not None:
            exported.calibrate(*labelled, reference=reference, **(asked or {}))
        saving.write(exported, target, overwrite=overwrite)
    return difference


def _check_plain(product: Product[Any], plain: PassLogits) -> None:
    """Raise where the classifier needs more than one plain pass."""
    method, calibration = product.method, product.calibration_
    if method.read_from(plain) is None:
        if method.learns and calibration is None:
            raise ModelError(
                f"the method {method.name} needs more than one plain pass until it is calibrated. Calibrate first: "
                "uatlite calibrate MODEL rows.csv -o DIR, then export DIR. Or export with the method base."
            )
        raise ModelError(
            f"the method {method.name} needs more than one plain pass, and only that is exported. Calibrate with the "
            "default method, whose read-out takes one, or with --method base."
        )
    if calibration is not None and calibration.second_look is not None:
        raise ModelError(
            f"the second look by {calibration.second_look.method} needs PyTorch, and an exported classifier runs "
            "without it; calibrate without --second-look to export."
        )


def _written(runtime: TorchRuntime, directory: Path, product: Product[Any], *, int8: bool) -> OnnxRuntime:
    """The graph, the tokenizer and a first manifest in a directory."""
    tokenizer = TokenizerSettings.of(runtime.tokenizer)
    runtime.tokenizer.save_pretrained(directory)
    example = tokenize(runtime.tokenizer, (sentences(product) * 3)[:3], None).pad([1, 2])
    export_plain(runtime.model, example, directory / PLAIN, padding_side=tokenizer.padding_side)
    if int8:
        quantise(directory / PLAIN)
    manifest = Manifest(
        architecture=runtime.architecture,
        classes=runtime.class_names,
        kind=runtime.kind,
        positions=runtime.positions,
        tokenizer=tokenizer,
        precision="int8" if int8 else "fp32",
        source=runtime.hash,
    )
    return OnnxRuntime(directory, manifest, FastTokenizer(directory, tokenizer), product.method)


def sentences(product: Product[Any]) -> list[Text]:
    """The built-in texts that the model takes, one of them long."""
    long = " ".join(_SENTENCES)
    questions = [Choices(text, ("yes", "no")) for text in (*_SENTENCES, long)]
    given: list[Text] = [*_SENTENCES, long, (_SENTENCES[1], _SENTENCES[2]), *questions]
    return [text for text in given if product.kind.fault(text, ()) is None and takes(product.tokenizer, text)]


def compared(product: Product[Any], texts: Sequence[Text], theirs: Reading, ours: Reading) -> Difference:
    """How two readings of the same texts differ: by their logits, and by what is said of each text."""
    before, after = (
        product.kind.predictions.of(texts, reading, None, product.class_names).outcomes for reading in (theirs, ours)
    )
    changed = np.mean([old != new for old, new in zip(before, after, strict=True)])
    gap = np.abs(theirs.all_logits - ours.all_logits)
    return Difference(len(texts), float(gap.max(initial=0.0)), float(gap.mean()), float(changed))


class CalibratedModel(PreTrainedModel):  # type: ignore[misc]
    """A model whose logits are the logarithms of calibrated probabilities, so that a softmax gives these back."""

    def __init__(self, model: PreTrainedModel, method: Method, calibrator: Calibrator | None) -> None:
        config = copy.deepcopy(model.config)  # what the base class writes into it stays out of the user's model
        config._attn_implementation = "eager"  # the outer model attends to nothing; the inner one keeps its own
        super().__init__(config)
        self.inner = model
        self.method = method
        self.calibrator = calibrator

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **inputs: Any
    ) -> SequenceClassifierOutput:
        """Tokens (batch, tokens) to logits (batch, classes)."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        encoded = {"input_ids": input_ids, "attention_mask": mask, **inputs}
        calibrated = probabilities(self.method.run(self.inner, encoded).arrays(), self.calibrator)
        logits = np.log(np.maximum(calibrated, np.finfo(np.float32).tiny))
        return SequenceClassifierOutput(logits=torch.from_numpy(logits).float().to(input_ids.device))

    def save_pretrained(self, *args: Any, **options: Any) -> None:
        """Refused: the directory would hold neither the plain model nor the calibration."""
        raise ModelError(
            "this is a view of a classifier for a pipeline; save the classifier: clf.save_pretrained(directory)."
        )


def as_model(classifier: "UncertaintyClassifier") -> PreTrainedModel:
    """The classifier's model under its method and calibrator, for `pipeline("text-classification", model=...)`."""
    if not isinstance(classifier.runtime, TorchRuntime):
        raise ModelError("a pipeline takes a PyTorch model, and this one is exported; use the checkpoint.")
    model = unwrap(classifier.runtime.model)
    predictor = classifier.predictor()
    # The pipeline looks up the *name* of the class in its table of sequence classifiers and warns where it is missing.
    kind = type(type(model).__name__, (CalibratedModel,), {})
    calibrated: PreTrainedModel = kind(model, predictor.settings.method, predictor.calibrator)
    calibrated.training = False  # eval() would reach into the user's model
    return calibrated
