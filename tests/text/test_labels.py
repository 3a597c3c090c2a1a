"""Labels: names decide. A permutation is found and reported; a doubt is an error that shows both lists."""

import numpy as np
import pytest

from uatlite.errors import DataError
from uatlite.text.labels import SYNONYMS, align_labels, align_task, fold
from uatlite.text.schema import catalogue

NLI = ("entailment", "neutral", "contradiction")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Not_Entailment", "non-entailment"),
        ("POS", "positive"),
        (" Out of Scope", "oos"),
        ("LABEL_3", "3"),
        ("book flight", "book_flight"),
    ],
)
def test_names_that_mean_the_same_fold_to_the_same(one, other):
    assert fold(one) == fold(other)


def test_synonyms_are_folded_themselves_and_lead_to_no_other_synonym():
    for name, meaning in SYNONYMS.items():
        assert fold(meaning) == meaning
        assert name not in SYNONYMS.values()


PLACEHOLDERS, SIGNS = {0: "LABEL_0", 1: "LABEL_1"}, ("negative", "positive")


@pytest.mark.parametrize(
    ("labels", "id2label", "named", "order"),
    [
        (NLI, {0: "CONTRADICTION", 1: "Entailment", 2: "NEUTRAL"}, None, (1, 2, 0)),
        (SIGNS, {"1": "NEGATIVE", "0": "POSITIVE"}, None, (1, 0)),  # keys as JSON leaves them
        (("0", "1"), PLACEHOLDERS, None, (0, 1)),
        (("1", "0"), PLACEHOLDERS, None, (1, 0)),
        (SIGNS, PLACEHOLDERS, ("positive", "negative"), (1, 0)),
    ],
)
def test_a_permutation_is_found_by_name(labels, id2label, named, order):
    assert align_labels(labels, id2label, label_order=named) == order


@pytest.mark.parametrize(
    ("labels", "id2label", "named", "said"),
    [
        *(
            (NLI, dict(enumerate(names)), None, (f"(task: {', '.join(NLI)}; model: {', '.join(names)})", "label-order"))
            for names in (NLI[:2], (*NLI[:2], "other"), (*NLI, "unknown"), ("entailment", "Entailment", "neutral"))
        ),
        (SIGNS, PLACEHOLDERS, None, ("placeholders", "--label-order negative,positive")),
        (SIGNS, PLACEHOLDERS, ("positive",), ("names 1 of 2 classes",)),
        (SIGNS, PLACEHOLDERS, ("positive", "neutral"), ("model: positive, neutral",)),
        (("a", "b"), {1: "a", 2: "b"}, None, ("they must be 0 to 1",)),
    ],
)
def test_anything_else_is_an_error_with_both_lists(labels, id2label, named, said):
    with pytest.raises(DataError) as error:
        align_labels(labels, id2label, label_order=named)
    assert all(words in str(error.value) for words in said)


def test_a_reordering_is_reported_and_applied():
    alignment = align_task(catalogue()["mnli"], {0: "contradiction", 1: "entailment", 2: "neutral"})
    assert "reordered by name: entailment = column 1" in alignment.note
    assert alignment.apply(np.array([[0.1, 0.7, 0.2]])).tolist() == [[0.7, 0.2, 0.1]]
    assert align_task(catalogue()["mnli"], dict(enumerate(NLI))).note == "labels in the model's order"


def test_hans_sums_the_probabilities_of_three_way_models():
    alignment = align_task(catalogue()["hans"], {0: "contradiction", 1: "neutral", 2: "entailment"})
    probabilities = np.array([[[0.3, 0.2, 0.5], [0.1, 0.8, 0.1]]])  # (passes, rows, classes)
    collapsed = alignment.apply(probabilities)
    assert collapsed.shape == (1, 2, 2)
    np.testing.assert_allclose(collapsed, [[[0.5, 0.5], [0.1, 0.9]]])
    assert "contradiction → non-entailment" in alignment.note
    assert alignment.labels == ("entailment", "non-entailment")


def test_hans_takes_a_two_way_model_as_it_is():
    alignment = align_task(catalogue()["hans"], {0: "not_entailment", 1: "entailment"})
    assert alignment.apply(np.array([[0.2, 0.8]])).tolist() == [[0.8, 0.2]]


@pytest.mark.parametrize("known", [True, False])
def test_a_model_need_not_know_the_out_of_scope_class(known):
    task = catalogue()["clinc150"]
    labels = task.labels if known else tuple(label for label in task.labels if label != task.out_of_scope)
    alignment = align_task(task, dict(enumerate(reversed(labels))))
    assert len(alignment.labels) == (151 if known else 150)
    uniform = np.full((2, len(labels)), 1 / len(labels))
    assert alignment.apply(uniform).shape == (2, len(labels))


def test_options_of_a_question_have_no_names_to_compare():
    alignment = align_task(catalogue()["medqa"], {0: "LABEL_0", 1: "LABEL_1"})
    probabilities = np.array([[0.1, 0.2, 0.3, 0.4]])
    assert alignment.apply(probabilities).tolist() == probabilities.tolist()
