"""A day's reviews: so many texts of one file are left to a person, and the bound of the others' risk."""

import json

import numpy as np
import pytest

from uatlite.classifier.display import ABSTAINING, ANSWERED, BELOW, CUT, OUT_OF_SCOPE, UNSTABLE
from uatlite.errors import ConfigurationError, StoreError
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.scoring.workload import Workload
from uatlite.trust.all_texts import LabelledScores

RNG = np.random.default_rng(0)
SAMPLE = LabelledScores("logit-margin", 0.95, RNG.random(100), RNG.random(100) < 0.1)


def rows_of(scores, outside=()):
    return [ScoredRow({"logit_margin": s, "out_of_scope": i in outside}) for i, s in enumerate(scores)]


@pytest.mark.parametrize(
    "reviews, outside, threshold, reviewed",
    [
        (2, (), 0.2, 2),
        (4, (), 0.4, 5),  # two rows tie at 0.4
        (2, (9,), 0.1, 2),  # the one out of scope comes first
        (1, (0, 9), -np.inf, 2),
        (10, (), 1.0, 10),
        (99, (3,), 1.0, 10),
    ],
)
def test_the_threshold_of_a_file_by_hand(reviews, outside, threshold, reviewed):
    scores = [0.1, 0.2, 0.3, 0.4, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0]
    load = Workload.of(SAMPLE, rows_of(scores, outside), reviews)
    assert (load.threshold, load.reviewed, load.rows) == (threshold, reviewed, 10)
    answered = [s for i, s in enumerate(scores) if s > threshold and i not in outside]
    assert len(answered) == 10 - reviewed


def test_a_row_is_decided_by_it_alone():
    load = Workload(SAMPLE, 0.5, 10, 5)

    def decided(score, reason, cut=0):
        values = {"logit_margin": score, "out_of_scope": reason == OUT_OF_SCOPE, "reason": reason, "cut_tokens": cut}
        row = load.decided(values)
        assert row["abstain"] == (row["reason"] in ABSTAINING)
        assert row["above_threshold"] == pytest.approx(score - 0.5)
        return row["reason"]

    assert decided(0.6, BELOW) == decided(0.6, "no promise") == ANSWERED
    assert decided(0.6, ANSWERED, cut=3) == CUT
    assert decided(0.5, ANSWERED) == BELOW
    assert decided(0.4, UNSTABLE) == UNSTABLE
    assert decided(0.9, OUT_OF_SCOPE) == OUT_OF_SCOPE


def test_the_others_are_bounded_by_the_labelled_rows_above():
    load = Workload(SAMPLE, 0.5, 1000, 200)
    rule = SAMPLE.at(0.5)
    assert load.describe() == (
        f"200 of 1,000 texts to review; of the others at most {rule.risk_bound:.1%} are wrong "
        f"(confidence 0.95, {rule.errors} of {rule.reported} labelled rows above the threshold)."
    )
    assert "nothing is known of the others" in Workload(SAMPLE, 2.0, 1000, 200).describe()


@pytest.mark.parametrize("reviews", [5, 40])
def test_a_file_leaves_as_many_to_a_person_as_asked_for(desk, small_blocks, reviews):
    source = desk.rows(3 * small_blocks + 5)
    plain = desk.score(source)
    usual = desk.output()
    asked = desk.job(source, "asked.jsonl", reviews=reviews)
    desk.interrupted(asked, after=20)
    summary = desk.run(desk.job(source, "asked.jsonl", reviews=reviews, resume=True))
    rows = desk.output("asked.jsonl")
    outside = sum(row["out_of_scope"] for row in rows)
    assert sum(row["abstain"] for row in rows) == summary.abstained == max(reviews, outside)
    assert summary.reasons == {name: sum(row["reason"] == name for row in rows) for name in summary.reasons}
    decisions = {"abstain", "reason", "above_threshold"}
    for row, other in zip(rows, usual, strict=True):
        assert {n: v for n, v in row.items() if n not in decisions} == {
            n: v for n, v in other.items() if n not in decisions
        }
    scores = np.array([row["logit_margin"] for row in rows])
    abstains = np.array([row["abstain"] or row["out_of_scope"] for row in rows])
    assert scores[abstains].min() <= scores[~abstains].min()
    assert summary.promise.startswith(f"{summary.abstained} of 53 texts to review; of the others at most ")
    assert summary.promised
    assert summary.shift.promised == desk.classifier.calibration_.sample.at(scores[abstains].max()).risk_bound
    assert json.loads(desk.bytes("asked.jsonl.summary.json"))["job"]["reviews"] == reviews
    assert "reviews" not in plain.job
    with pytest.raises(StoreError, match="exists"):
        desk.run(desk.job(source, "asked.jsonl", reviews=7))


@pytest.mark.parametrize("kind", ["labels", "entities"])
def test_it_is_for_one_answer_a_text(desk_of, kind):
    desk = desk_of(kind)
    with pytest.raises(ConfigurationError, match="of one class a text, and this one has none"):
        desk.score(desk.rows(5), reviews=2)
