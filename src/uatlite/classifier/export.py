"""From a PyTorch classifier to an exported one, compared with it on texts.

A calibration holds for the weights it was made with. An fp32 graph gives the same logits to 1e-4 and keeps it. int8
moves the logits: there only the method with its read-out is kept, and the exported classifier is calibrated itself.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from uatlite.classifier import saving
from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.exported import PLAIN, Difference, Manifest, OnnxRuntime, load_exported, write_manifest
from uatlite.classifier.run import run
from uatlite.classifier.runtime import Outputs, TorchRuntime
from uatlite.errors import ModelError
from uatlite.methods.method import Method
from uatlite.methods.sampling import BASE
from uatlite.model.onnx_graph import export_plain, quantise
from uatlite.model.tokenizer import TokenizerSettings
from uatlite.model.tokens import tokenize
from uatlite.text.examples import check_texts
from uatlite.values import Choices, Text

TOLERANCE = 1e-4
"""How far an fp32 graph's logits may be from PyTorch's."""
SENTENCES = (
    "Good.",
    "It is not bad at all.",
    "The delivery took three weeks, and nobody could say where the parcel was.",
    "One of the best, most understated performances of the year: see it twice.",
    "I would like to move money from my savings account to the other one, please.",
    "What time is it?",
)
"""Texts to compare on where none are given."""


def export(
    classifier: UncertaintyClassifier,
    directory: str | Path,
    *,
    int8: bool = False,
    texts: Sequence[Any] | None = None,
    overwrite: bool = False,
) -> Difference:
    """Write the classifier as an exported one, and say how it differs; `texts` are what both are compared on."""
    runtime, target = classifier.runtime, Path(directory)
    if not isinstance(runtime, TorchRuntime):
        raise ModelError("this classifier is exported already; export the PyTorch checkpoint.")
    saving.check_target(target, overwrite=overwrite)
    checked = _sentences(runtime) if texts is None else check_texts(texts, chooses=runtime.kind == "choice")
    plain = run(runtime, checked, replace(classifier.settings, method=BASE))
    _check_plain(classifier, plain)
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as made:
        made_of = _written(runtime, Path(made), classifier.method, int8=int8)
        difference = compared(plain, run(made_of, checked, replace(classifier.settings, method=BASE)))
        if not int8 and difference.largest > TOLERANCE:
            raise ModelError(
                f"the graph of {runtime.architecture} gives other logits than PyTorch, by up to "
                f"{difference.largest:.2g}; {TOLERANCE:g} is allowed. Please report it with the name of the model."
            )
        write_manifest(Path(made), replace(made_of.manifest, difference=difference))
        exported = _classifier(classifier, load_exported(made, classifier.method))
        if not int8 and classifier.calibration_ is not None:
            exported.calibration_ = replace(classifier.calibration_, model_hash=exported.runtime.hash)
        saving.write(exported, target, overwrite=overwrite)
    return difference


def _check_plain(classifier: UncertaintyClassifier, plain: Outputs) -> None:
    """Raise where the classifier needs more than one plain pass."""
    method, calibration = classifier.method, classifier.calibration_
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
            f"the second look by {calibration.second_look.method.name} needs PyTorch, and an exported classifier runs "
            "without it; calibrate without --second-look to export."
        )


def _written(runtime: TorchRuntime, directory: Path, method: Method, *, int8: bool) -> OnnxRuntime:
    """The graph, the tokenizer and a first manifest in a directory."""
    tokenizer = TokenizerSettings.of(runtime.tokenizer)
    runtime.tokenizer.save_pretrained(directory)
    example = tokenize(runtime.tokenizer, _sentences(runtime), 64).pad([1, 2])
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
    write_manifest(directory, manifest)
    return load_exported(directory, method)


def _classifier(classifier: UncertaintyClassifier, runtime: OnnxRuntime) -> UncertaintyClassifier:
    exported = UncertaintyClassifier(
        runtime,
        runtime.tokenizer,
        classifier.method,
        seed=classifier.seed,
        max_length=classifier.max_length,
        windows=classifier.windows,
        indices=classifier.indices,
    )
    exported.columns = classifier.columns
    return exported


def _sentences(runtime: TorchRuntime) -> list[Text]:
    """The built-in texts, one of them long; questions for a model that chooses."""
    long = " ".join(SENTENCES)
    if runtime.kind == "choice":
        return [Choices(text, ("yes", "no")) for text in (*SENTENCES, long)]
    return [*SENTENCES, long, (SENTENCES[1], SENTENCES[2])]


def compared(theirs: Outputs, ours: Outputs) -> Difference:
    """How the logits of two runs over the same texts differ."""
    before, after = theirs.mean_logits, ours.mean_logits
    gap = np.abs(theirs.logits - ours.logits)
    changed = before.argmax(axis=1) != after.argmax(axis=1)
    return Difference(len(before), float(gap.max()), float(gap.mean()), float(changed.mean()))
