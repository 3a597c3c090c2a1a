"""From a PyTorch classifier to an exported one, compared with it on texts.

The plain pass is always exported; with `passes` also the stochastic passes of the classifier's method.

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
from uatlite.classifier.exported import PASSES, PLAIN, Difference, Manifest, OnnxRuntime, load_exported, write_manifest
from uatlite.classifier.run import run
from uatlite.classifier.runtime import Outputs, TorchRuntime
from uatlite.errors import ModelError
from uatlite.methods.method import Method
from uatlite.methods.one_pass import BASE
from uatlite.model.export import export_plain, quantise
from uatlite.model.tokenizer import TokenizerSettings
from uatlite.model.tokens import tokenize
from uatlite.passes.trace import export_passes
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
    passes: bool = False,
    texts: Sequence[Any] | None = None,
    overwrite: bool = False,
) -> Difference:
    """Write the classifier as an exported one, and say how it differs; `texts` are what both are compared on."""
    runtime, target = classifier.runtime, Path(directory)
    if not isinstance(runtime, TorchRuntime):
        raise ModelError("this classifier is exported already; export the PyTorch checkpoint.")
    saving.check_target(target, overwrite=overwrite)
    checked = _sentences(runtime) if texts is None else check_texts(texts, chooses=runtime.chooses)
    plain = run(runtime, checked, replace(classifier.settings, method=BASE))
    sampled = _sampled(classifier, plain, passes=passes)
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as made:
        made_of = _written(runtime, Path(made), classifier.method, sampled, int8=int8)
        for method in (BASE,) if sampled is None else (BASE, sampled):
            settings = replace(classifier.settings, method=method)
            theirs = plain if method is BASE else run(runtime, checked, settings)
            difference = compared(theirs, run(made_of, checked, settings))
            if not int8 and difference.largest > TOLERANCE:
                raise ModelError(
                    f"the graph of {runtime.architecture} gives other logits than PyTorch with the method "
                    f"{method.name}, by up to {difference.largest:.2g}; {TOLERANCE:g} is allowed. Please report it "
                    "with the name of the model."
                )
        write_manifest(Path(made), replace(made_of.manifest, difference=difference))
        exported = _classifier(classifier, load_exported(made, classifier.method))
        if not int8 and classifier.calibration_ is not None:
            exported.calibration_ = replace(classifier.calibration_, model_hash=exported.runtime.hash)
        saving.write(exported, target, overwrite=overwrite)
    return difference


def _sampled(classifier: UncertaintyClassifier, plain: Outputs, *, passes: bool) -> Method | None:
    """The method whose stochastic passes are to be exported, if any; raises where it needs what cannot be exported."""
    method = classifier.method
    wanted = method if method.read_from(plain) is None else method.second_look
    if wanted is None:
        if passes:
            raise ModelError(
                f"the method {method.name} runs one plain pass and has no stochastic ones. Leave --passes out, or name "
                "a method that samples: --method fast."
            )
        return None
    if wanted.sampled is None:
        raise ModelError(_advice(classifier, wanted))
    if not passes:
        whose = "its stochastic passes" if wanted is method else f"the stochastic passes of {wanted.name}"
        raise ModelError(
            f"the method {method.name} needs {whose}: add --passes, in Python passes=True. Or calibrate the default "
            "method, which needs one plain pass."
        )
    return wanted


def _advice(classifier: UncertaintyClassifier, wanted: Method) -> str:
    if classifier.method.tunable and classifier.calibration_ is None:
        return (
            f"the method {classifier.method.name} needs more than one plain pass until it is calibrated. Calibrate "
            "first: uatlite calibrate MODEL rows.csv -o DIR, then export DIR. Or export with the method base."
        )
    return (
        f"the method {wanted.name} is not exported: it takes gradients, weights of its own, or a decision after every "
        "few passes. Exported are base, distilled where its read-out is good, and with --passes uat, fast and mc-*. "
        "Calibrate with --method base, or with one of those."
    )


def _written(
    runtime: TorchRuntime, directory: Path, method: Method, sampled: Method | None, *, int8: bool
) -> OnnxRuntime:
    """The graphs, the tokenizer and a first manifest in a directory."""
    tokenizer = TokenizerSettings.of(runtime.tokenizer)
    runtime.tokenizer.save_pretrained(directory)
    example = tokenize(runtime.tokenizer, _sentences(runtime), 64).pad([1, 2])
    export_plain(runtime.model, example, directory / PLAIN, padding_side=tokenizer.padding_side)
    graph = None
    if sampled is not None and sampled.sampled is not None:
        path = directory / PASSES
        graph = export_passes(runtime.model, sampled.sampled, example, path, padding_side=tokenizer.padding_side)
    if int8:
        for path in directory.glob("*.onnx"):
            quantise(path)
    manifest = Manifest(
        architecture=runtime.architecture,
        classes=runtime.class_names,
        chooses=runtime.chooses,
        positions=runtime.positions,
        tokenizer=tokenizer,
        precision="int8" if int8 else "fp32",
        source=runtime.hash,
        passes=graph,
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
    if runtime.chooses:
        return [Choices(text, ("yes", "no")) for text in (*SENTENCES, long)]
    return [*SENTENCES, long, (SENTENCES[1], SENTENCES[2])]


def compared(theirs: Outputs, ours: Outputs) -> Difference:
    """How the logits of two runs over the same texts differ, of every pass; labels are those of their means."""
    before, after = theirs.mean_logits, ours.mean_logits
    gap = np.abs(theirs.logits - ours.logits)
    changed = before.argmax(axis=1) != after.argmax(axis=1)
    return Difference(len(before), float(gap.max()), float(gap.mean()), float(changed.mean()))
