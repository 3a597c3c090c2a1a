"""Which rows are picked, with which probabilities, the files that people label, and labels that are probably wrong."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from uatlite.errors import ConfigurationError, DataError, InputError
from uatlite.scoring.mislabelled import probably_mislabelled, suspects
from uatlite.scoring.pick import (
    DOUBTFUL,
    OUTSIDE,
    RANDOM,
    RANDOM_ROW,
    Candidate,
    current_scores,
    inclusion_of,
    pick,
    read_candidates,
    text_vectors,
)
from uatlite.text.rows import read_rows
from uatlite.text.write import write_rows
from uatlite.values import Choices


def scored(rows=200):
    """Rows of which 120 are answered, 20 out of scope and 60 doubtful, each with words of its own."""
    made = []
    for place in range(rows):
        outside, answered = place < 20, place >= 80
        text = f"w{place} v{place} u{place}"
        made.append(Candidate(f"r{place}", text, "good", place / rows, answered, outside, place / 1000))
    return made


def test_parts_probabilities_and_reasons():
    picked = pick(scored(), 40, seed=3)
    assert Counter(one.reason for one in picked) == {RANDOM: 30, DOUBTFUL: 5, OUTSIDE: 5}
    for one in picked:
        assert one.inclusion == (30 / 120 if one.reason == RANDOM else 1.0)
        assert one.row.answered == (one.reason == RANDOM)
        assert one.row.outside == (one.reason == OUTSIDE)
    assert len({one.row.id for one in picked}) == 40
    assert picked == pick(scored(), 40, seed=3) != pick(scored(), 40, seed=4)


def test_every_answer_is_drawn_as_often_as_its_probability_says():
    counts = Counter()
    for seed in range(600):
        counts.update(one.row.id for one in pick(scored(), 40, random_share=0.75, seed=seed) if one.reason == RANDOM)
    assert len(counts) == 120
    deviation = (np.array(list(counts.values())) - 150) / np.sqrt(600 * 0.25 * 0.75)
    assert np.abs(deviation).max() < 4.5


def test_helpful_rows_are_doubtful_spread_and_no_near_duplicates():
    rows = [replace(row, text="the same text again") if row.id in ("r20", "r21", "r22") else row for row in scored()]
    doubtful = [one.row for one in pick(rows, 40) if one.reason == DOUBTFUL]
    assert sum(row.text == "the same text again" for row in doubtful) == 1
    assert max(row.confidence for row in doubtful) <= sorted(row.confidence for row in rows[20:])[24]
    same = [replace(row, text="all the same words here") for row in scored()]
    assert Counter(one.reason for one in pick(same, 40)) == {RANDOM: 38, DOUBTFUL: 1, OUTSIDE: 1}


def test_few_rows_all_rows_and_no_decisions():
    everything = pick(scored(), 500)
    assert {one.inclusion for one in everything} == {1.0}
    plain = pick(scored(), 50, random_share=1.0, of="all")
    assert {(one.reason, one.inclusion) for one in plain} == {(RANDOM_ROW, 0.25)}
    undecided = [replace(row, answered=True, outside=False) for row in scored()]
    picked = pick(undecided, 40)
    assert Counter(one.reason for one in picked) == {RANDOM: 30, DOUBTFUL: 10}
    assert {one.inclusion for one in picked if one.reason == RANDOM} == {30 / 190}
    with pytest.raises(ConfigurationError, match="budget=0"):
        pick(scored(), 0)
    with pytest.raises(ConfigurationError, match="of='answer'"):
        pick(scored(), 5, of="answer")


def test_vectors_of_the_same_words_are_the_same():
    one, again, other, pair, question = text_vectors(
        ["a good film", "A good film!", "bad", ("a good", "film"), Choices("a", ("good", "film"))]
    )
    assert one @ again == pytest.approx(1.0)
    assert one @ other == 0.0
    assert one @ pair > 0.5
    assert one @ question > 0.3


FIELDS = ["id", "text", "label", "reason", "inclusion"]


def rows_of(path):
    return [dict(row.values) for row in read_rows(path)]


def test_files_for_people(tmp_path):
    for name in ("rows.jsonl", "rows.csv"):
        write_rows(tmp_path / name, (row.as_row() for row in pick(scored(), 8)))
    lines = rows_of(tmp_path / "rows.jsonl")
    assert list(lines[0]) == FIELDS  # who sees the prediction agrees with it too often
    assert list(pick(scored(), 8)[0].as_row(predicted=True)) == [*FIELDS[:3], "predicted", "confidence", *FIELDS[3:]]
    assert all(line["label"] == "" for line in lines)
    assert [row["id"] for row in rows_of(tmp_path / "rows.csv")] == [line["id"] for line in lines]


def test_scored_files_of_every_format_are_read(tmp_path):
    columns = {"id": "7", "text": "a film", "label": "good", "abstain": True, "confidence": 0.6, "logit_margin": 1.5}
    columns |= {"scope": 0.001, "out_of_scope": True}

    def written(name, row):
        write_rows(tmp_path / name, [row])
        return str(tmp_path / name)

    for name in ("a.jsonl", "b.csv"):
        read = read_candidates(written(name, columns), {})
        assert read == [Candidate("7", "a film", "good", 0.6, False, True, 0.001)]
    with pytest.raises(DataError, match=r"no column 'text'.*--keep-text"):
        read_candidates(written("c.jsonl", {"id": "7", "label": "good", "confidence": 0.6}), {})
    with pytest.raises(DataError, match="no column 'confidence'"):
        read_candidates(written("d.jsonl", {"text": "a", "label": "b"}), {})
    inside = written("e.jsonl", columns | {"out_of_scope": False})
    assert current_scores(inside, "logit-margin").tolist() == [1.5]
    with pytest.raises(DataError, match="no column 'entropy'"):
        current_scores(inside, "entropy")


def test_inclusion_probabilities_are_for_all_rows_or_for_none():
    assert inclusion_of([{}, {"inclusion": ""}]) is None
    found = inclusion_of([{"inclusion": "0.25"}, {"inclusion": 1}])
    assert found.tolist() == [0.25, 1.0]
    with pytest.raises(DataError, match="1 of 2 labelled rows have no inclusion"):
        inclusion_of([{"inclusion": 0.1}, {}])
    with pytest.raises(DataError, match="'often', where a number"):
        inclusion_of([{"inclusion": "often"}])


def test_rows_that_are_probably_mislabelled(tmp_path):
    path = tmp_path / "scored.jsonl"
    rows = [{"id": str(i), "input_label": "good" if i % 2 else "bad", "label": "good"} for i in range(40)]
    for row in rows:
        right = 0.9 if row["id"] != "7" else 0.02
        good = right if row["input_label"] == "good" else 1 - right
        row |= {"p_bad": 1 - good, "p_good": good}
    path.write_text("\n".join(map(json.dumps, rows)))
    (found,) = suspects(str(path), "input_label")
    assert (found["id"], found["input_label"], found["suggested"]) == ("7", "good", "bad")
    assert found["p_given"] == pytest.approx(0.02)
    with pytest.raises(DataError, match=r"no row with a column 'stars'.*--keep label"):
        suspects(str(path), "stars")
    path.write_text(json.dumps({"id": "1", "input_labels": ["a"], "labels": ["a"], "p_a": 0.9, "p_b": 0.1}))
    with pytest.raises(DataError, match="holds labels, and rows are compared with one label each"):
        suspects(str(path), "input_labels")


def flipped(rows, share, seed=0):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, rows)
    logits = rng.normal(0, 1, (rows, 3))
    logits[np.arange(rows), true] += 4
    given, wrong = true.copy(), rng.random(rows) < share
    given[wrong] = (true[wrong] + 1) % 3
    return softmax(logits, axis=1), given, wrong


def test_it_is_what_a_loop_over_rows_finds():
    probabilities, given, _ = flipped(200, 0.1)
    thresholds = [probabilities[given == c, c].mean() for c in range(3)]
    expected = []
    for place, row in enumerate(probabilities):
        reached = [c for c in range(3) if row[c] >= thresholds[c]]
        if reached and max(reached, key=lambda c: row[c]) != given[place]:
            expected.append(place)
    order, likely = probably_mislabelled(probabilities, given)
    assert sorted(order.tolist()) == expected
    given_p = probabilities[order, given[order]]
    assert (np.diff(given_p) >= 0).all()
    assert (likely[order] != given[order]).all()


def test_most_flipped_labels_are_found_and_few_others():
    probabilities, given, wrong = flipped(2000, 0.1)
    order, _ = probably_mislabelled(probabilities, given)
    assert wrong[order].mean() > 0.8
    assert wrong[order].sum() > 0.5 * wrong.sum()


def test_a_class_without_rows_is_never_suggested_and_sums_are_checked():
    _, likely = probably_mislabelled([[0.1, 0.2, 0.7], [0.6, 0.2, 0.2], [0.2, 0.7, 0.1]], [1, 0, 1])
    assert 2 not in likely
    with pytest.raises(InputError, match=r"sums to 0\.3"):
        probably_mislabelled([[0.1, 0.2], [0.5, 0.5]], [0, 1])
