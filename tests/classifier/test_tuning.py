"""Where to spend passes: what calibrating learns of the cascade and of adaptive sampling, and what it says of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.methods.adaptive import Adaptive
from uatlite.methods.cascade import SHARES, Cascade, Stages, tune_escalation
from uatlite.methods.method import CalibrationRows
from uatlite.methods.registry import parse_method
from uatlite.metrics.calibration import ece
from uatlite.metrics.selective import aurc
from uatlite.predictive import PassLogits, softmax

Build = Callable[..., UncertaintyClassifier]
Labelled = Callable[..., tuple[list[str], list[str]]]
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


@pytest.mark.parametrize("method", ["cascade", "cascade:then=analytic", "cascade:then=adaptive", "adaptive"])
def test_calibrating_learns_and_saving_keeps_it(method: str, build: Build, labelled: Labelled, tmp_path: Path) -> None:
    texts, labels = labelled(300)
    clf = build(method).calibrate(texts, labels, target_risk=0.4)
    assert clf.config == method
    assert clf.method != build(method).method
    assert clf.calibration_ is not None
    assert clf.calibration_.describe()[0].startswith(("Cascade: ", "Adaptive: "))
    found = clf.predict(texts[:40], check_shift=False)
    assert found.passes.min() >= 1
    assert found.passes.max() <= clf.method.passes
    assert [row["passes"] for row in found.rows()] == found.passes.tolist()
    clf.save_pretrained(tmp_path / "saved")
    again = UncertaintyClassifier.from_pretrained(tmp_path / "saved")
    assert again.method == clf.method
    assert again.calibration_ is not None
    assert again.calibration_.spending == clf.calibration_.spending
    other = again.predict(texts[:40], check_shift=False)
    np.testing.assert_allclose(other.probabilities, found.probabilities, atol=1e-6)
    np.testing.assert_array_equal(other.passes, found.passes)
    np.testing.assert_array_equal(other.abstain, found.abstain)


def test_a_threshold_that_was_set_is_kept(build: Build, labelled: Labelled) -> None:
    clf = build("cascade:threshold=0.7").calibrate(*labelled(120))
    assert clf.method.name == "cascade:threshold=0.7"
    assert clf.calibration_ is not None
    assert clf.calibration_.spending == ()


def test_one_answer_in_any_company_and_in_windows(build: Build, texts_of: Callable[..., list[str]]) -> None:
    texts = texts_of(24, longest=60)
    clf = build("cascade:threshold=0.9,then=adaptive,confidence=0.6", windows=True, max_length=16)
    together = clf.predict(texts)
    assert len(set(together.passes.tolist())) > 2
    for row, text in enumerate(texts):
        alone = clf.predict([text])
        assert alone.passes[0] == together.passes[row]
        for name in ("probabilities", "mutual_information", "variance", "entropy"):
            np.testing.assert_allclose(getattr(alone, name)[0], getattr(together, name)[row], atol=2e-5)


def test_windows_that_stopped_stand_with_their_mean(build: Build, texts_of: Callable[..., list[str]]) -> None:
    """A text's prediction is the softmax of the mean over windows of each window's own mean logits."""
    from uatlite.model.tokens import windowed

    texts = texts_of(12, longest=60)
    clf = build("adaptive:confidence=0.6", windows=True, max_length=16)
    windows = windowed(clf.tokenizer, list(texts), 16)
    starts = np.concatenate([[0], np.cumsum(windows.counts)])
    found = clf.predict(texts)
    for row in range(len(texts)):
        places = range(starts[row], starts[row + 1])
        each = [clf.method.run(clf.model, windows.tokens.pad([place])) for place in places]
        means = [one.logits[: int(one.counts[0]), 0].double().mean(dim=0).numpy() for one in each]
        np.testing.assert_allclose(found.probabilities[row], softmax(np.mean(means, axis=0)), atol=2e-5)
        assert found.passes[row] == max(int(one.counts[0]) for one in each)


def test_a_budget_chooses_and_says_why(build: Build, labelled: Labelled) -> None:
    texts, labels = labelled(120)
    clf = build().calibrate(texts, labels, budget=3.0)
    assert clf.calibration_ is not None
    (reason,) = clf.calibration_.spending
    assert reason.startswith("Budget 3: ")
    assert "held-out NLL" in reason
    assert clf.config is not None
    assert clf.calibration_.settings.method == clf.method
    # nothing but one deterministic pass fits in one deterministic pass
    assert build().calibrate(texts, labels, budget=1.0).method.name == "base"


def test_refusals(build: Build, labelled: Labelled) -> None:
    texts, labels = labelled(60)
    with pytest.raises(ConfigurationError, match=r"budget=0\.5 is below 1"):
        build().calibrate(texts, labels, budget=0.5)
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        build("fast").calibrate(texts, labels, budget=2.0)
    with pytest.raises(CalibrationError, match="too few to learn where to spend passes"):
        build("cascade").calibrate(texts, labels, target_risk=0.3)
    with pytest.raises(ConfigurationError, match="tolerance=-1"):
        build("cascade").calibrate(texts, labels, tolerance=-1)


@pytest.mark.parametrize("spelt", ["adaptive", "cascade:threshold=0.9", "cascade:then=adaptive,threshold=0.9"])
def test_the_seed_of_a_method_that_is_given_is_kept(spelt: str, build: Build, tmp_path: Path) -> None:
    clf = build(parse_method(spelt).seeded(5))
    assert clf.settings.seed == 5
    clf.save_pretrained(tmp_path / "saved")
    assert UncertaintyClassifier.from_pretrained(tmp_path / "saved").method == clf.method
