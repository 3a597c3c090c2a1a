"""Slow and obvious references, and rows whose truth is known, for tests of any room."""

import numpy as np
from scipy.special import softmax

from uatlite.trust.promise import Labelled, Wanted, decide

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


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
