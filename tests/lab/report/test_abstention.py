"""The rule of the report: its contender, its promise and its outcome; and findings whose numbers are the results'."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from uatlite.errors import ConfigurationError, StoreError
from uatlite.lab.report.abstention import _parts, abstain, findings
from uatlite.lab.report.evaluation import Evaluation, open_evaluation
from uatlite.lab.report.verdict import headline


def test_the_counts_agree_with_the_rows(opened: Evaluation) -> None:
    found = abstain(opened, "base", target=0.15)
    assert found is not None
    first, shifted = found.sets
    outcome = opened.outcomes("toy/test")["base"]  # it has no calibrator, so these are the very probabilities
    answers = outcome.probabilities.max(axis=1) > found.rule.threshold
    wrong = outcome.probabilities.argmax(axis=1) != outcome.labels
    assert (first.answered, first.wrong, first.wrong_without) == (answers.sum(), (answers & wrong).sum(), wrong.sum())
    assert len(found.abstained) == first.rows - first.answered
    assert first.risk < first.risk_without
    assert shifted.name == "toy-shifted/test"
    confidences = [row.confidence for row in found.abstained]
    assert confidences == sorted(confidences)
    assert max(confidences) <= found.rule.threshold


def test_abstained_rows_carry_their_own_ids_and_labels(opened: Evaluation) -> None:
    found = abstain(opened, "base", target=0.15)
    assert found is not None
    rows = opened.predictions("base", "toy/test")
    gold = dict(zip(rows.ids, rows.labels.tolist(), strict=True))
    assert all(("negative", "positive")[gold[row.id]] == row.gold for row in found.abstained)


def test_without_a_name_the_fitting_rows_choose_by_nll(opened: Evaluation) -> None:
    found = abstain(opened)
    assert found is not None
    assert found.contender != "base"  # twice as sure as it may be


def test_rows_that_fit_do_not_decide(opened: Evaluation) -> None:
    parts = _parts(opened, opened.contenders[0])
    assert parts is not None
    assert not set(parts[0].ids) & set(parts[1].ids)
    assert len(parts[0].ids) + len(parts[1].ids) == 400


def test_the_menu_is_by_the_raw_margin_of_the_deciding_rows(opened: Evaluation) -> None:
    found = abstain(opened, "uat+ts")
    parts = _parts(opened, next(one for one in opened.contenders if one.name == "uat+ts"))
    assert found is not None
    assert parts is not None
    rows = parts[1]
    mean = rows.logits.mean(axis=0, dtype=float)
    margins, wrong = np.abs(mean[:, 1] - mean[:, 0]), mean.argmax(axis=1) != rows.labels
    curve = found.menu.curve
    assert (found.menu.score, found.menu.rows) == ("logit-margin", len(rows.ids))
    for threshold, coverage, risk in zip(curve.thresholds, curve.coverages, curve.risks, strict=True):
        answered = margins > threshold
        assert coverage == pytest.approx(answered.mean())
        assert risk == pytest.approx(wrong[answered].mean())
    for line in found.menu.lines:
        assert line.rule is None or (margins > line.rule.threshold).mean() == pytest.approx(line.rule.coverage)


def test_a_target_out_of_reach_abstains_on_all_and_says_so(opened: Evaluation) -> None:
    found = abstain(opened, "base", target=0.001)
    assert found is not None
    assert not found.rule.promised
    assert found.sets[0].answered == 0
    assert found.sets[0].risk == 0
    assert len(found.abstained) == 300


def test_an_unknown_contender_and_a_store_without_calibration_rows(opened: Evaluation) -> None:
    with pytest.raises(ConfigurationError, match="contender='uta' is not one of: base"):
        abstain(opened, "uta")
    tested = {key: run for key, run in opened.runs.items() if run.provenance.recipe.split == "test"}
    assert abstain(replace(opened, runs=tested)) is None


def test_a_run_that_the_store_lost_is_named(evaluation: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is in results\.json but not in the store"):
        replace(open_evaluation(evaluation), runs={}).outcomes("toy/test")
    with pytest.raises(StoreError, match=r"holds no results\.json; give the directory"):
        open_evaluation(tmp_path)
    assert np.array_equal(
        open_evaluation(evaluation / "store").outcomes("toy/test")["base"].labels,
        open_evaluation(evaluation).outcomes("toy/test")["base"].labels,
    )


def test_three_sentences_with_the_numbers_of_the_results(opened: Evaluation) -> None:
    abstention = abstain(opened)
    assert abstention is not None
    found = findings(opened.results, abstention)
    assert len(found) == 3
    assert opened.results.verdict is not None
    assert found[0] == headline(opened.results, opened.results.verdict)
    shifted = opened.results.sets[1].scores
    steady = min(shifted, key=lambda name: shifted[name]["ece"].mean)
    assert f"{steady} has the lowest ECE, {shifted[steady]['ece'].mean:.3f}" in found[1]
    assert f"answers {abstention.sets[0].coverage:.0%} of toy/test" in found[2]


def test_a_promise_that_cannot_be_made_is_not_made(opened: Evaluation) -> None:
    sentence = findings(opened.results, abstain(opened, "base", target=0.001))[-1]
    assert sentence.startswith("With base no threshold can promise an error of 0%:")
