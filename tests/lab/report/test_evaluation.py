"""The rule of the report: its contender, its promise and its outcome; and findings whose numbers are the results'."""

from dataclasses import replace

import numpy as np
import pytest

from reference import rule_of
from uatlite.errors import ConfigurationError, StoreError
from uatlite.lab.report.evaluation import abstain, open_evaluation
from uatlite.lab.report.results import findings, headline
from uatlite.trust.scope import fit_scope


def margins(rows):
    """Of two classes: how far the mean logits are apart."""
    mean = rows.logits.mean(axis=0, dtype=float)
    return np.abs(mean[:, 1] - mean[:, 0])


def calibrated_by_hand(opened, method):
    """All calibration rows in scope decide, by their raw margins: the product's rule, step by step."""
    rows, plain = opened.calibration_rows(method), opened.calibration_rows("base")
    scope = fit_scope(None, plain.passes.representations, rows.logits.mean(axis=0, dtype=float))
    wrong = rows.logits.mean(axis=0, dtype=float).argmax(axis=1) != rows.labels
    decides = margins(rows)[scope.inside], wrong[scope.inside]
    rule = rule_of(*decides, 0.15, score="logit-margin")
    return replace(rule, among=(len(scope.inside), int((~scope.inside).sum()))), scope


@pytest.mark.parametrize("contender", ["base", "uat+ts"])
def test_the_rule_is_that_of_the_product(opened, contender):
    found, method = abstain(opened, contender, target=0.15), contender.partition("+")[0]
    rule, scope = calibrated_by_hand(opened, method)
    assert found.rule == rule
    assert np.isfinite(rule.threshold)
    assert rule.texts < 400  # those out of scope do not decide
    assert (found.menu.score, found.menu.texts, found.menu.rule(0.15)) == ("logit-margin", rule.texts, rule)
    rows = opened.predictions(method, "toy/test")
    mean, plain = rows.logits.mean(axis=0, dtype=float), opened.predictions("base", "toy/test")
    outside = scope.out_of_scope(scope.p_values(plain.passes.representations, mean))
    answers, wrong = (margins(rows) > rule.threshold) & ~outside, mean.argmax(axis=1) != rows.labels
    first, shifted = found.sets
    assert outside.sum() > 0
    assert (first.answered, first.wrong, first.wrong_without, first.out_of_scope) == (
        answers.sum(), (answers & wrong).sum(), wrong.sum(), outside.sum()
    )  # fmt: skip
    assert first.wrong / first.answered < first.wrong_without / first.rows
    assert shifted.name == "toy-shifted/test"
    least = [i for i in np.argsort(margins(rows), kind="stable") if not answers[i]]
    expected = [(rows.ids[i], ("negative", "positive")[rows.labels[i]], outside[i]) for i in least]
    assert [(row.id, row.gold, row.out_of_scope) for row in first.abstained] == expected


def test_a_given_scope_is_used(opened):
    _, scope = calibrated_by_hand(opened, "base")
    found, given = abstain(opened, "base"), abstain(opened, "base", scope=replace(scope, false_alarm=0.2))
    assert given.sets[0].out_of_scope > found.sets[0].out_of_scope
    assert given.rule.texts < found.rule.texts


def test_without_representations_nothing_is_out_of_scope(opened):
    plain = {key: run for key, run in opened.runs.items() if run.provenance.method != "base"}
    found = abstain(replace(opened, runs=plain), "uat+ts")
    assert (found.scope, found.sets[0].out_of_scope) == (None, 0)
    assert found.rule.texts == 400 - 40  # a tenth says where the search starts


def test_a_baseline_calibrator_has_no_rule_because_calibrate_makes_none(opened):
    names = tuple(name.replace("base+ts", "base+isotonic") for name in opened.results.contenders)
    calibrators = {**opened.results.calibrators, "base+isotonic": ()}
    about = {name: opened.results.methods[name.replace("isotonic", "ts")] for name in names}
    sets = tuple(replace(scores, scores={}) for scores in opened.results.sets)
    results = replace(opened.results, contenders=names, calibrators=calibrators, methods=about, sets=sets, metrics=())
    assert abstain(replace(opened, results=results), "base+isotonic", target=0.15) is None


def test_a_target_out_of_reach_abstains_on_all_and_says_so(opened):
    found = abstain(opened, "base", target=0.001)
    assert not found.rule.promised
    assert (found.sets[0].answered, found.sets[0].wrong, len(found.sets[0].abstained)) == (0, 0, 300)
    sentence = findings(opened.results, found)[-1]
    assert sentence.startswith("With base no threshold can promise an error of 0%:")


def test_an_unknown_contender_and_a_store_without_calibration_rows(opened):
    with pytest.raises(ConfigurationError, match="contender='uta' is not one of: base"):
        abstain(opened, "uta")
    assert abstain(replace(opened, results=replace(opened.results, calibration_runs={}))) is None


def test_a_run_that_the_store_lost_is_named(evaluation, tmp_path):
    with pytest.raises(StoreError, match=r"is in results\.json but not in the store"):
        replace(open_evaluation(evaluation), runs={}).outcomes("toy/test")
    with pytest.raises(StoreError, match=r"holds no results\.json; give the directory"):
        open_evaluation(tmp_path)
    assert np.array_equal(
        open_evaluation(evaluation / "store").outcomes("toy/test")["base"].rows.labels,
        open_evaluation(evaluation).outcomes("toy/test")["base"].rows.labels,
    )


def test_three_sentences_with_the_numbers_of_the_results(opened):
    abstention = abstain(opened)
    assert abstention.contender == opened.results.verdict.recommended
    verdict, shift, answers = findings(opened.results, abstention)
    assert verdict == headline(opened.results, opened.results.verdict)
    shifted = opened.results.sets[1].scores
    steady = min(shifted, key=lambda name: shifted[name]["ece"].mean)
    assert f"{steady} has the lowest ECE, {shifted[steady]['ece'].mean:.3f}" in shift
    assert f"answers {abstention.sets[0].answered / 300:.0%} of toy/test" in answers
