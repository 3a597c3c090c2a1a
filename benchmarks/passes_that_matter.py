"""What the cascade, adaptive passes and the other forms cost and keep, on real weights and real text of mixed length.

    python benchmarks/passes_that_matter.py quality --model DIR --calibrate FILE --test FILE --shift FILE
    python benchmarks/passes_that_matter.py cost    --model DIR --calibrate FILE --test FILE --shift FILE [--rounds 3]
    python benchmarks/passes_that_matter.py peers   [--rounds 3]

Files are JSONL (also .gz) with `text` and `label`. The rows of `--calibrate` fit every scale, threshold and stopping
rule; `--test` and `--shift` are only scored. `quality` compares each form with full sampling of the same kind on every
text: NLL, AURC and ECE with bootstrap intervals, the decisions, the passes. `cost` times them all by turns, in one run,
on a mixture of test and shift texts in random order, against the Hugging Face model in eval mode over the same texts in
the batch size that suits it best; the plain loop, torch-uncertainty and Baal (benchmarks/engine.py) run in those
batches too. `peers` times them and ours on texts of one length, for the shapes of MiniLM-L6 and BERT-base.
"""

import argparse
import gzip
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

import engine
from uatlite import UncertaintyClassifier
from uatlite.classifier.run import run
from uatlite.classifier.runtime import Outputs
from uatlite.lab.bench import deterministic, sequential
from uatlite.lab.bench_timing import seconds, take_turns
from uatlite.methods.adaptive import ADAPTIVE, Adaptive
from uatlite.methods.cascade import Stages
from uatlite.methods.method import CalibrationRows, Method
from uatlite.methods.registry import parse_method
from uatlite.metrics.bootstrap import bootstrap
from uatlite.model.load import Checkpoint
from uatlite.model.tokens import Tokens, longest, tokenize
from uatlite.predictive import PassLogits, mean_logits
from uatlite.trust.auto import make_calibrator

FULL = {
    "fast": "fast",
    "cascade": "fast",
    "cascade, fast for a fifth": "fast",
    "cascade:then=analytic": "analytic",
    "cascade, analytic for a fifth": "analytic",
    "analytic": "analytic",
    "uat": "uat",
    "distilled": "analytic",
}
"""form -> the sampling on every text that it must keep up with"""
FORMS = ("base", "distilled", "uat", "fast", "analytic", "cascade", "cascade:then=analytic")
SCORES = ("nll", "aurc", "ece")
BATCH_SIZES = (8, 16, 32, 64, 128)
CONFIDENCES = (0.99, 0.95, 0.9)
CALIBRATION_ROWS = 2000
"""at most; `--rows` is about the test rows"""


def read(path: Path, rows: int) -> tuple[list[str], list[str]]:
    """Texts and labels of the first rows after a fixed shuffle."""
    content = path.read_bytes()
    plain = gzip.decompress(content) if path.suffix == ".gz" else content
    found = [json.loads(line) for line in plain.decode().split("\n") if line]
    random.Random(0).shuffle(found)
    return [row["text"] for row in found[:rows]], [row["label"] for row in found[:rows]]


