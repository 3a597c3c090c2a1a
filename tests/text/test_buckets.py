"""Buckets: a cue is a whole word, and only that."""

import pytest

from uatlite.text.perturb import BUCKETS, buckets_of
from uatlite.values import Choices


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("It is not bad", {"negation"}),
        ("I DON'T think so", {"negation"}),
        ("I don’t think so", {"negation"}),
        ("it does n't work", {"negation"}),
        ("He denies chest pain", {"negation"}),
        ("Nothing happened", {"negation"}),
        ("a notable knot in November", set()),
        ("the nose knows", set()),
        ("a 23-year-old", {"numeric"}),
        ("98.6°F", {"numeric"}),
        ("HbA1c of IL6", {"numeric"}),
        ("two dozen", {"numeric"}),
        ("someone is often alone", {"hedges"}),
        ("This might work, and probably will", {"hedges"}),
        ("mighty maybes", set()),
        ("acute hepatitis", {"biomedical"}),
        ("on lisinopril and atorvastatin", {"biomedical"}),
        ("an appendectomy", {"biomedical"}),
        ("the diagnosis of a dichotomy", set()),
        ("April in the semester", set()),
        ("", set()),
    ],
)
def test_cues(text, names):
    assert buckets_of(text) == names


def test_both_texts_of_a_pair_count_and_of_a_choice_the_question():
    assert buckets_of(("It may rain", "It does not")) == {"hedges", "negation"}
    assert buckets_of(Choices("Which?", ("never", "7"))) == set()


def test_every_bucket_that_applies_is_named():
    found = [buckets_of(text) for text in ("no", "plain", "not 7")]
    assert found == [{"negation"}, set(), {"negation", "numeric"}]
    assert list(BUCKETS) == ["negation", "numeric", "biomedical", "hedges"]
