"""The rows to review first: the order against a slow one, and files that `predict` might have written."""

import json

import numpy as np
import pytest

from uatlite.classifier.display import ABSTAINING
from uatlite.errors import ConfigurationError, DataError
from uatlite.scoring.review import review_order, review_rows
from uatlite.text.rows import read_rows
from uatlite.text.write import write_rows

NAN = float("nan")


def slow_order(reasons, above, scope):
    """As the module says it, row by row. A row is out of scope beyond chance by Benjamini–Hochberg at 0.1."""
    rows, ranked = len(reasons), sorted(scope)
    most = max((p for k, p in enumerate(ranked, start=1) if p <= 0.1 * k / rows), default=-1.0)

    def key(place):
        if reasons[place] == "out of scope" and scope[place] <= most:
            return (0, scope[place], above[place])
        group = 1 if reasons[place] in ABSTAINING else 2 if reasons[place] == "cut" else 3
        return (group, above[place])

    return sorted(range(rows), key=key)


@pytest.mark.parametrize("strange", [0, 3, 30])
def test_the_order_is_the_slow_one(strange):
    generator = np.random.default_rng(strange)
    above, scope = generator.normal(size=80), generator.uniform(0.011, 1, size=80)
    scope[:strange] = generator.uniform(0.001, 0.01, size=strange)
    reasons = [
        "out of scope" if p <= 0.02 else "answered" if a > 0 else "below the threshold"
        for a, p in zip(above, scope, strict=True)
    ]
    reasons[70] = "cut" if reasons[70] == "answered" else reasons[70]
    expected = slow_order(reasons, above.tolist(), scope.tolist())
    assert review_order(reasons, above, np.full(80, 0.5), scope).tolist() == expected
    assert (reasons[expected[0]] == "out of scope") == (strange == 30)  # a few are what chance gives


def test_without_a_threshold_the_confidence_decides():
    reasons, confidence = ["no rule"] * 4, np.array([0.9, 0.5, 0.7, 0.5])
    assert review_order(reasons, np.full(4, NAN), confidence, None).tolist() == [1, 3, 2, 0]
    assert review_order([], np.zeros(0), np.zeros(0), None).tolist() == []


def scored_row(place, **values):
    row = {"id": f"r{place}", "body": f"text {place}", "input_label": "x", "label": "good", "abstain": False}
    more = {"reason": "answered", "above_threshold": 1.0, "confidence": 0.9, "scope": 0.5, "cut_tokens": 0}
    return {**row, **more, **values}


ROWS = [
    scored_row(0),
    scored_row(1, reason="below the threshold", above_threshold=-0.25, abstain=True, confidence=0.6),
    scored_row(2, reason="unstable under dropout", above_threshold=-1.5, abstain=True, confidence=0.51),
    scored_row(3, reason="cut", cut_tokens=40),
    scored_row(4, above_threshold=0.5),
]


def written(path, rows):
    write_rows(path, rows)
    return path


@pytest.mark.parametrize("name", ["scored.csv", "scored.jsonl.gz", "scored.parquet"])
def test_rows_to_review_carry_text_and_reason(tmp_path, name):
    rows = review_rows(written(tmp_path / name, ROWS), 4)
    assert [row["id"] for row in rows] == ["r2", "r1", "r3", "r4"]
    assert rows[0] == {
        "id": "r2",
        "body": "text 2",
        "input_label": "x",
        "label": "good",
        "confidence": 0.51,
        "reason": "unstable under dropout",
        "why": "unstable under dropout, 1.5 below the threshold",
    }
    assert [row["why"] for row in rows[1:3]] == ["0.25 below the threshold", "40 tokens were cut off"]
    write_rows(tmp_path / "review.csv", rows)
    again = [row.values["body"] for row in read_rows(tmp_path / "review.csv")]
    assert again == ["text 2", "text 1", "text 3", "text 4"]


def test_files_that_cannot_be_reviewed_say_why(tmp_path):
    (tmp_path / "plain.csv").write_text("id,text\n1,a\n")
    with pytest.raises(DataError, match="has no column 'label', so it is not what 'uatlite predict' writes"):
        review_rows(tmp_path / "plain.csv", 5)
    bare = [{name: value for name, value in row.items() if name not in ("body", "input_label")} for row in ROWS]
    with pytest.raises(DataError, match=r"holds no texts to look at; .*--keep-text"):
        review_rows(written(tmp_path / "bare.jsonl", bare), 5)
    kept = written(tmp_path / "kept.jsonl", ROWS)
    (tmp_path / "kept.jsonl.summary.json").write_text(json.dumps({"job": {"columns": {"text": "other"}}}))
    with pytest.raises(DataError, match="holds no texts"):  # columns were kept, but not that of the text
        review_rows(kept, 5)
    (tmp_path / "kept.jsonl.summary.json").write_text(json.dumps({"job": {"columns": {"text": "label"}}}))
    assert len(review_rows(kept, 5)) == 5  # the text is in input_label
    with pytest.raises(ConfigurationError, match="0 rows to review"):
        review_rows(kept, 0)
