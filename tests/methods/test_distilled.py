"""The read-out of a variance: against refits by scikit-learn, and what the method does with a good and a poor one."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from uatlite.errors import ConfigurationError
from uatlite.methods import read_out
from uatlite.methods.distilled import DISTILLED, Distilled
from uatlite.methods.method import TAUGHT, CalibrationRows, Method
from uatlite.methods.one_pass import ANALYTIC
from uatlite.methods.read_out import OFFSET, ReadOut, features_of, fit_read_out
from uatlite.methods.registry import method_from_dict, parse_method
from uatlite.predictive import PassLogits, entropy, softmax
from uatlite.values import Floats


def made(rows: int, units: int, noise: float, seed: int = 0) -> tuple[PassLogits, Floats]:
    """A plain pass, and variances whose logarithm is linear in what it read, but for some noise."""
    rng = np.random.default_rng(seed)
    read = rng.normal(size=(rows, units))
    logs = read @ rng.normal(size=units) / np.sqrt(units) - 1 + noise * rng.normal(size=rows)
    return PassLogits(rng.normal(0, 2, (1, rows, 4)), representations=read), np.exp(logs)


def rows_of(plain: PassLogits, variance: Floats) -> CalibrationRows:
    def run(method: Method) -> PassLogits:
        return PassLogits(plain.logits + 1, variance) if method == ANALYTIC else plain

    return CalibrationRows(np.zeros(len(variance), dtype=np.int64), run)


def test_left_out_predictions_are_those_of_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_out, "PENALTIES", np.array([3.0]))
    plain, variance = made(70, 12, 0.5)
    features, y = features_of(plain), np.log(variance + OFFSET)
    found, left_out = fit_read_out(features, variance, 50)
    x = (features - features.mean(axis=0)) / features.std(axis=0)
    refits = []
    for row in range(50):
        others = np.arange(70) != row
        refits.append(Ridge(3.0).fit(x[others], y[others]).predict(x[row : row + 1])[0])
    # The refit centres on the other rows, the formula on all: the intercept is not penalised, so they agree.
    within = np.clip(refits, y.min(), y.max())
    assert np.log(left_out + OFFSET) == pytest.approx(within, abs=1e-6)
    whole = Ridge(3.0).fit(x, y).predict(x)
    assert np.log(found.variance(features) + OFFSET) == pytest.approx(np.clip(whole, y.min(), y.max()), abs=1e-8)
    assert found.r2 == pytest.approx(
        1 - np.square(y[:50] - refits).sum() / np.square(y[:50] - y[:50].mean()).sum(), abs=1e-6
    )


def test_the_penalty_with_the_least_left_out_error_is_taken() -> None:
    plain, variance = made(120, 60, 0.8)
    features, y = features_of(plain), np.log(variance + OFFSET)
    x = (features - features.mean(axis=0)) / features.std(axis=0)
    errors = []
    for penalty in read_out.PENALTIES:
        found = 0.0
        for row in range(0, 120, 6):
            others = np.arange(120) != row
            found += (Ridge(penalty).fit(x[others], y[others]).predict(x[row : row + 1])[0] - y[row]) ** 2
        errors.append(found)
    _, left_out = fit_read_out(features, variance, 120)
    ours = np.square(np.log(left_out + OFFSET) - y)[::6].sum()
    assert ours <= 1.1 * min(errors)


def test_features_are_what_the_head_reads_and_the_top_logits() -> None:
    plain, _ = made(3, 5, 0.0)
    logits = plain.logits[0]
    found = features_of(plain)
    for row in range(3):
        centred = logits[row] - logits[row].mean()
        best = sorted(centred, reverse=True)
        expected = [*plain.representations[row], *best[:3], best[0] - best[1], float(entropy(softmax(centred)))]  # type: ignore[index]
        assert found[row] == pytest.approx(expected)


def test_a_good_read_out_takes_the_place_of_the_teacher() -> None:
    plain, variance = made(300, 8, 0.1)
    tuned = DISTILLED.tuned(rows_of(plain, variance))
    method = tuned.method
    assert isinstance(method, Distilled)
    assert method.reads
    assert not method.tunable
    assert method.read_out is not None
    assert method.read_out.r2 > 0.9
    assert f"R² {method.read_out.r2:.2f}" in tuned.reason
    said = method.read_from(plain)
    assert said is not None
    assert said.logits is plain.logits
    assert tuned.outputs is not None
    assert tuned.outputs.given_variance != pytest.approx(said.given_variance, rel=1e-9)  # each row left out
    assert np.corrcoef(np.log(said.given_variance), np.log(variance))[0, 1] > 0.9  # type: ignore[arg-type]
    assert method.untuned() == DISTILLED


@pytest.mark.parametrize(("rows", "noise", "reason"), [(300, 30.0, "cannot be read off"), (40, 0.1, "too few")])
def test_a_poor_read_out_leaves_the_teacher(rows: int, noise: float, reason: str) -> None:
    plain, variance = made(rows, 8, noise)
    tuned = DISTILLED.tuned(rows_of(plain, variance))
    assert isinstance(tuned.method, Distilled)
    assert not tuned.method.reads
    assert tuned.method.read_from(plain) is None
    assert reason in tuned.reason
    assert "analytic itself runs" in tuned.reason
    assert tuned.outputs is not None
    assert (tuned.outputs.logits == plain.logits + 1).all()  # the teacher's


def test_reference_texts_take_part_in_the_fit() -> None:
    whole, every = made(2580, 40, 0.3)
    (plain, variance), (others, more), (fresh, truth) = (
        (PassLogits(whole.logits[:, part], representations=whole.representations[part]), every[part])  # type: ignore[index]
        for part in (slice(0, 80), slice(80, 2080), slice(2080, None))
    )
    alone = DISTILLED.tuned(rows_of(plain, variance)).method
    rows = CalibrationRows(
        np.zeros(80, dtype=np.int64),
        rows_of(plain, variance).run,
        run_reference=rows_of(others, more).run,
    )
    with_more = DISTILLED.tuned(rows).method
    assert isinstance(alone, Distilled)
    assert isinstance(with_more, Distilled)
    assert alone.read_out is not None
    assert with_more.read_out is not None
    assert with_more.read_out.texts == 2080
    errors = [
        np.square(np.log(one.read_from(fresh).given_variance) - np.log(truth)).mean()  # type: ignore[union-attr, arg-type]
        for one in (alone, with_more)
    ]
    assert errors[1] < errors[0]


def test_it_is_stored_as_numbers_and_an_array() -> None:
    plain, variance = made(200, 6, 0.2)
    method = parse_method("distilled:of=uat,gate=k")
    assert method.name == "distilled:of=uat,gate=k"
    tuned = DISTILLED.tuned(rows_of(plain, variance)).method
    again = method_from_dict(tuned.to_dict()).with_arrays({**tuned.to_arrays(), "other": np.zeros(3)})
    assert again.to_dict() == tuned.to_dict()
    before, after = tuned.read_from(plain), again.read_from(plain)
    assert before is not None
    assert after is not None
    assert (before.given_variance == after.given_variance).all()  # type: ignore[union-attr]
    with pytest.raises(ConfigurationError, match="missing"):
        method_from_dict(tuned.to_dict()).with_arrays({})


def test_another_model_is_an_error() -> None:
    read_out = ReadOut(np.zeros(4), np.zeros(()), np.array([0.0, 1.0]), 0.9, 0.9, 100)
    plain, _ = made(5, 3, 0.1)
    with pytest.raises(ConfigurationError, match="Calibrate again"):
        Distilled(read_out=read_out).read_from(plain)


def test_unknown_teachers_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="of"):
        parse_method("distilled:of=ensemble")


def test_a_teacher_runs_on_some_of_many_texts() -> None:
    plain, variance = made(TAUGHT + 500, 12, 0.3)
    asked: list[NDArray[np.int64]] = []

    def run_some(method: Method, places: NDArray[np.int64]) -> PassLogits:
        assert method == ANALYTIC
        asked.append(places)
        return PassLogits(plain.logits[:, places], variance[places])

    rows = CalibrationRows(np.zeros(len(variance), dtype=np.int64), lambda method: plain, run_some=run_some)
    tuned = DISTILLED.tuned(rows)
    (places,) = asked
    assert len(np.unique(places)) == len(places) == TAUGHT
    expected, left_out = fit_read_out(features_of(plain)[places], variance[places], TAUGHT)
    assert tuned.outputs is not None
    assert tuned.outputs.given_variance is not None
    assert tuned.outputs.given_variance[places] == pytest.approx(left_out)
    others = np.setdiff1d(np.arange(len(variance)), places)  # had no part in the fit
    assert tuned.outputs.given_variance[others] == pytest.approx(expected.variance(features_of(plain)[others]))
