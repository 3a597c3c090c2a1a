"""Entities and label sets from rows: what is read, and what is rejected with which reason."""

import random
from typing import Any

import pytest

from uatlite.errors import InputError
from uatlite.text.examples import example_of
from uatlite.text.gold import spans_of_tags, tags_for, tags_of_spans, types_of
from uatlite.text.schema import Layout
from uatlite.values import Dataset, Example, Span, Words

TAGS = Layout(text="tokens", label="tags", gold="tags")
ENTITIES = Layout(label="entities", gold="entities")
LABELS = Layout(label="labels", gold="labels")
TYPES = ("LOC", "PER")


def test_words_know_their_characters() -> None:
    words = Words(("Ada", "Lovelace", ",", "London"))
    assert words.text == "Ada Lovelace , London"
    assert [words.text[start:end] for start, end in words.spans] == list(words.tokens)


def test_tags_become_spans_in_the_joined_words() -> None:
    row = {
        "tokens": ["Ada", "Lovelace", "met", "Bob", "Eve", "."],
        "tags": ["B-PER", "I-PER", "O", "B-PER", "B-per", "O"],
    }
    example = example_of(row, TAGS, TYPES)
    assert example.text == Words(("Ada", "Lovelace", "met", "Bob", "Eve", "."))
    assert example.entities == (Span(0, 12, "PER"), Span(17, 20, "PER"), Span(21, 24, "PER"))
    assert (example.label, example.labels) == (None, None)
    assert example_of(row, TAGS, None).entities is None


def test_a_text_with_entities_keeps_its_characters() -> None:
    row = {
        "text": "  Ada of London ",
        "entities": [{"start": 9, "end": 15, "label": "loc"}, {"start": 2, "end": 5, "label": "PER"}],
    }
    example = example_of(row, ENTITIES, TYPES)
    assert example.text == "  Ada of London "
    assert example.entities == (Span(2, 5, "PER"), Span(9, 15, "LOC"))
    whole = {"text": ["Ada", "of", "London"], "entities": '[{"start": 7, "end": 13, "label": "LOC"}]'}
    assert example_of(whole, ENTITIES, TYPES).entities == (Span(7, 13, "LOC"),)
    assert example_of({"text": "nobody", "entities": []}, ENTITIES, TYPES).entities == ()


def test_tags_and_spans_are_one_another() -> None:
    generator = random.Random(0)
    for _ in range(200):
        words = Words(tuple("x" * generator.randint(1, 4) for _ in range(generator.randint(1, 12))))
        tags, before = [], "O"
        for _ in words.tokens:
            choices = [tag for tag in tags_for(TYPES) if tag[0] != "I" or tag[2:] == before[2:]]
            tags.append(before := generator.choice(choices))
        assert tags_of_spans(words.spans, spans_of_tags(words, tags)) == tags
    assert tags_for(TYPES) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert types_of(["O", "I-PER", "B-LOC", "B-PER"]) == ("PER", "LOC")


def test_an_at_sign_and_its_name_are_one_entity_where_the_corpus_cuts_them() -> None:
    words, tags = Words(("@", "ada", "@", "bob", "Eve")), ["B-PER", "B-PER", "O", "B-PER", "B-PER"]
    assert [words.text[s:e] for s, e, _ in spans_of_tags(words, tags, handles=True)] == ["@ ada", "bob", "Eve"]
    assert len(spans_of_tags(words, tags)) == 4
    other = spans_of_tags(words, ["B-PER", "B-LOC", "O", "O", "O"], handles=True)
    assert [words.text[s:e] for s, e, _ in other] == ["@", "ada"]


def test_a_word_belongs_to_the_first_entity_that_it_overlaps() -> None:
    spans = [Span(3, 7, "LOC"), Span(7, 9, "PER"), Span(10, 12, "PER")]
    assert tags_of_spans([(0, 2), (2, 5), (5, 8), (8, 9), (9, 10), (10, 12)], spans) == [
        "O", "B-LOC", "I-LOC", "B-PER", "O", "B-PER",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "tags", "reason"),
    [
        (["Ada"], ["O", "O"], "2 tags for 1 words"),
        (["Ada", ""], ["O", "O"], "word 2 of 2 in column 'tokens' is empty"),
        (["Ada", " \n"], ["O", "O"], "word 2 of 2 in column 'tokens' is empty"),
        ([], [], "no words in column 'tokens'"),
        (None, ["O"], "column 'tokens' holds nothing, not a list"),
        (["Ada", 3], ["O", "O"], "column 'tokens' holds a list with a int in it (3), not strings alone"),
        (["Ada"], [1], "column 'tags' holds a list with a int in it (1), not strings alone"),
        (["Ada"], None, "column 'tags' holds nothing, not a list"),
        (["of", "Ada"], ["O", "I-PER"], "tag 2 of 'Ada' is 'I-PER' after 'O'; in IOB2 an entity begins with B-PER"),
        (["Rome", "Ada"], ["B-LOC", "I-PER"], "tag 2 of 'Ada' is 'I-PER' after 'B-LOC'; in IOB2 an entity begins with"),
        (["Ada"], ["S-PER"], "tag 1 of 'Ada' is 'S-PER'; allowed are O, B-type and I-type (IOB2)"),
        (["Ada"], ["B-"], "tag 1 of 'Ada' is 'B-'; allowed are O, B-type and I-type (IOB2)"),
        (["Ada"], ["B-ship"], "unknown label 'ship' in column 'tags'"),
        (["a\ud800"], ["O"], "column 'tokens' holds half a surrogate pair, which is not text"),
    ],
)
def test_words_and_tags_that_do_not_fit(tokens: object, tags: object, reason: str) -> None:
    with pytest.raises(InputError) as error:
        example_of({"tokens": tokens, "tags": tags}, TAGS, TYPES)
    assert str(error.value).startswith(reason)


