"""Perturbations change only the text, and the same way every time; the cue of a bucket is a whole word."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uatlite.errors import ConfigurationError
from uatlite.text.perturb import BUCKETS, PERTURBATIONS, buckets_of, negate, perturb, swap_characters
from uatlite.values import Choices, Dataset, Example, Span, Words

SENTENCE = "A thoughtful, provocative and entirely watchable film about 2 brothers in Naples."
TEXT = st.text(max_size=200)


def test_one_twentieth_of_the_characters_change_places_inside_their_words():
    swapped = swap_characters(SENTENCE, 0)
    changed = [i for i, (old, new) in enumerate(zip(SENTENCE, swapped, strict=True)) if old != new]
    assert len(changed) == 2 * 4  # round(0.05 · 81) = 4 swaps of two letters
    assert [Counter(word) for word in swapped.split()] == [Counter(word) for word in SENTENCE.split()]


@given(TEXT, st.integers(0, 3))
def test_swaps_keep_every_word_and_are_never_more_than_asked(text, seed):
    swapped = swap_characters(text, seed)
    assert swapped == swap_characters(text, seed)
    assert [Counter(word) for word in swapped.split(" ")] == [Counter(word) for word in text.split(" ")]
    changed = sum(old != new for old, new in zip(text, swapped, strict=True))
    assert changed % 2 == 0
    assert changed <= 2 * int(0.05 * len(text) + 0.5)
    kept = [(old, new) for old, new in zip(text, swapped, strict=True) if not old.isalpha()]
    assert all(old == new for old, new in kept)


def test_swaps_depend_on_the_seed_and_are_pinned():
    assert swap_characters(SENTENCE, 0) != swap_characters(SENTENCE, 1)
    assert (
        swap_characters(SENTENCE, 0)
        == "A thoughtflu, provocatiev and etnirely watchable iflm about 2 brothers in Naples."
    )
    assert swap_characters(SENTENCE, 0, rate=0.0) == SENTENCE
    with pytest.raises(ConfigurationError, match=r"rate=0.6 must lie in 0 to 0.5"):
        swap_characters(SENTENCE, 0, rate=0.6)


def test_both_texts_of_a_pair_are_swapped_and_no_option():
    first, second = swap_characters((SENTENCE, SENTENCE), 0)
    assert first == second == swap_characters(SENTENCE, 0)
    choices = swap_characters(Choices(SENTENCE, (SENTENCE, "b")), 0)
    assert choices == Choices(swap_characters(SENTENCE, 0), (SENTENCE, "b"))


@pytest.mark.parametrize(
    ("sentence", "denied"),
    [
        ("The film is good.", "It is not true that the film is good."),
        ("A man sleeps", "It is not true that a man sleeps"),
        ("It's over", "It is not true that it's over"),
        ("Don't go", "It is not true that don't go"),
        ("I like it", "It is not true that I like it"),
        ("I'm here", "It is not true that I'm here"),
        ("NASA launched it", "It is not true that NASA launched it"),
        ("IT is a film", "It is not true that IT is a film"),
        ("Tommy slept", "It is not true that Tommy slept"),
        ("Naples is big", "It is not true that Naples is big"),
        ("lower already", "It is not true that lower already"),
        ("3 men sleep", "It is not true that 3 men sleep"),
        ("  There is hope \n", "It is not true that there is hope"),
    ],
)
def test_negation_lowers_only_what_is_certainly_no_name(sentence, denied):
    assert negate(sentence) == denied


def test_negation_denies_the_hypothesis_or_the_question():
    assert negate(("The premise.", "The hypothesis.")) == ("The premise.", "It is not true that the hypothesis.")
    assert negate(Choices("The man is ill.", ("a", "b"))).question == "It is not true that the man is ill."


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_a_perturbed_data_set_keeps_ids_labels_and_meta_and_says_what_was_done(name):
    examples = (Example("1", SENTENCE, 1, {"genre": "film"}), Example("2", ("a", SENTENCE), 0))
    data = Dataset("made", "test", ("no", "yes"), examples, "here")
    changed = perturb(data, name, seed=3)
    assert (changed.ids, changed.gold, changed.labels) == (data.ids, data.gold, data.labels)
    assert changed.examples[0].meta == {"genre": "film"}
    assert changed.name == f"made+{name}"
    assert changed.source == f"here, perturbed: {name}, seed 3"
    assert changed.fingerprint != data.fingerprint


@pytest.mark.parametrize("text", [SENTENCE, Words(tuple(SENTENCE.split()))])
def test_entities_stay_in_their_places_and_what_would_move_them_is_refused(text):
    spans = tuple(Span(SENTENCE.index(word), SENTENCE.index(word) + len(word), "T") for word in ("watchable", "Naples"))
    data = Dataset("made", "test", ("T",), (Example("1", text, entities=spans),), "here")
    changed = perturb(data, "swap").examples[0]
    swapped = changed.text if isinstance(text, str) else changed.text.text
    assert (changed.entities, swapped) == (spans, swap_characters(SENTENCE))
    assert [Counter(swapped[s.start : s.end]) for s in spans] == [Counter("watchable"), Counter("Naples")]
    with pytest.raises(ConfigurationError, match=r"negation cannot perturb made: its entities .* Use swap"):
        perturb(data, "negation")


def test_an_unknown_perturbation_lists_those_there_are():
    with pytest.raises(ConfigurationError, match=r"perturbation='swop' is not one of: swap, negation.*'swap'"):
        perturb(Dataset("made", "test", ("a", "b"), (), ""), "swop")


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
