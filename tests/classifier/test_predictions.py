"""Predictions as a value: reading, slicing, printing, tables."""

import numpy as np
import pytest

from reference import Texts
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.predictions import Prediction, Predictions


@pytest.fixture
def pred(calibrated: UncertaintyClassifier, made_texts: Texts) -> Predictions:
    return calibrated.predict([*made_texts(13), ("a1 <b>a2</b>", "a3")])


def test_one_row_agrees_with_the_columns(pred: Predictions) -> None:
    assert len(pred) == 14
    for row, one in enumerate(pred):
        assert isinstance(one, Prediction)
        assert one.text == pred.texts[row]
        assert one.label == pred.labels[row]
        assert one.probabilities == dict(zip(pred.classes, pred.probabilities[row], strict=True))
        assert one.abstain == pred.abstain[row]
        assert one.label_set == pred.label_sets[row]
        assert one.reason == pred.reasons[row]
        below = one.above_threshold is not None and one.above_threshold <= 0
        assert one.abstain == (below or one.out_of_scope)
        assert (one.reason in ("below the threshold", "passes disagree")) == (below and not one.out_of_scope)
        for name in ("confidence", "entropy", "expected_entropy", "mutual_information", "margin", "variance"):
            assert getattr(one, name) == getattr(pred, name)[row]
    assert pred[-1].text == ("a1 <b>a2</b>", "a3")
    with pytest.raises(IndexError):
        pred[14]


def test_as_an_array_it_is_its_labels(pred: Predictions) -> None:
    assert np.asarray(pred).tolist() == pred.labels.tolist()
    assert np.asarray(pred, dtype=object).dtype == object


def test_it_prints_what_matters_in_few_lines(pred: Predictions) -> None:
    lines = repr(pred).splitlines()
    assert lines[0].startswith("14 predictions of 3 classes, ")
    assert "%)" in lines[0]
    assert " ".join(lines[1].split()) == (
        "label abstain reason label set confidence entropy mutual information scope text"
    )
    assert lines[12] == "… and 4 more"
    assert len(lines) == 13
    assert "p_good" in repr(pred[0])
    assert "\n" not in repr(pred[0]).splitlines()[0]


def test_html_escapes_what_the_user_wrote(pred: Predictions) -> None:
    html = pred[-1:]._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_rows_cost_the_same_however_many_there_are(pred: Predictions) -> None:
    """A table of many rows must not compute all labels anew for each of them."""
    many = pred[np.zeros(200_000, dtype=np.int64)]
    rows = many.rows()
    assert next(rows)["label"] == many[199_999].label
    assert sum(1 for _, row in zip(range(2000), rows, strict=False) if row["abstain"] == many[0].abstain) == 2000
