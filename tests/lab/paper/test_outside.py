"""Texts out of scope: what a table says of them, against counting pairs of rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.measures import measure
from uatlite.lab.evaluate.runs import Runs
from uatlite.lab.evaluate.store import Store
from uatlite.lab.paper.probes import source_of
from uatlite.lab.paper.source import FineTunedModels
from uatlite.lab.paper.source import ReproductionSettings as Settings
from uatlite.metrics.intervals import Resampling


@pytest.fixture(scope="module")
def runs(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """One plain model of CLINC150, with predictions of all its 120 test rows."""
    directory = tmp_path_factory.mktemp("clinc")
    source = FineTunedModels(directory, replace(settings, limit=120))
    spec = CellSpec(measure="oos-auroc", task="clinc150")
    (fit,) = source.fine_tunings(spec)
    source.fine_tune(fit, lambda work: None)
    return Runs(source, Store(directory / "store"))


def measured(name: str, runs: Runs) -> float:
    cell = CellSpec(measure=name, task="clinc150")
    return measure([cell], runs, Resampling(20, over_seeds=True))[cell].mean


def pairs(scores: np.ndarray, outside: np.ndarray) -> float:
    """AUROC: the share of pairs, one row out of scope and one in scope, in which the first has the higher score."""
    return float(np.mean([(one > two) + 0.5 * (one == two) for one in scores[outside] for two in scores[~outside]]))


def test_finding_them_is_what_counting_pairs_says(runs: Runs, settings: Settings) -> None:
    (fit,) = source_of(runs).fine_tunings(CellSpec(measure="oos-auroc", task="clinc150"))
    checkpoint, dataset = runs.source.load(fit), runs.source.dataset("clinc150")
    confidence = []
    with torch.no_grad():
        for text in dataset.texts:
            encoded = checkpoint.tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
            encoded = encoded.to(checkpoint.model.device)
            confidence.append(float(checkpoint.model.eval()(**encoded).logits.softmax(-1).max()))
    outside = np.array(dataset.gold) == dataset.out_of_scope
    assert 0 < outside.sum() < len(outside)
    assert measured("oos-auroc", runs) == pytest.approx(pairs(1 - np.array(confidence), outside), abs=2e-3)


def test_with_scope_the_chance_in_scope_takes_part(runs: Runs) -> None:
    found = {name: measured(name, runs) for name in ("oos-auroc", "oos-auroc+scope", "scope-auroc")}
    assert len(set(found.values())) == 3
    assert found["scope-auroc"] > 0.65  # a barely trained model, but words that no text in scope has
    assert measured("mixture-aurc+scope", runs) < measured("mixture-aurc", runs)
    sets = {run.provenance.set_name for run in runs.store.runs() if run.complete}
    assert sets == {"clinc150/test", "clinc150/calibration", "clinc150/train"}  # what the scope reads is stored
