"""Answers under a promise in a table: the same rule as `uatlite calibrate`, counted row by row."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from reference import rule_of
from uatlite.lab.paper.artifacts import Artifacts
from uatlite.lab.paper.declaration import CellSpec
from uatlite.lab.paper.grid import measure_of
from uatlite.lab.paper.measurement import Measurement
from uatlite.lab.paper.settings import ReproductionSettings as Settings
from uatlite.values import Dataset

SPEC = CellSpec(measure="promised-coverage@0.3", task="sst2")


@pytest.fixture(scope="module")
def artifacts(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    """A plain model that has learned the toy SST-2, with predictions of its 60 calibration and 60 test rows."""
    recipe = replace(settings.recipe, epochs=12)
    found = Artifacts(tmp_path_factory.mktemp("promises"), replace(settings, limit=60, train_limit=120, recipe=recipe))
    (fit,) = found.fine_tunings(SPEC)
    found.models.fine_tune(fit, lambda work: None)
    for job in measure_of(SPEC.measure).jobs(SPEC, found):
        found.predict(job, lambda work: None)
    return found


def measured(measure: str, artifacts: Artifacts) -> Measurement:
    return measure_of(measure).compute(replace(SPEC, measure=measure), artifacts)


def read(artifacts: Artifacts, dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The margin of every row by the model itself, and whether its answer is wrong."""
    (fit,) = artifacts.fine_tunings(SPEC)
    checkpoint = artifacts.models.load(fit)
    margins, wrong = [], []
    for text, gold in zip(dataset.texts, dataset.gold, strict=True):
        with torch.no_grad():
            encoded = checkpoint.tokenizer(text, return_tensors="pt").to(checkpoint.model.device)
            logits = checkpoint.model.eval()(**encoded).logits[0]
        margins.append(float(abs(logits[0] - logits[1])))
        wrong.append(checkpoint.id2label[int(logits.argmax())] != dataset.labels[gold])
    return np.array(margins), np.array(wrong)


def test_coverage_and_risk_are_what_counting_says(artifacts: Artifacts) -> None:
    calibration, test = (artifacts.datasets.find(f"sst2/{split}") for split in ("calibration", "test"))
    threshold = rule_of(*read(artifacts, calibration), 0.3).threshold
    margins, wrong = read(artifacts, test)
    answered = [place for place, one in enumerate(margins) if one > threshold]
    assert 0 < len(answered) <= len(test)
    assert measured("promised-coverage@0.3", artifacts).mean == pytest.approx(len(answered) / len(test))
    risk = sum(wrong[place] for place in answered) / len(answered)
    assert measured("promised-risk@0.3", artifacts).mean == pytest.approx(risk)


def test_what_cannot_be_promised_answers_nothing_and_has_no_risk(artifacts: Artifacts) -> None:
    calibration = artifacts.datasets.find("sst2/calibration")
    assert not rule_of(*read(artifacts, calibration), 0.05).promised  # 54 rows: no error among them is too few
    assert measured("promised-coverage@0.05", artifacts).mean == 0
    assert math.isnan(measured("promised-risk@0.05", artifacts).mean)
