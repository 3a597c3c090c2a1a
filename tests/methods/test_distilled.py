"""The read-out of variances, of a margin and of labels: against refits by scikit-learn, and what a good and a poor one
do."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from uatlite.codec import dump, load
from uatlite.errors import ConfigurationError, StoreError
from uatlite.methods import distilled
from uatlite.methods.distilled import DISTILLED, FEATURES, OFFSET, Distilled, ReadOut, fit_read_out, sampling_noise
from uatlite.methods.method import TAUGHT, CalibrationRows
from uatlite.methods.registry import STORED, method_to_dict, parse_method
from uatlite.methods.sampling import ANALYTIC
from uatlite.predictive import PassLogits, entropy, softmax

KINDS = {"one": 1, "labels": 3}
EACH = pytest.mark.parametrize("kind", KINDS)


def stored_again(method, arrays):
    return load(STORED, dump(method, arrays, kind=STORED), arrays, advice="")


def made(kind, rows, noise, units=8):
    """A plain pass, and variances (rows, k) whose logarithm is linear in what it read, but for some noise."""
    rng, k = np.random.default_rng(0), KINDS[kind]
    read = rng.normal(size=(rows, units))
    logs = read @ rng.normal(size=(units, k)) / np.sqrt(units) - 1 + noise * rng.normal(size=(rows, k))
    return PassLogits(rng.normal(0, 2, (1, rows, max(k, 4))), representations=read), np.exp(logs)


def rows_of(kind, plain, variance):
    def run(method):
        return PassLogits(plain.logits + 1, variance) if method == ANALYTIC else plain

    return CalibrationRows(len(variance), run, kind=kind)


def fitted(kind, rows, reason, method=DISTILLED):
    """What is learned from rows, for this reason, and what it says about them."""
    learned = method.learn(rows)
    assert reason in learned.reason
    assert isinstance(learned.method, Distilled)
    assert not learned.method.learns
    assert learned.method.read_out.kind == kind
    return learned.method, learned.outputs


@EACH
def test_left_out_predictions_are_those_of_refits(kind, monkeypatch):
    monkeypatch.setattr(distilled, "PENALTIES", np.array([3.0]))
    plain, variance = made(kind, 70, 0.5, units=12)
    features, y = FEATURES[kind].of(plain), np.log(variance + OFFSET)
    read_out, left_out = fit_read_out(kind, features, variance, 50)
    x = (features - features.mean(axis=0)) / features.std(axis=0)
    others = [np.arange(70) != row for row in range(50)]
    refits = np.array([Ridge(3.0).fit(x[some], y[some]).predict(x[[row]])[0] for row, some in enumerate(others)])
    refits = refits.reshape(50, -1)
    # The refit centres on the other rows, the formula on all: the intercept is not penalised, so they agree.
    limits = y.min(axis=0), y.max(axis=0)
    assert np.log(left_out + OFFSET) == pytest.approx(np.clip(refits, *limits), abs=1e-6)
    every = Ridge(3.0).fit(x, y).predict(x).reshape(70, -1)
    assert np.log(read_out.variance(features) + OFFSET) == pytest.approx(np.clip(every, *limits), abs=1e-8)
    spread = np.square(y[:50] - y[:50].mean(axis=0)).sum()
    assert read_out.r2 == pytest.approx(1 - np.square(y[:50] - refits).sum() / spread, abs=2e-6)


def test_each_label_has_the_penalty_with_the_least_left_out_error():
    plain, variance = made("labels", 120, 0.8, units=60)
    features, y = FEATURES["labels"].of(plain), np.log(variance + OFFSET)
    read_out, left_out = fit_read_out("labels", features, variance, 120)
    x = (features - features.mean(axis=0)) / features.std(axis=0)
    for label in range(3):
        alone, left_alone = fit_read_out("labels", features, variance[:, [label]], 120)
        assert read_out.variance(features)[:, [label]] == pytest.approx(alone.variance(features), rel=1e-9)
        assert left_out[:, [label]] == pytest.approx(left_alone, rel=1e-9)
    errors = []
    for penalty in distilled.PENALTIES[::4]:
        others = [np.arange(120) != row for row in range(120)]
        refits = [Ridge(penalty).fit(x[some], y[some, 0]).predict(x[[row]])[0] for row, some in enumerate(others)]
        errors.append(np.square(np.clip(refits, y[:, 0].min(), y[:, 0].max()) - y[:, 0]).sum())
    assert np.square(np.log(left_out[:, 0] + OFFSET) - y[:, 0]).sum() <= 1.01 * min(errors)


def test_features_are_what_the_head_reads_and_the_top_logits():
    plain, _ = made("one", 3, 0.0)
    features = FEATURES["one"].of(plain), FEATURES["labels"].of(plain)
    rows = zip(plain.logits[0], plain.representations, *features, strict=True)
    for logits, read, of_class, of_labels in rows:
        centred = logits - logits.mean()
        best = sorted(centred, reverse=True)
        expected = [*read, *best[:3], best[0] - best[1], float(entropy(softmax(centred)))]
        assert of_class == pytest.approx(expected)
        assert of_labels == pytest.approx([*read, *logits, *sorted(logits, reverse=True)[:3]])


@EACH
def test_a_good_read_out_takes_the_place_of_the_teacher(kind):
    plain, variance = made(kind, 300, 0.1)
    method, outputs = fitted(kind, rows_of(kind, plain, variance), "read off one plain pass (R² 0.9")
    assert method.reads
    assert (method.passes, method.cost) == (1, 1)
    said = method.read_from(plain)
    assert said.logits is plain.logits
    assert outputs.given_variance != pytest.approx(said.given_variance, rel=1e-9)  # each row left out
    for k in range(KINDS[kind]):
        assert np.corrcoef(np.log(said.given_variance[:, k]), np.log(variance[:, k]))[0, 1] > 0.9
    assert method.name == DISTILLED.name
    assert method.changed(of="uat").learns  # nothing was learned of another teacher


@pytest.mark.parametrize(("rows", "reason"), [(200, "cannot be read off"), (40, "too few")])
def test_a_poor_read_out_leaves_the_teacher_or_of_labels_the_plain_pass(rows, reason, shared, texts):
    plain, variance = made("one", rows, 30.0)
    method, outputs = fitted("one", rows_of("one", plain, variance), f"{reason}")
    assert not method.reads
    assert (method.passes, method.cost) == (1, 2)
    assert method.read_from(plain) is None
    assert (outputs.logits == plain.logits + 1).all()  # the teacher's
    plain, variance = made("labels", rows, 9.0)
    method, outputs = fitted("labels", rows_of("labels", plain, variance), "the plain pass runs, without variances")
    assert outputs is plain
    model = shared("bert", problem_type="multi_label_classification")
    arrays = {}
    for same in (method, stored_again(method, arrays)):
        assert (same.passes, same.cost) == (1, 1)
        assert same.read_from(plain) is plain
        passes = same.run(model, texts((4,)))
        assert len(passes.logits) == 1
        assert passes.variance is None


def test_reference_texts_take_part_in_the_fit():
    every, truth = made("one", 2580, 0.3, units=40)
    (plain, few), (others, more), (fresh, unseen) = (
        (every.take(rows), truth[rows]) for rows in np.split(np.arange(2580), (80, 2080))
    )
    rows = rows_of("one", plain, few)
    alone, _ = fitted("one", rows, "read off")
    with_more, _ = fitted("one", replace(rows, run_reference=rows_of("one", others, more).run), "read off")
    assert with_more.read_out.texts == 2080
    errors = [
        np.square(np.log(method.read_from(fresh).given_variance) - np.log(unseen)).mean()
        for method in (alone, with_more)
    ]
    assert errors[1] < errors[0]


def test_r2_leaves_out_the_noise_of_few_passes():
    """Of variances from five passes R² is that of the variances which many passes would have."""
    plain, truth = made("labels", 3000, 0.6)
    features = FEATURES["labels"].of(plain)
    logits = np.random.default_rng(1).normal(size=(5, 3000, 3)) * np.sqrt(truth)
    sampled = FEATURES["labels"].variance(PassLogits(logits))
    without_noise, _ = fit_read_out("labels", features, sampled, 3000, sampling_noise(5))
    exact, _ = fit_read_out("labels", features, truth, 3000)
    rough, _ = fit_read_out("labels", features, sampled, 3000)
    assert without_noise.r2 == pytest.approx(exact.r2, abs=0.03)
    assert rough.r2 < exact.r2 - 0.2
    draws = np.log(np.random.default_rng(2).normal(size=(5, 40_000)).var(axis=0, ddof=1))
    assert sampling_noise(5) == pytest.approx(draws.var(), rel=0.03)
    assert sampling_noise(1) == 0


@pytest.mark.parametrize("spelling", ["distilled:of=fast,per_input=true", "distilled:of=fast"])
def test_noise_is_taken_out_only_where_texts_have_masks_of_their_own(spelling):
    plain, truth = made("labels", 400, 0.3)
    taught = PassLogits(np.random.default_rng(1).normal(size=(5, 400, 3)) * np.sqrt(truth))
    rows = CalibrationRows(400, lambda method: plain if method.passes == 1 else taught, kind="labels")
    method, _ = fitted("labels", rows, "fast", parse_method(spelling))
    variance, noise = FEATURES["labels"].variance(taught), sampling_noise(5) if "per_input" in spelling else 0.0
    expected, _ = fit_read_out("labels", FEATURES["labels"].of(plain), variance, 400, noise)
    assert method.read_out.r2 == expected.r2


@EACH
def test_it_is_stored_as_numbers_and_arrays(kind):
    plain, variance = made(kind, 200, 0.2)
    method, _ = fitted(kind, rows_of(kind, plain, variance), "read off", parse_method("distilled:of=analytic"))
    arrays = {"other": np.zeros(3)}
    again = stored_again(method, arrays)
    assert method_to_dict(again) == method_to_dict(method)
    before, after = method.read_from(plain), again.read_from(plain)
    np.testing.assert_array_equal(before.given_variance, after.given_variance)
    with pytest.raises(StoreError, match=r"there is no array 'read_out\..*calibrate again"):
        load(STORED, method_to_dict(method), advice="calibrate again.")


def test_another_model_is_an_error():
    plain, _ = made("one", 5, 0.1)
    with pytest.raises(ConfigurationError, match="Calibrate again"):
        Distilled(read_out=ReadOut.empty("one", 100, 4, quality=0.9)).read_from(plain)


def test_unknown_teachers_are_refused():
    assert parse_method("distilled:of=uat,gate=k").name == "distilled:of=uat,gate=k"
    with pytest.raises(ConfigurationError, match="of"):
        parse_method("distilled:of=ensemble")


def test_a_teacher_runs_on_some_of_many_texts():
    plain, variance = made("one", TAUGHT + 500, 0.3, units=12)
    asked = []

    def run_some(method, places):
        assert method == ANALYTIC
        asked.append(places)
        return PassLogits(plain.logits[:, places], variance[places])

    _, outputs = fitted("one", CalibrationRows(len(variance), lambda method: plain, run_some=run_some), "read off")
    (places,) = asked
    assert len(np.unique(places)) == len(places) == TAUGHT
    features = FEATURES["one"].of(plain)
    expected, left_out = fit_read_out("one", features[places], variance[places], TAUGHT)
    assert outputs.given_variance[places] == pytest.approx(left_out)
    others = np.setdiff1d(np.arange(len(variance)), places)  # had no part in the fit
    assert outputs.given_variance[others] == pytest.approx(expected.variance(features[others]))
