"""What a cascade and adaptive sampling learn from calibration rows."""

from dataclasses import replace

import numpy as np
import pytest

from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.methods.adaptive import Adaptive
from uatlite.methods.cascade import SHARES, Cascade, Stages, tune_escalation
from uatlite.methods.method import CalibrationRows
from uatlite.methods.registry import METHODS
from uatlite.metrics.calibration import ece
from uatlite.metrics.selective import aurc
from uatlite.predictive import PassLogits, softmax

ROWS = 600


def made(seed: int, *, first_noise: float) -> tuple[PassLogits, PassLogits, np.ndarray]:
    """A second stage of eight passes that knows the labels' chances, and a first that sees them through noise."""
    generator = np.random.default_rng(seed)
    truth = generator.normal(scale=2.0, size=(ROWS, 2))
    labels = (softmax(truth).cumsum(axis=1) < generator.random((ROWS, 1))).sum(axis=1)
    passes = truth + 0.3 * generator.normal(size=(8, ROWS, 2))
    first = truth + first_noise * generator.normal(size=(ROWS, 2))
    return PassLogits(first[None]), PassLogits(passes), labels


@pytest.mark.parametrize("first_noise", [0.0, 1.0, 4.0])
def test_the_share_is_the_smallest_that_keeps_the_tolerance(first_noise: float) -> None:
    first, second, labels = made(0, first_noise=first_noise)
    stages = Stages.of(first, second)
    tuned = tune_escalation(Cascade(), stages, labels, 0.005)
    assert isinstance(tuned.method, Cascade)
    everything = stages.mixture(stages.fit(labels, 1.0))
    mixture = stages.mixture(tuned.method.escalation)
    for metric in (aurc, ece):
        assert metric(mixture, labels) - metric(everything, labels) <= 0.005
    share = stages.escalated(tuned.method.escalation).mean()
    if first_noise == 0.0:
        assert share == 0
        assert "'base' does the same for less" in tuned.reason
    else:
        assert share > 0
        assert f"{share:.1%}" in tuned.reason
    if first_noise == 4.0:
        assert share >= 0.5


def test_a_tighter_tolerance_sends_more_on() -> None:
    first, second, labels = made(1, first_noise=1.0)
    stages = Stages.of(first, second)
    shares = [
        stages.escalated(tune_escalation(Cascade(), stages, labels, t).method.escalation).mean()  # type: ignore[attr-defined]
        for t in (0.2, 0.01, 0.0)
    ]
    assert shares == sorted(shares)
    assert shares[0] < shares[2]
    assert SHARES[-1] == 1.0


def test_scales_bring_both_stages_to_the_labels_chances() -> None:
    first, second, labels = made(2, first_noise=0.0)
    stages = Stages.of(PassLogits(first.logits * 3), PassLogits(second.logits * 2))
    escalation = stages.fit(labels, 0.5)
    assert escalation.first_temperature == pytest.approx(3, rel=0.3)
    assert escalation.then_temperature == pytest.approx(2, rel=0.5)
    assert stages.escalated(escalation).mean() == pytest.approx(0.5, abs=0.01)


def test_adaptive_sampling_learns_where_answers_begin() -> None:
    _, second, labels = made(3, first_noise=0.0)
    rows = CalibrationRows(labels, run=lambda method: second)
    plain, _ = Adaptive().learned(second, rows)
    assert plain.stopping.boundary is None
    assert plain.stopping.spread == pytest.approx(0.3 * np.sqrt(2), rel=0.1)
    answering, reason = Adaptive().learned(second, replace(rows, boundary=lambda confidences, errors: 0.8))
    assert answering.stopping.boundary == pytest.approx(np.log(4))
    assert "whether to answer" in reason
    assert answering.untuned() == Adaptive()


def test_what_has_no_free_settings_learns_nothing() -> None:
    rows = CalibrationRows(np.arange(60) % 2, run=lambda method: PassLogits(np.zeros((1, 60, 2))))
    for name, method in METHODS.items():
        assert method.tunable == (name in ("adaptive", "cascade", "distilled")), name
        assert method.learns_from_labels == (name in ("adaptive", "cascade")), name
        assert method.untuned() == method
        if not method.tunable:
            with pytest.raises(ConfigurationError, match="has no settings that calibration rows decide"):
                method.tuned(rows)


@pytest.mark.parametrize("method", ["adaptive", "cascade"])
def test_few_rows_are_refused(method: str) -> None:
    rows = CalibrationRows(np.arange(39) % 2, run=lambda method: PassLogits(np.zeros((1, 39, 2))))
    with pytest.raises(CalibrationError, match="39 rows with 2 classes are too few"):
        METHODS[method].tuned(rows)
