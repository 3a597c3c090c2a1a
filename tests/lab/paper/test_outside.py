"""Texts out of scope: what a table says of them, against counting pairs of rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from uatlite.lab.paper.artifacts import Artifacts
from uatlite.lab.paper.declaration import CellSpec
from uatlite.lab.paper.grid import measure_of
from uatlite.lab.paper.settings import ReproductionSettings as Settings


@pytest.fixture(scope="module")
def artifacts(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    """One plain model of CLINC150, with predictions of all its 120 test rows."""
    found = Artifacts(tmp_path_factory.mktemp("clinc"), replace(settings, limit=120))
    spec = CellSpec(measure="oos-auroc", task="clinc150")
    (fit,) = found.fine_tunings(spec)
    found.models.fine_tune(fit, lambda work: None)
    for job in found.jobs(spec):
        found.predict(job, lambda work: None)
    return found


def measured(measure: str, artifacts: Artifacts) -> float:
    spec = CellSpec(measure=measure, task="clinc150")
    return measure_of(measure).compute(spec, artifacts).mean


def pairs(scores: np.ndarray, outside: np.ndarray) -> float:
    """AUROC: the share of pairs, one row out of scope and one in scope, in which the first has the higher score."""
    return float(np.mean([(one > two) + 0.5 * (one == two) for one in scores[outside] for two in scores[~outside]]))


def test_finding_them_is_what_counting_pairs_says(artifacts: Artifacts, settings: Settings) -> None:
    (fit,) = artifacts.fine_tunings(CellSpec(measure="oos-auroc", task="clinc150"))
    checkpoint, dataset = artifacts.models.load(fit), artifacts.datasets.find("clinc150")
    confidence = []
    with torch.no_grad():
        for text in dataset.texts:
            encoded = checkpoint.tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
            encoded = encoded.to(checkpoint.model.device)
            confidence.append(float(checkpoint.model.eval()(**encoded).logits.softmax(-1).max()))
    outside = np.array(dataset.gold) == dataset.out_of_scope
    assert 0 < outside.sum() < len(outside)
    assert measured("oos-auroc", artifacts) == pytest.approx(pairs(1 - np.array(confidence), outside), abs=2e-3)


def test_with_scope_the_chance_in_scope_takes_part(artifacts: Artifacts) -> None:
    found = {name: measured(name, artifacts) for name in ("oos-auroc", "oos-auroc+scope", "scope-auroc")}
    assert len(set(found.values())) == 3
    assert found["scope-auroc"] > 0.65  # a barely trained model, but words that no text in scope has
    assert measured("mixture-aurc+scope", artifacts) < measured("mixture-aurc", artifacts)
    (stored,) = (Path(artifacts.store.directory).parent / "kept").glob("scope-*.npz")  # fitted once
    assert stored.is_file()
