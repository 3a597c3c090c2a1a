"""Answers under a promise in a table: the same rule as `uatlite calibrate`, counted row by row."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from reference import rule_of
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.comparison import Measurement
from uatlite.lab.evaluate.measures import measure
from uatlite.lab.evaluate.runs import Runs
from uatlite.lab.evaluate.store import Store
from uatlite.lab.paper.probes import source_of
from uatlite.lab.paper.source import FineTunedModels
from uatlite.lab.paper.source import ReproductionSettings as Settings
from uatlite.metrics.intervals import Resampling
from uatlite.values import Dataset

SPEC = CellSpec(measure="promised-coverage@0.3", task="sst2")


@pytest.fixture(scope="module")
def runs(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A plain model that has learned the toy SST-2, with predictions of its 60 calibration and 60 test rows."""
    recipe = replace(settings.recipe, epochs=12)
    directory = tmp_path_factory.mktemp("promises")
    source = FineTunedModels(directory, replace(settings, limit=60, train_limit=120, recipe=recipe))
    (fit,) = source.fine_tunings(SPEC)
    source.fine_tune(fit, lambda work: None)
    return Runs(source, Store(directory / "store"))


def measured(name: str, runs: Runs) -> Measurement:
    cell = replace(SPEC, measure=name)
    return measure([cell], runs, Resampling(20, over_seeds=True))[cell]


def read(runs: Runs, dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The margin of every row by the model itself, and whether its answer is wrong."""
    (fit,) = source_of(runs).fine_tunings(SPEC)
    checkpoint = runs.source.load(fit)
    margins, wrong = [], []
    for text, gold in zip(dataset.texts, dataset.gold, strict=True):
        with torch.no_grad():
            encoded = checkpoint.tokenizer(text, return_tensors="pt").to(checkpoint.model.device)
            logits = checkpoint.model.eval()(**encoded).logits[0]
        margins.append(float(abs(logits[0] - logits[1])))
        wrong.append(checkpoint.id2label[int(logits.argmax())] != dataset.labels[gold])
    return np.array(margins), np.array(wrong)


def test_coverage_and_risk_are_what_counting_says(runs: Runs) -> None:
    calibration, test = (runs.source.dataset(f"sst2/{split}") for split in ("calibration", "test"))
    threshold = rule_of(*read(runs, calibration), 0.3).threshold
    margins, wrong = read(runs, test)
    answered = [place for place, one in enumerate(margins) if one > threshold]
    assert 0 < len(answered) <= len(test)
    assert measured("promised-coverage@0.3", runs).mean == pytest.approx(len(answered) / len(test))
    risk = sum(wrong[place] for place in answered) / len(answered)
    assert measured("promised-risk@0.3", runs).mean == pytest.approx(risk)


def test_what_cannot_be_promised_answers_nothing_and_has_no_risk(runs: Runs) -> None:
    calibration = runs.source.dataset("sst2/calibration")
    assert not rule_of(*read(runs, calibration), 0.05).promised  # 54 rows: no error among them is too few
    assert measured("promised-coverage@0.05", runs).mean == 0
    assert math.isnan(measured("promised-risk@0.05", runs).mean)
