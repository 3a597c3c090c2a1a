"""Slow and obvious references, and rows whose truth is known, for tests of any room."""

import numpy as np
import pytest
from scipy.special import softmax

from uatlite.lab.evaluate.comparison import Measurement, ResampledRows, Sampled, Score, measured, scores_of
from uatlite.lab.evaluate.store import Provenance, RunRecipe
from uatlite.trust.promise import Labelled, decide
from uatlite.trust.rule import Wanted

BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "sklearn", "pandas", "datasets", "scipy", "pyarrow"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""
"""Python that begins with it imports nothing that the extra `onnx` does not have."""
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def refuses(*cases):
    """Each of (error, message, call) raises that error, with a message that the pattern is found in."""
    for error, message, call in cases:
        with pytest.raises(error, match=message):
            call()


def draw_logits(rows: int, classes: int, *, seed: int = 0, overconfidence: float = 2.0) -> Rows:
    """Logits (rows, classes), labels (rows,) drawn from softmax(logits / overconfidence), variance (rows,)."""
    rng = np.random.default_rng(seed)
    true = rng.normal(0, 1.5, (rows, classes))
    labels = (rng.random(rows)[:, None] > softmax(true, axis=1).cumsum(axis=1)[:, :-1]).sum(axis=1)
    return overconfidence * true, labels, rng.gamma(2.0, 1.0, rows)


def rule_of(scores, wrong, target, kind="risk", *, text=None, texts=None, predicted=None, reference=None, **wanted):
    """The rule for a target by scores and errors (answers,); `reference` are scores, or labelled answers, that plan."""
    name = wanted.get("score", "confidence")
    if reference is not None and not isinstance(reference, Labelled):
        reference = Labelled({name: np.asarray(reference, dtype=float)})
    text = None if text is None else np.asarray(text)
    rows = Labelled({name: np.asarray(scores, dtype=float)}, np.asarray(wrong), text, texts, predicted)
    return decide(rows, Wanted(kind=kind, target=target, **wanted), reference=reference).rule


def compare(estimates, better, strata, how, tick=lambda share: None):
    """Scores by contender and metric, from the estimates of each contender and seed; `better` by metric."""
    metrics = list(next(iter(estimates.values()))[0])
    cells = [(name, metric) for name in estimates for metric in metrics]
    sampled = {(c, m): Sampled([seed[m] for seed in estimates[c]], (ResampledRows(strata),)) for c, m in cells}
    numbers = measured(sampled, how, tick)
    of_metric = {m: scores_of({name: numbers[name, m] for name in estimates}, better[m]) for m in metrics}
    return {name: {metric: of_metric[metric][name] for metric in metrics} for name in estimates}


def made_provenance(rows, labels=("a", "b", "c"), *, recipe=None, **facts):
    """Where the numbers of a made run come from; `recipe` and `facts` are fields of it that differ from these."""
    usual = {
        "model": "m" * 64, "data": "d" * 64, "tokens": "t" * 64, "task": "made", "split": "test", "perturbation": None,
        "method": {"method": "uat"}, "seed": 0, "columns": tuple((i,) for i in range(len(labels))), "uatlite": "0",
    }  # fmt: skip
    about = {
        "method": "uat", "passes": 4, "model": "a/model", "source": "made in a test", "rows": rows, "labels": labels,
        "model_labels": labels, "classes": labels, "alignment": "labels in the model's order", "out_of_scope": None,
        "truncated_texts": 1, "truncated_tokens": 7, "versions": {"uatlite": "0"},
    }  # fmt: skip
    return Provenance(RunRecipe(**usual | (recipe or {})), **about | facts)


def made_score(values, low, high, differences=None, best=False):
    """A score with these values over seeds and this interval."""
    number = Measurement(tuple(values))
    return Score(number.mean, number.deviation, low, high, best, number.values, differences or {})


class Recorded:
    """A display of progress that remembers what it was told: stage -> its total and what is done of it."""

    def __init__(self):
        self.stages, self.done, self.said, self.total = {}, [], [], 0.0

    @property
    def work(self):
        """What is done of all stages."""
        return sum(done for _, done in self.stages.values())

    def say(self, line):
        self.said.append(line)
        assert not [step for step in self.done if step.startswith("fine-tuning")]  # said before anything is trained

    def begin_all(self, total):
        self.total = total

    def begin(self, stage, total):
        self.stages[stage] = [total, 0.0]

    def step(self, what):
        assert what
        self.done.append(what)

    def advance(self, amount):
        list(self.stages.values())[-1][1] += amount
