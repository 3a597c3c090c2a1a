"""The cases that every metric meets, and torch-uncertainty's metrics without the rest of that package."""

import importlib
import importlib.util
import sys
import types
from pathlib import Path

import numpy as np
import pytest


def random_rows(rows, classes, seed=0):
    """An overconfident classifier without ties."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(rows, classes)) * 2
    softened = np.exp(logits / 2) / np.exp(logits / 2).sum(axis=1, keepdims=True)
    labels = (softened.cumsum(axis=1) < generator.random((rows, 1))).sum(axis=1)
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), np.minimum(labels, classes - 1)


def binary(confidence, correct):
    """Two classes with the given confidences, alternating which class is predicted."""
    predicted = np.arange(len(confidence)) % 2
    probabilities = np.empty((len(confidence), 2))
    probabilities[np.arange(len(confidence)), predicted] = confidence
    probabilities[np.arange(len(confidence)), 1 - predicted] = 1 - confidence
    return probabilities, np.where(correct, predicted, 1 - predicted)


def tied_rows():
    """Confidences with one decimal: long ties, right and wrong rows in each."""
    generator = np.random.default_rng(1)
    confidence = np.round(generator.uniform(0.55, 1, size=60), 1)
    return binary(confidence, generator.random(60) < confidence - 0.1)


CASES = {
    "three classes": lambda: random_rows(200, 3),
    "ten classes": lambda: random_rows(60, 10),
    "ties": tied_rows,
    # every confidence exactly on an edge k/15 of the bins, one right and one wrong row on each
    "on the edges": lambda: binary(np.repeat(np.arange(8, 16) / 15, 2), np.arange(16) % 4 < 2),
    "all tied": lambda: (np.full((8, 2), 0.5), np.array([0, 1, 1, 0, 1, 1, 0, 1])),
    "one class": lambda: (np.ones((5, 1)), np.zeros(5, dtype=int)),
    "one row, right": lambda: (np.array([[0.7, 0.2, 0.1]]), np.array([0])),
    "one row, wrong": lambda: (np.array([[0.7, 0.2, 0.1]]), np.array([2])),
    "all right": lambda: (random_rows(40, 3)[0], random_rows(40, 3)[0].argmax(axis=1)),
    "all wrong": lambda: (random_rows(40, 3)[0], random_rows(40, 3)[0].argmin(axis=1)),
    "certain": lambda: (np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 0, 0])),
}


@pytest.fixture(params=CASES)
def case(request):
    """Each of the cases: probabilities (rows, classes) and labels (rows,)."""
    return CASES[request.param]()


@pytest.fixture
def smooth_case():
    """Rows without ties and off every edge, where all libraries mean the same thing."""
    return random_rows(300, 4, seed=3)


@pytest.fixture
def tied_case():
    """Rows in long ties."""
    return tied_rows()


@pytest.fixture(scope="session")
def torch_uncertainty():
    """torch_uncertainty.metrics.classification, imported without the package's own __init__.

    That __init__ imports torchvision for plots; the metrics need only torch and torchmetrics.
    """
    spec = importlib.util.find_spec("torch_uncertainty")
    if spec is None or spec.origin is None:
        pytest.skip("torch-uncertainty is not installed")
    root = Path(spec.origin).parent
    with pytest.MonkeyPatch.context() as patch:
        for name, path in (("torch_uncertainty", root), ("torch_uncertainty.metrics", root / "metrics")):
            package = types.ModuleType(name)
            package.__path__ = [str(path)]
            patch.setitem(sys.modules, name, package)
        yield importlib.import_module("torch_uncertainty.metrics.classification")