def entity(start: object, end: object, label: object = "PER") -> dict[str, Any]:
    return {"start": start, "end": end, "label": label}


@pytest.mark.parametrize(
    ("entities", "reason"),
    [
        ([entity(0, 14)], "the entity 0–14 in column 'entities' lies outside its text of 13 characters"),
        ([entity(-1, 3)], "the entity -1–3 in column 'entities' lies outside its text of 13 characters"),
        ([entity(3, 3)], "the entity 3–3 in column 'entities' lies outside"),
        ([entity(3, 4)], "the entity 3–4 in column 'entities' covers only space"),
        ([entity(0, 6), entity(4, 13, "LOC")], "entities overlap in column 'entities': PER 0–6 and LOC 4–13"),
        ([entity(0, 3), entity(0, 3)], "entities overlap"),
        ([entity("0", 3)], "an entity in column 'entities' has start='0' and end=3; they are whole numbers"),
        ([entity(True, 3)], "an entity in column 'entities' has start=True and end=3; they are whole numbers"),
        ([entity(0, 3, "")], "the entity 0–3 in column 'entities' has no label"),
        ([entity(0, 3, "ship")], "unknown label 'ship' in column 'entities'"),
        ([{"start": 0, "end": 3}], "an entity in column 'entities' is {'start': 0, 'end': 3}; it needs start, end and"),
        (["Ada"], "an entity in column 'entities' is 'Ada'; it needs start, end and label"),
        ("Ada", "column 'entities' is not a list in JSON"),
        (None, "column 'entities' holds nothing, not a list of entities"),
    ],
)
def test_entities_that_do_not_fit(entities: object, reason: str) -> None:
    with pytest.raises(InputError) as error:
        example_of({"text": "Ada of London", "entities": entities}, ENTITIES, TYPES)
    assert str(error.value).startswith(reason)


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (["joy", "Anger", "joy"], (0, 1)),
        ([], ()),
        ("", ()),
        ("joy; anger", (0, 1)),
        ("joy,", (1,)),
        ('["joy"]', (1,)),
        ("1", (1,)),
        ([0, 1], (0, 1)),
    ],
)
def test_label_sets(value: object, labels: tuple[int, ...]) -> None:
    layout = Layout(label="labels", gold="labels", codes=("anger", "joy"))
    assert example_of({"text": "oh", "labels": value}, layout, ("anger", "joy")).labels == labels


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (["grief"], "unknown label 'grief' in column 'labels'"),
        (None, "no list of labels in column 'labels'; an empty list means that no label applies"),
        (3, "column 'labels' holds a int, not a list of labels"),
        (["joy", None], "column 'labels' holds a list with None in it, which is not the name of a label"),
        (["joy", ""], "column 'labels' holds a list with '' in it"),
        ("[joy", "column 'labels' is not a list in JSON"),
    ],
)
def test_label_sets_that_do_not_fit(value: object, reason: str) -> None:
    with pytest.raises(InputError) as error:
        example_of({"text": "oh", "labels": value}, LABELS, ("anger", "joy"))
    assert str(error.value).startswith(reason)


def test_the_fingerprint_knows_the_gold_and_the_cut_of_words() -> None:
    def fingerprint(**example: Any) -> str:
        return Dataset("d", "test", TYPES, (Example("1", **example),), "here").fingerprint

    words, text = Words(("Ada", "Eve")), "Ada Eve"
    several: list[dict[str, Any]] = [
        {"text": text},
        {"text": words},
        {"text": words, "entities": (Span(0, 3, "PER"),)},
        {"text": words, "entities": (Span(0, 7, "PER"),)},
        {"text": Words(("Ada Eve",)), "entities": (Span(0, 7, "PER"),)},
        {"text": text, "labels": ()},
        {"text": text, "labels": (0,)},
        {"text": text, "labels": (1,)},
    ]
    assert len({fingerprint(**one) for one in several}) == len(several)
