"""What it is worth to teach a model its own or others' probabilities on unlabelled texts, and what else would help.

    python benchmarks/refine.py --data DIR --models DIR [--tasks sst2,clinc150] [--seeds 0,1,2] [--labelled 20000]
                                [--unlabelled 20000] [--only self,three,further]

Three members are fine-tuned on the labelled rows until the NLL of the calibration rows stops falling. The first is then
refined in every way of `WAYS`, or in those of --only. Each model is calibrated on the same rows, by a temperature and
as `uatlite calibrate --target-risk` does it. Differences are to the first member with its temperature. What is finished
in --models is not done again, so the command can be stopped and repeated. Prints a table for each task and set;
intervals resample its rows, the same for all seeds.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness import (
    CALIBRATION,
    Texts,
    head,
    less,
    line,
    numbers,
    outside_questions,
    over_seeds,
    parser_of_models,
    rows_of,
    title,
)
from uatlite.classifier.classifiers import load
from uatlite.classifier.runtime import TorchRuntime, run_tokens
from uatlite.lab.evaluate.store import run_pieces
from uatlite.lab.refine import BEST, keep_best, refine
from uatlite.lab.train.dataset import TrainingRows
from uatlite.lab.train.fine_tune import SEEDS_APART, with_new_head
from uatlite.lab.train.recipe import Recipe
from uatlite.lab.train.student import LESSONS, teach
from uatlite.methods.sampling import BASE
from uatlite.metrics.accuracy import auroc
from uatlite.metrics.intervals import Estimates, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.model.load import load_checkpoint
from uatlite.model.tokens import longest, tokenize
from uatlite.text import tasks
from uatlite.text.write import read_record
from uatlite.trust.calibrators import Temperature

MEMBERS, EPOCHS, SHIFTED = 3, 4, 800
FINE = Recipe(
    learning_rate=1e-4, warmup_steps=60, batch_size=32, epochs=EPOCHS, max_length=64, group_by_length=True,
    precision="bf16",
)  # fmt: skip
RECIPES = {
    "sst2": FINE,
    "clinc150": replace(FINE, learning_rate=5e-4, epochs=2 * EPOCHS),
    "mnli": replace(FINE, learning_rate=2e-4, max_length=96),
    "rotten-tomatoes": FINE,
    "imdb": replace(FINE, max_length=128),
}
"""task -> the recipe with which its members learn; the best of the epochs is kept"""
TEST = {"sst2": "test-original"}
SHIFTS = {"sst2": "imdb", "mnli": "snli", "rotten-tomatoes": "imdb", "imdb": "rotten-tomatoes"}
PROMISED = {"sst2": 0.05}
"""task -> the risk that is promised; of the others 0.1"""
Parameters = dict[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Bench:
    """One task and seed: its rows, and where its models are."""

    task: str
    seed: int
    home: Path
    data: Path | None
    labelled: Texts
    unlabelled: list[Any]

    @classmethod
    def of(cls, task: str, seed: int, given: Any) -> "Bench":
        train = tasks.load(task, "train", given.data, limit=given.labelled + given.unlabelled, seed=seed).in_scope()
        labels, cut = [train.labels[label] for label in train.gold], given.labelled
        home = given.models / f"{task}-{seed}-{given.labelled}-{given.unlabelled}"
        return cls(task, seed, home, given.data, (train.texts[:cut], labels[:cut]), train.texts[cut:])

    @property
    def recipe(self) -> Recipe:
        """That of refining, at the members' length."""
        return replace(RECIPES[self.task], learning_rate=5e-5, warmup_steps=20, epochs=1)

    def rows(self, name: str) -> Texts:
        """Calibration, test or shifted rows."""
        if name == "shift":
            shifted = tasks.load(SHIFTS[self.task], "test", self.data, limit=SHIFTED)
            return shifted.texts, [shifted.labels[label] for label in shifted.gold]
        splits = (TEST.get(self.task, "test"),) if name == "test" else CALIBRATION.get(self.task, ("calibration",))
        return rows_of(self.task, splits, self.data)

    def member(self, i: int) -> Path:
        return self.tuned(f"member-{i}", None, RECIPES[self.task], seed=self.seed + SEEDS_APART * i)

    def tuned(self, name: str, start: Path | None, recipe: Recipe, smoothing: float = 0.0, seed: int = 0) -> Path:
        """A model trained on the labels: the epoch with the lowest NLL of the calibration rows."""
        pieces, (texts, labels) = run_pieces(self.home / name), self.labelled
        if not pieces.finished:
            begun, names = time.perf_counter(), tuple(dict.fromkeys(sorted(labels)))
            pieces.begin({"name": name})
            if start is None:
                model, tokenizer = with_new_head("minilm", names, seed=seed)
            else:
                checkpoint = load_checkpoint(start)
                model, tokenizer = checkpoint.model, checkpoint.tokenizer
            targets = np.full((len(labels), 1, len(names)), smoothing / len(names), np.float32)
            targets[np.arange(len(labels)), 0, [names.index(label) for label in labels]] += 1 - smoothing
            tokens = tokenize(tokenizer, texts, longest(model, tokenizer, recipe.max_length))
            rows, dev, done = TrainingRows(tokens, list(targets)), self.rows("calibration"), 0

            def advance(steps: float) -> None:
                nonlocal done
                done += int(steps)
                epoch, rest = divmod(done * recipe.epochs, recipe.steps(len(rows)))
                if not rest:
                    logits = logits_of(model.eval(), tokenizer, dev[0], recipe.max_length)
                    loss = estimates(calibrated(logits, dev[1], logits, names), dev[1], names).points()["nll"]
                    keep_best(TorchRuntime(model, tokenizer), pieces, epoch, loss)

            teach(model, rows, LESSONS["one"], recipe, pieces.path("trainer"), seed=seed, advance=advance)
            pieces.finish({"seconds": time.perf_counter() - begun})
        return pieces.path(f"epoch-{(read_record(pieces.path(BEST)) or {})['epoch']}")

    def refined(self, name: str, texts: Sequence[Any], **asked: Any) -> Path:
        """The first member refined, by the command's function."""
        directory = self.home / name
        if not (directory / "seconds.txt").exists():
            begun = time.perf_counter()
            refine(self.member(0), texts, directory, recipe=self.recipe, seed=self.seed, **asked)
            (directory / "seconds.txt").write_text(str(time.perf_counter() - begun))
        return directory

    def three(self) -> list[Path]:
        return [self.member(i) for i in range(MEMBERS)]

    def further(self, name: str, smoothing: float = 0.0) -> Path:
        """The first member trained further on its labels, for as many steps as texts are taught."""
        epochs = 1 + round(len(self.unlabelled) / len(self.labelled[0]))
        return self.tuned(name, self.member(0), replace(self.recipe, epochs=epochs), smoothing)

    def soup(self) -> Path:
        """The mean of the members' weights."""
        models = [load_checkpoint(path).model for path in self.three()]
        checkpoint, states = load_checkpoint(self.member(0)), [model.state_dict() for model in models]
        mean = {
            name: sum(state[name] for state in states) / MEMBERS for name in states[0] if "position_ids" not in name
        }
        checkpoint.model.load_state_dict(mean, strict=False)
        (self.home / "soup").mkdir(exist_ok=True)
        TorchRuntime(checkpoint.model, checkpoint.tokenizer).save(self.home / "soup")
        return self.home / "soup"

    def said(self, directory: Path, name: str) -> np.ndarray:
        """The logits of a model over some rows, kept beside it."""
        path = directory / f"{name}.npy"
        if not path.exists():
            checkpoint = load_checkpoint(directory)
            said = logits_of(checkpoint.model, checkpoint.tokenizer, self.rows(name)[0], self.recipe.max_length)
            np.save(path, said)
        return np.asarray(np.load(path))

    def product(self, directory: Path) -> dict[str, float]:
        """What `uatlite calibrate` makes of a model: answered and wrong at the promise, and AUROC of its scope."""
        path = directory / "product.npz"
        if not path.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                asked = {"target_risk": PROMISED.get(self.task, 0.1), "reference": self.labelled[0]}
                clf = load(directory, max_length=self.recipe.max_length).calibrate(*self.rows("calibration"), **asked)
            (texts, labels), others = self.rows("test"), outside_questions(self.data)[0][:SHIFTED]
            said, strange = (clf.predict(some, check_shift=False) for some in (texts, others))
            answered = ~said.abstain
            scopes = auroc(-np.concatenate([said.scope, strange.scope]), np.repeat([0, 1], [len(texts), len(others)]))
            wrong = float((said.labels != np.array(labels))[answered].mean()) if answered.any() else 0.0
            np.savez(path, answered=answered.mean(), wrong=wrong, scope=scopes)
        return {key: float(value) for key, value in np.load(path).items()}


