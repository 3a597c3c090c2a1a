"""Measures of a table against counting rows: texts out of scope, and answers under the promise of `calibrate`."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from reference import rule_of
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.measures import measure
from uatlite.lab.evaluate.runs import Runs
from uatlite.lab.evaluate.store import Store
from uatlite.lab.paper.source import FineTunedModels
from uatlite.metrics.intervals import Resampling

Trained = Callable[..., Runs]


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    """The runs of a plain model of a task, which is trained now."""

    def train(task, **changes):
        directory = tmp_path_factory.mktemp(task)
        source = FineTunedModels(directory, replace(settings, **changes))  # type: ignore[arg-type]
        source.fine_tune(source.models(CellSpec(measure="nll", task=task))[0][0])
        return Runs(source, Store(directory / "store"))

    return train


def measured(name, task, runs):
    cell = CellSpec(measure=name, task=task)
    return measure([cell], runs, Resampling(20, over_seeds=True))[cell].mean


def read(runs, name):
    """Logits (rows, classes) of every row of a set by the model itself, one text at a time, and the gold classes."""
    dataset = runs.source.dataset(name)
    checkpoint = runs.source.load(runs.source.models(CellSpec(measure="nll", task=dataset.name))[0][0])
    logits = []
    for text in dataset.texts:
        with torch.no_grad():
            encoded = checkpoint.tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
            logits.append(checkpoint.model.eval()(**encoded.to(checkpoint.model.device)).logits[0])
    names = [dataset.labels.index(checkpoint.id2label[i]) for i in range(len(checkpoint.id2label))]
    return torch.stack(logits).numpy(), np.array(names), np.array(dataset.gold)


def pairs(scores, outside):
    """AUROC: the share of pairs, one row out of scope and one in scope, in which the first has the higher score."""
    return float(np.mean([(one > two) + 0.5 * (one == two) for one in scores[outside] for two in scores[~outside]]))


def test_finding_texts_out_of_scope_is_what_counting_pairs_says_and_the_scope_takes_part(trained):
    intents = trained("clinc150", limit=120)  # all test rows
    logits, _, gold = read(intents, "clinc150/test")
    confidence = np.exp(logits - logits.max(axis=1, keepdims=True))
    outside = gold == intents.source.dataset("clinc150/test").out_of_scope
    assert 0 < outside.sum() < len(outside)
    expected = pairs(1 - (confidence / confidence.sum(axis=1, keepdims=True)).max(axis=1), outside)
    names = ("oos-auroc", "oos-auroc+scope", "scope-auroc", "mixture-aurc+scope", "mixture-aurc")
    found = {name: measured(name, "clinc150", intents) for name in names}
    assert found["oos-auroc"] == pytest.approx(expected, abs=2e-3)
    assert len({found[name] for name in names[:3]}) == 3
    assert found["scope-auroc"] > 0.65  # a barely trained model, but words that no text in scope has
    assert found["mixture-aurc+scope"] < found["mixture-aurc"]
    sets = {run.provenance.set_name for run in intents.store.runs() if run.complete}
    assert sets == {"clinc150/test", "clinc150/calibration", "clinc150/train"}  # what the scope reads is stored


def margins(runs, split):
    """The margin of every row, and whether its answer is wrong."""
    logits, names, gold = read(runs, f"sst2/{split}")
    return abs(logits[:, 0] - logits[:, 1]), names[logits.argmax(axis=1)] != gold


def test_coverage_and_risk_are_what_counting_says(trained, settings):
    changes = {**settings.changes, "epochs": 12}  # with which it learns the toy task
    films = trained("sst2", limit=60, train_limit=120, changes=changes)
    threshold = rule_of(*margins(films, "calibration"), 0.3).threshold
    margin, wrong = margins(films, "test")
    answered = [i for i, value in enumerate(margin) if value > threshold]
    assert 0 < len(answered) <= len(margin)
    assert measured("promised-coverage@0.3", "sst2", films) == pytest.approx(len(answered) / len(margin))
    risk = sum(wrong[i] for i in answered) / len(answered)
    assert measured("promised-risk@0.3", "sst2", films) == pytest.approx(risk)
    # what cannot be promised answers nothing and has no risk
    assert not rule_of(*margins(films, "calibration"), 0.05).promised  # 54 rows: no error among them is too few
    assert measured("promised-coverage@0.05", "sst2", films) == 0
    assert math.isnan(measured("promised-risk@0.05", "sst2", films))