class Bench:
    """A model, its rows, and what every method said of them, computed once."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.clf = UncertaintyClassifier.from_pretrained(arguments.model, max_length=arguments.max_length)
        self.sets = {
            "calibrate": read(arguments.calibrate, CALIBRATION_ROWS),
            "test": read(arguments.test, arguments.rows),
            "shift": read(arguments.shift, arguments.shift_rows),
        }
        self._known: dict[tuple[str, str], Outputs | PassLogits] = {}

    def labels(self, name: str) -> np.ndarray:
        columns = {label: column for column, label in enumerate(self.clf.class_names)}
        return np.array([columns[label] for label in self.sets[name][1]])

    def outputs(self, name: str, method: Method) -> Outputs:
        key = name, method.name
        if key not in self._known:
            settings = replace(self.clf.settings, method=method)
            self._known[key] = run(self.clf.runtime, list(self.sets[name][0]), settings)
        return self._known[key]

    def rows(self) -> CalibrationRows:
        return CalibrationRows(self.labels("calibrate"), lambda method: self.outputs("calibrate", method))

    def tuned(self, spelling: str) -> Method:
        """The method with its free settings learned on the calibration rows."""
        method = parse_method(spelling)
        if method.tunable:
            found = method.tuned(self.rows())
            print(f"<!-- {found.reason} -->", flush=True)
            if found.outputs is not None:
                self._known["calibrate", found.method.name] = found.outputs
            return found.method
        return method

    def sending_on(self, then: str, share: float) -> Method:
        """A cascade that sends on this share of the calibration rows, whether they need it or not."""
        cascade = parse_method(f"cascade:then={then}")
        first, second = (self.outputs("calibrate", parse_method(name)) for name in ("base", then))
        return replace(cascade, escalation=Stages.of(first, second).fit(self.labels("calibrate"), share))

    def probabilities(self, name: str, method: Method) -> np.ndarray:
        """Calibrated on the calibration rows by the input temperature where the variance is known, else by one."""
        fit, out = self.outputs("calibrate", method), self.outputs(name, method)
        kind = "temperature" if fit.margin_variance is None else "input-temperature"
        calibrator = make_calibrator(kind).fit(fit.mean_logits, self.labels("calibrate"), fit.margin_variance)
        return calibrator.probabilities(out.mean_logits, out.margin_variance)


def fifths(bench: Bench) -> dict[str, Method]:
    """Cascades that send on a fifth of the calibration rows: what one costs where the data ask for it."""
    return {f"cascade, {then} for a fifth": bench.sending_on(then, 0.2) for then in ("fast", "analytic")}


def quality(bench: Bench) -> None:
    """NLL, AURC and ECE of every form on both sets, beside full sampling, and the passes that were spent."""
    methods = {name: bench.tuned(name) for name in FORMS} | fifths(bench)
    for name in ("test", "shift"):
        labels = bench.labels(name)
        print(f"\n### {name}: {len(labels)} rows\n\n| | passes | NLL | AURC | ECE | within full sampling's interval |")
        print("|---|---:|---|---|---|---|")
        chances = {form: bench.probabilities(name, method) for form, method in methods.items()}
        found = {form: bootstrap(own, labels, metrics=SCORES) for form, own in chances.items()}
        for form, method in methods.items():
            cells = " | ".join(f"{v.point:.4f} ({v.low:.4f} to {v.high:.4f})" for v in found[form].values())
            full = found[FULL.get(form, "fast")]
            inside = all(found[form][s].point <= full[s].high for s in ("aurc", "ece"))
            spent = bench.outputs(name, method).passes.mean()
            verdict = "" if form == FULL.get(form) else f"{'yes' if inside else '**no**'} ({FULL.get(form, 'fast')})"
            print(f"| {form} | {spent:.2f} | {cells} | {verdict} |")
    adaptive(bench)


def adaptive(bench: Bench) -> None:
    """Mean passes, and how often label and answer/abstain are those of all passes, at a threshold for 80 % coverage."""
    whole = bench.outputs("calibrate", ADAPTIVE.whole)
    print(f"\n### Adaptive passes, at most {len(whole.logits)}\n")
    print("| decision | confidence | set | mean passes | equal decisions |\n|---|---:|---|---:|---:|")
    for decision, share in (("label", None), ("label and answer (80 % coverage)", 0.2)):
        boundary = None if share is None else (lambda scores, errors, share=share: float(np.quantile(scores, share)))
        for confidence in CONFIDENCES:
            asked = ADAPTIVE.changed(confidence=str(confidence))
            found, _ = asked.learned(whole, replace(bench.rows(), boundary=boundary))
            for name in ("test", "shift"):
                every = bench.outputs(name, found.whole).logits
                counts = found.stopping.counts(every)
                own = np.where((np.arange(len(every))[:, None] < counts)[..., None], every, np.nan)
                same = _decisions(mean_logits(own, counts), found) == _decisions(every.mean(axis=0), found)
                print(f"| {decision} | {confidence} | {name} | {counts.mean():.2f} | {same.mean():.2%} |", flush=True)


def _decisions(means: np.ndarray, method: Adaptive) -> np.ndarray:
    """The label, and -1 in front of it where one abstains: one number each."""
    stopping, labels = method.stopping, means.argmax(axis=1)
    if stopping.boundary is None:
        return labels
    chances = np.exp(means / stopping.temperature - (means / stopping.temperature).max(axis=1, keepdims=True))
    confidence = (chances / chances.sum(axis=1, keepdims=True)).max(axis=1)
    return np.where(confidence > 1 / (1 + np.exp(-stopping.boundary)), labels, -1 - labels)


def cost(bench: Bench, methods: dict[str, Method], rounds: int) -> None:
    """Every form by turns over the same mixture of texts, against the deterministic pass in its best batching."""
    clf, texts = bench.clf, [*bench.sets["test"][0], *bench.sets["shift"][0]]
    random.Random(1).shuffle(texts)
    limit = longest(clf.model, clf.tokenizer, clf.max_length)
    tokens = tokenize(clf.tokenizer, texts, limit)
    checkpoint = Checkpoint("model", clf.model, clf.tokenizer)
    timed = {size: seconds(partial(deterministic, checkpoint.model, _cut(tokens, size), 1)) for size in BATCH_SIZES}
    best = min(timed, key=timed.__getitem__)
    batches = _cut(tokens, best)
    own = [batch.inputs for batch in tokens.batches()]
    runs = {"deterministic": partial(deterministic, checkpoint.model, batches, 1)}
    runs |= {name: partial(_run, method, clf.model, own) for name, method in methods.items() if name != "base"}
    runs["uat, forwards one by one"] = partial(sequential, clf.model, own, 10)
    loops = {name: contender for name, contender in engine.CONTENDERS.items() if contender is not engine.ours}
    runs |= {name: _over_all(contender, clf.model, batches) for name, contender in loops.items()}
    found = take_turns(runs, "deterministic", rounds)
    scale = dict.fromkeys(loops, engine.PASSES / engine.LOOPED)
    lengths = f"{np.mean(tokens.lengths):.0f} tokens ({min(tokens.lengths)} to {max(tokens.lengths)})"
    print(f"\n### Cost: {len(texts)} texts of {lengths}, deterministic in batches of {best}, {rounds} rounds\n")
    print("| | cost | texts/s |\n|---|---:|---:|")
    for name, one in found.items():
        ratio, speed = one.ratio * scale.get(name, 1), len(texts) / one.seconds / scale.get(name, 1)
        print(f"| {name} | {ratio:.2f} | {speed:.1f} |")


def _over_all(contender: Callable[..., engine.Run], model: torch.nn.Module, batches: list) -> Callable[[], None]:
    """A peer's loop over every batch, of as many passes as are timed of it."""
    loops = [contender(model, batch, engine.LOOPED) for batch in batches]

    def run() -> None:
        for loop in loops:
            loop()

    return run


