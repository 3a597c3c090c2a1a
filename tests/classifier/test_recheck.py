"""The promise checked by labels of today: verdicts, the new promise, the calibrator, the versions."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import binomtest

from by_hand import draw_scores
from reference import draw_logits, refuses, rule_of
from uatlite.classifier import saving
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.one_class import ONE
from uatlite.classifier.recheck import LabelledNow, poorer, read_now, recheck, refitted, renewed_rule, update
from uatlite.errors import CalibrationError, ConfigurationError, DataError, StoreError
from uatlite.predictive import PassLogits
from uatlite.trust.calibrators import Temperature
from uatlite.trust.promise import Labelled as Rows
from uatlite.trust.rule import Wanted


def columns_of(classifier, labels):
    return np.array([classifier.class_names.index(label) for label in labels])


@pytest.fixture
def now(calibrated, labelled):
    texts, labels = labelled(200, seed=5)
    return read_now(calibrated, texts, columns_of(calibrated, labels))


def test_the_risk_now_is_counted_over_answers_alone(calibrated, now):
    rule = calibrated.calibration_.rule
    found = recheck(now, rule)
    ((_, interval),) = found.now
    wrong = now.predictions.labelled(now.gold, Wanted(score=rule.score)).wrong
    assert (interval.rows, interval.errors) == (now.answered.sum(), (now.answered & wrong).sum())
    assert found.coverage == pytest.approx(now.answered.mean())
    assert recheck(now, rule, target=0.99).verdict == "holds"
    assert recheck(now, rule, target=0.01).verdict == "broken"
    assert "The promise is broken" in recheck(now, rule, target=0.01).describe()[-1]
    near = recheck(now, rule, target=round(interval.risk + 0.03, 3))
    assert near.verdict == "cannot tell yet"
    assert near.labels_needed.low > interval.rows
    assert near.describe()[-1] == f"Cannot tell yet; {near.labels_needed.describe()}."


def test_without_a_promise_or_an_answer_it_says_so(build, calibrated, now):
    old, rule = calibrated.calibration_, calibrated.calibration_.rule
    covers = replace(rule, kind="coverage")
    nobody = replace(now, predictions=replace(now.predictions, rules=(replace(rule, threshold=np.inf),)))
    refuses(
        (CalibrationError, "no promise to check", lambda: read_now(build(), ["a1"], [0])),
        (ConfigurationError, "promises no risk", lambda: recheck(now, covers)),
        (ConfigurationError, "renews one target risk", lambda: update(replace(old, rules=(covers,)), now)),
        (CalibrationError, "none of the 200 labelled rows is answered", lambda: recheck(nobody, rule)),
    )


def test_a_new_promise_is_kept_as_often_as_it_says():
    """Errors are more frequent than at calibration, P(wrong | s) = 0.65 (1 - s), and 100 answers are labelled."""
    rng = np.random.default_rng(0)
    scores, wrong = draw_scores(2000, rng)
    old = rule_of(scores, wrong, 0.15)
    broken = promised = 0
    for seed in range(300):
        new = old.threshold + (1 - old.threshold) * rng.random(100)
        rule = renewed_rule(
            old, Rows({old.score: new}, rng.random(100) < 0.65 * (1 - new)), True, Rows({old.score: scores}), seed
        )
        assert rule.threshold >= old.threshold
        promised += rule.promised
        broken += rule.promised and 0.65 * (1 - rule.threshold) / 2 > 0.15
    assert promised > 30
    assert broken <= 300 * 0.05


def test_a_sample_of_answers_does_not_lower_the_threshold():
    rng = np.random.default_rng(0)
    old = rule_of(*draw_scores(500, rng), 0.1)
    fine = old.threshold + (1 - old.threshold) * rng.random(200)
    right = np.zeros(200, dtype=bool)
    rows = Rows({old.score: fine}, right)
    assert renewed_rule(old, rows, answers_only=True).threshold == old.threshold
    assert renewed_rule(old, rows).threshold == -np.inf


def test_the_calibrator_is_fitted_anew_where_the_rows_are_enough():
    old, far = draw_logits(2000, 3), draw_logits(400, 3, seed=2, overconfidence=8.0)
    before, everything = Temperature.fit(*old), np.ones(400, dtype=bool)
    whole = LabelledNow(ONE, cast(Any, None), PassLogits(far[0][None]), far[1], None)
    moves, said = refitted(before, whole, everything)
    assert moves == Temperature.fit(*far)
    assert said == "The calibrator was fitted on the 400 new rows."
    few, told = refitted(before, whole, np.arange(400) < 9)
    assert few is before
    assert "too few" in told


def test_rows_that_are_too_few_to_tell_a_shift_make_an_update(calibrated, labelled):
    texts, labels = labelled(40, seed=5)
    renewed = update(calibrated.calibration_, read_now(calibrated, texts, columns_of(calibrated, labels)))
    assert (renewed.rows, renewed.shift) == (40, None)


def test_an_update_is_a_version_beside_the_old_one(calibrated, now, tmp_path, made_texts):
    directory = tmp_path / "clf"
    calibrated.save_pretrained(directory)
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    old = calibrated.calibration_
    calibrated.calibration_ = new = update(old, now)
    assert new.rule.texts < 200  # a few give the start, or are out of scope
    assert "The calibrator was fitted on the 200 new rows." in new.describe()
    made = saving.write_version(calibrated, directory, "risk 40%")
    assert (made.number, made.parent) == (2, 1)
    assert {name: (directory / name).read_bytes() for name in files} == files
    again = UncertaintyClassifier.from_pretrained(directory)
    assert again.calibration_.rule == new.rule
    some = made_texts(20, seed=9)
    assert (again.predict_proba(some) == calibrated.predict_proba(some)).all()
    saving.use_version(directory, 1)
    back = UncertaintyClassifier.from_pretrained(directory)
    assert back.calibration_.rule == old.rule
    third = saving.write_version(calibrated, directory, "")
    assert (third.number, third.parent) == (3, 1)
    assert [version.number for version in saving.history(directory)] == [1, 2, 3]
    with pytest.raises(DataError, match="has versions, which are not overwritten"):
        calibrated.save_pretrained(directory, overwrite=True)


def test_a_version_that_answers_nothing_or_half_as_much_is_not_put_in_use(calibrated, now, tmp_path):
    old = calibrated.calibration_
    rule = replace(old.rule, coverage=0.8)

    def why(answers_only=False, **changes):
        new = replace(old, rules=(replace(rule, **changes),))
        return poorer(new, replace(old, rules=(rule,)), answers_only=answers_only)

    assert why(coverage=0.41) == why(coverage=0.51, answers_only=True) == ""
    assert why(coverage=0.39).startswith("it answers 49% of what was answered at calibration. Answer where")
    assert why(coverage=0.49, answers_only=True).startswith("it answers 49% of what")
    assert why(promised=False, reason="too few.").startswith("it answers nothing. Abstain on all: too few.")
    calibrated.save_pretrained(tmp_path / "clf")
    made = saving.write_version(calibrated, tmp_path / "clf", "", use=False)
    assert (made.number, saving.version_in_use(tmp_path / "clf")) == (2, 1)
    saving.use_version(tmp_path / "clf", 2)
    assert UncertaintyClassifier.from_pretrained(tmp_path / "clf").calibration_.rule == old.rule


def test_a_calibration_is_printed_as_a_table(calibrated):
    calibration = calibrated.calibration_
    said = str(replace(calibration, menu=None)).splitlines()
    figures = [] if calibration.figures is None else calibration.figures.describe()
    assert said == [*calibration.describe(), *figures]
    assert "array(" not in repr(calibration)


def test_rows_chosen_for_what_they_look_like_do_not_decide(calibrated, now):
    chosen = ~now.answered
    picked = replace(now, inclusion=np.where(chosen, 1.0, 0.2))
    assert (picked.drawn == now.answered).all()
    assert picked.answers_only
    new = update(calibrated.calibration_, picked)
    assert new.rule.texts <= now.answered.sum()
    assert new.rule.threshold >= calibrated.calibration_.rule.threshold
    assert new.shift is None
    everything = replace(now, inclusion=np.ones(200))
    assert (everything.drawn == now.answered).all()


def test_versions_are_numbered_and_one_is_in_use(tmp_path):
    refuses((DataError, "not a saved classifier", lambda: saving.history(tmp_path)))
    (tmp_path / "uatlite.json").write_text("{}")
    assert [version.number for version in saving.history(tmp_path)] == [1]
    assert saving.home_in_use(tmp_path) == tmp_path
    refuses(
        (DataError, r"no version 4; there are 1\.", lambda: saving.use_version(tmp_path, 4)),
        (DataError, "in use already", lambda: saving.use_version(tmp_path, 1)),
    )
    made = saving.add_version(tmp_path, lambda files: (files / "uatlite.json").touch(), "why")
    assert saving.history(tmp_path)[1] == made
    assert saving.home_in_use(tmp_path) == tmp_path / "versions" / "2"
    (tmp_path / "versions" / "current").write_text("x")
    refuses((StoreError, "does not name the version in use", lambda: saving.version_in_use(tmp_path)))
    (tmp_path / "versions" / "2" / "version.json").unlink()
    refuses((StoreError, "missing or broken", lambda: saving.history(tmp_path)))


def test_a_version_that_is_not_finished_is_none(tmp_path):
    (tmp_path / "uatlite.json").touch()

    def stop(files):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        saving.add_version(tmp_path, stop, "")
    assert saving.version_in_use(tmp_path) == 1
    assert len(saving.history(tmp_path)) == 1

    def another(files):
        saving.add_version(tmp_path, lambda files: None, "faster")

    with pytest.raises(StoreError, match="if another process made it meanwhile"):
        saving.add_version(tmp_path, another, "")
    assert [version.note for version in saving.history(tmp_path)] == ["", "faster"]


def test_errors_of_all_texts_are_counted_over_all_of_them_and_over_answers_times_their_share(build, labelled):
    clf = build("base").calibrate(*labelled(400), target_errors=0.3)
    rule, (texts, labels) = clf.calibration_.rule, labelled(200, seed=5)
    now = read_now(clf, texts, columns_of(clf, labels))
    wrong = now.predictions.labelled(now.gold, Wanted(score=rule.score)).errors
    ((_, risk),) = recheck(now, rule).now
    assert (risk.rows, risk.errors) == (200, (wrong & now.answered).sum())
    interval = binomtest(risk.errors, 200).proportion_ci(rule.confidence, "exact")
    assert (risk.low, risk.high) == pytest.approx((interval.low, interval.high))
    assert "labelled texts are wrong" in recheck(now, rule).describe()[1]
    picked = replace(now, inclusion=np.where(now.answered, 0.5, 1.0))
    ((_, share),) = recheck(picked, rule).now
    of_answers = binomtest(risk.errors, int(now.answered.sum())).proportion_ci(rule.confidence, "exact")
    assert picked.answers_only
    assert (share.low, share.high) == pytest.approx((rule.coverage * of_answers.low, rule.coverage * of_answers.high))
    assert "labelled answers are wrong" in recheck(picked, rule).describe()[1]
    new = update(clf.calibration_, now)
    assert (new.rule.kind, new.rule.promised, new.rule.texts) == ("errors", True, now.inside.sum())
    assert len(new.sample.scores) == now.inside.sum()
    assert update(clf.calibration_, picked).sample is None


def test_a_rule_of_costs_is_checked_by_what_all_rows_cost_now(build, labelled):
    classifier = build("base").calibrate(*labelled(300), cost_wrong=3.0)
    rule = classifier.calibration_.rule
    texts, labels = labelled(200, seed=5)
    now = read_now(classifier, texts, columns_of(classifier, labels))
    wrong = now.predictions.predicted != now.gold
    found, spent = recheck(now, rule), np.where(now.answered, 3.0 * wrong, 1.0).mean()
    ((_, share),) = found.now
    assert 3.0 * share.risk == pytest.approx(spent)
    assert 3.0 * found.target == rule.cost.rule[2]
    assert found.verdict in ("holds", "cannot tell yet")
    first, second, _ = found.describe()
    assert first == f"Promised: a text costs at most {rule.cost.rule[2]:.4g} (at calibration {rule.cost.rule[0]:.4g})."
    assert second.startswith(f"Now: {spent:.4g} (")
    dearer = recheck(now, replace(rule, cost=replace(rule.cost, rule=(0.1, 0.05, 0.2))))
    assert dearer.verdict == "broken"
    assert dearer.describe()[-1] == "The promise is broken. Calibrate again."
    answers = replace(now, inclusion=np.where(now.answered, 0.5, 1.0))
    refuses(
        (ConfigurationError, "checked on rows drawn from all", lambda: recheck(answers, rule)),
        (ConfigurationError, "checked on rows drawn from all", lambda: recheck(now, rule, target=0.1)),
        (ConfigurationError, "calibrate again for other rules", lambda: update(classifier.calibration_, now)),
    )
