"""Where to spend passes: a classifier keeps what its method learned, and a budget chooses the method."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from uatlite.classifier import learn
from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.runtime import Outputs, Runtime
from uatlite.classifier.settings import Settings
from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.methods.registry import parse_method
from uatlite.predictive import softmax
from uatlite.values import Text

Build = Callable[..., UncertaintyClassifier]
Labelled = Callable[..., tuple[list[str], list[str]]]


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
    assert build().calibrate(texts, labels, budget=1.0).method.name in ("base", "distilled")


def test_a_budget_times_every_run(build: Build, labelled: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was run before must run again, or its time says nothing."""
    ran: list[str] = []
    run = learn.run

    def noted(runtime: Runtime, texts: list[Text], settings: Settings) -> Outputs:
        ran.append(settings.method.name.partition(":")[0])
        return run(runtime, texts, settings)

    monkeypatch.setattr(learn, "run", noted)
    build().calibrate(*labelled(120), budget=3.0)
    for name in ("base", "analytic", "fast"):
        assert ran.count(name) >= learn.ROUNDS, name


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