def _cut(tokens: Tokens, size: int) -> list[dict[str, torch.Tensor]]:
    return [batch.inputs for batch in tokens.batches(most_tokens=1 << 30, most_texts=size)]


def _run(method: Method, model: torch.nn.Module, batches: list) -> None:
    for batch in batches:
        method.run(model, batch)


def _cascade(model: torch.nn.Module, batch: dict[str, torch.Tensor], share: int) -> None:
    """A deterministic pass over a batch, and the analytic one over its first texts, as if those were in doubt."""
    parse_method("base").run(model, batch)
    parse_method("analytic").run(model, {name: value[:share] for name, value in batch.items()})


def peers(rounds: int) -> None:
    """M=10 by each contender of benchmarks/engine.py, and ours beside them, as ratios to ours."""
    forms = {"exact (uat)": "uat", "equal precision (fast)": "fast", "analytic": "analytic"}
    for shape, texts, tokens in (("MiniLM-L6", 32, 64), ("BERT-base", 16, 64)):
        model, batch = engine.model_of(shape), engine.batch_of(texts, tokens)
        loops = {name: c for name, c in engine.CONTENDERS.items() if c is not engine.ours}
        runs = {name: contender(model, batch, engine.LOOPED) for name, contender in loops.items()}
        runs |= {name: partial(parse_method(spelling).run, model, batch) for name, spelling in forms.items()}
        runs["cascade, analytic for a fifth"] = partial(_cascade, model, batch, texts // 5)
        ratios = engine.ratios(runs, engine.deterministic(model, batch), rounds)
        ratios = {name: r * (engine.PASSES / engine.LOOPED if name in loops else 1) for name, r in ratios.items()}
        print(f"\n### M={engine.PASSES}\n")
        print(f"| {shape}, {texts} × {tokens} tokens | cost | faster than " + " | faster than ".join(loops) + " |")
        print("|---|---:|" + "---:|" * len(loops))
        print("| (the peer itself) | | " + " | ".join(f"{ratios[name]:.1f}" for name in loops) + " |")
        for name in (*forms, "cascade, analytic for a fifth"):
            cells = " | ".join(f"{ratios[peer] / ratios[name]:.1f}×" for peer in loops)
            print(f"| {name} | {ratios[name]:.2f} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("quality", "cost", "peers"))
    parser.add_argument("--model")
    parser.add_argument("--calibrate", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--shift", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--shift-rows", type=int, default=400)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"torch {torch.__version__.split('+')[0]}, {torch.get_num_threads()} threads")
    if arguments.part == "peers":
        peers(arguments.rounds)
        return
    bench = Bench(arguments)
    if arguments.part == "quality":
        quality(bench)
        return
    names = (*FORMS[1:], "adaptive", "cascade:then=adaptive")  # the deterministic pass is there by itself
    cost(bench, {name: bench.tuned(name) for name in names} | fifths(bench), arguments.rounds)


if __name__ == "__main__":
    main()