def logits_of(model: Any, tokenizer: Any, texts: Sequence[Any], length: int | None) -> np.ndarray:
    tokens = tokenize(tokenizer, list(texts), longest(model, tokenizer, length))
    return run_tokens(model, BASE, tokens).mean_logits


def calibrated(fitting: np.ndarray, labels: Sequence[str], logits: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Probabilities by the temperature of the calibration rows."""
    return Temperature.fit(fitting, np.array([names.index(label) for label in labels])).probabilities(logits)


def estimates(probs: np.ndarray, labels: Sequence[str], names: Sequence[str]) -> Estimates:
    gold = np.array([names.index(label) for label in labels])
    return metric_estimates(Rows.of(probs, gold), ["nll", "aurc", "accuracy"])


WAYS: dict[str, tuple[str, Callable[[Bench], Path]]] = {
    "self": ("itself, both", lambda b: b.refined("self", b.labelled[0] + b.unlabelled)),
    "self-new": ("itself, unlabelled texts", lambda b: b.refined("self-new", b.unlabelled)),
    "self-old": ("itself, its training texts", lambda b: b.refined("self-old", b.labelled[0])),
    "three": ("three members, both", lambda b: b.refined("three", b.labelled[0] + b.unlabelled, teachers=b.three())),
    "three-new": ("three members, unlabelled", lambda b: b.refined("three-new", b.unlabelled, teachers=b.three())),
    "three-old": (
        "three members, its training texts",
        lambda b: b.refined("three-old", b.labelled[0], teachers=b.three()),
    ),
    "uat": ("its own passes (`uat`), unlabelled", lambda b: b.refined("uat", b.unlabelled, teacher_method="uat")),
    "analytic": ("its smoothed margins", lambda b: b.refined("analytic", b.unlabelled, teacher_method="analytic")),
    "further": ("control: labels, for as long", lambda b: b.further("further")),
    "smoothed": ("control: labels smoothed by 0.1", lambda b: b.further("smoothed", 0.1)),
    "soup": ("control: the members' mean weights", Bench.soup),
}
"""What is compared: in words, and the directory of its model."""


def table(benches: Sequence[Bench], on: str, ways: Sequence[str]) -> None:
    """One set of a task: every way beside the first member, and the ensemble of three passes."""
    names = tuple(dict.fromkeys(sorted(benches[0].labelled[1])))

    def scored(bench: Bench, homes: Sequence[Path]) -> Estimates:
        fitting, logits = (np.mean([bench.said(home, of) for home in homes], axis=0) for of in ("calibration", on))
        return estimates(calibrated(fitting, bench.rows("calibration")[1], logits, names), bench.rows(on)[1], names)

    base = over_seeds([scored(bench, [bench.member(0)]) for bench in benches])
    rows = [("the first member", [[bench.member(0)] for bench in benches])]
    rows += [("the ensemble, three passes", [bench.three() for bench in benches])]
    rows += [(WAYS[way][0], [[WAYS[way][1](bench)] for bench in benches]) for way in ways]
    title(f"{benches[0].task}, {on}: {len(benches[0].rows(on)[0]):,} rows, {len(benches)} repetitions")
    promise = f"answered at a promised {PROMISED.get(benches[0].task, 0.1):.0%} (wrong)"
    head("one pass, taught by", "NLL less base+TS", "AURC less", "accuracy", "accuracy less", promise, "scope AUROC")
    for words, homes in rows:
        scores = over_seeds([scored(bench, home) for bench, home in zip(benches, homes, strict=True)])
        gaps = {name: less(scores[name], base[name]) for name in scores}
        said = ["", ""]
        if on == "test" and len(homes[0]) == 1:
            made = [bench.product(home) for bench, (home,) in zip(benches, homes, strict=True)]
            answered, wrong, scope = (np.mean([each[key] for each in made]) for key in ("answered", "wrong", "scope"))
            said = [f"{answered:.3f} ({wrong:.3f})", f"{scope:.4f}"]
        line(words, gaps["nll"], gaps["aurc"], f"{scores['accuracy'].mean:.4f}", gaps["accuracy"], *said)


def main() -> None:
    parser = parser_of_models(
        __doc__, tasks=",".join(RECIPES), seeds="0,1,2", labelled=20_000, unlabelled=20_000, only=",".join(WAYS)
    )
    given = parser.parse_args()
    for task in given.tasks.split(","):
        benches, ways = [Bench.of(task, seed, given) for seed in numbers(given.seeds)], given.only.split(",")
        for bench in benches:
            for way in ways:
                WAYS[way][1](bench)
        for on in ("test", "shift") if task in SHIFTS else ("test",):
            table(benches, on, ways)


if __name__ == "__main__":
    main()
