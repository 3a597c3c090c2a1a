"""From a row to an example: what is text, what is gold of each kind, and what is said of a row that has neither."""

import json
import random

import pytest

from uatlite.errors import DataError, InputError
from uatlite.text.examples import content_key, example_of, example_or_reject, require_columns
from uatlite.text.gold import spans_of_tags, tags_for, tags_of_spans
from uatlite.text.rows import Reject, Row, read_rows
from uatlite.text.schema import TAGS, Layout
from uatlite.values import Choices, Example, Span, Words

ENTITIES, LABELS = Layout(label="entities", gold="entities"), Layout(label="labels", gold="labels")
TYPES, CLASSES, EMOTIONS = ("LOC", "PER"), ("negative", "positive"), ("anger", "joy")
CODED = Layout(label="labels", gold="labels", codes=EMOTIONS)


def jsonl(path, *rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("values", "layout", "text"),
    [
        ({"text": " one \n"}, Layout(), "one"),
        ({"a": "p", "b": "h"}, Layout("a", "b"), ("p", "h")),
        ({"data": {"Question": "q"}}, Layout("data.Question"), "q"),
        ({"data.Question": "flat"}, Layout("data.Question"), "flat"),
        ({"text": "q", "context": ["one.", "two."]}, Layout(pair="context"), ("q", "one. two.")),
        ({"text": "a<br />b"}, Layout(replace=(("<br />", "\n"),)), "a\nb"),
        ({"text": "q", "o": {"B": "y", "A": "x"}}, Layout(options="o"), Choices("q", ("x", "y"))),
        ({"text": "q", "o": {"A": "x", "B": "y", "C": None}}, Layout(options="o"), Choices("q", ("x", "y"))),
        ({"text": "q", "o": '["x", "y"]'}, Layout(options="o"), Choices("q", ("x", "y"))),
    ],
)
def test_texts(values, layout, text):
    assert example_of(values, layout, None).text == text


GOLD = [
    *(({"text": "one", "label": value}, layout, CLASSES, label) for value, layout, label in [
        ("Positive", Layout(), 1),
        ("neg", Layout(), 0),
        (1, Layout(codes=("negative", "positive")), 1),
        ("0", Layout(codes=("positive", "negative")), 1),  # the codes decide, not the position among the labels
        (1.0, Layout(codes=("negative", "positive")), 1),
        (["an answer"], Layout(presence=("positive", "negative")), 1),
        ([], Layout(presence=("positive", "negative")), 0),
    ]),
    *(({"text": "one", "label": value}, Layout(), ("false", "true"), label) for value, label in [
        (True, 1), (False, 0), ("TRUE", 1),
    ]),
    *(({"text": "oh", "labels": value}, CODED, EMOTIONS, labels) for value, labels in [
        (["joy", "Anger", "joy"], (0, 1)),
        ([], ()),
        ("", ()),
        ("joy; anger", (0, 1)),
        ("joy,", (1,)),
        ('["joy"]', (1,)),
        ("1", (1,)),
        ([0, 1], (0, 1)),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("values", "layout", "labels", "gold"), GOLD)
def test_gold(values, layout, labels, gold):
    example = example_of(values, layout, labels)
    assert (example.label if layout.gold == "class" else example.labels) == gold


def entity(start, end, label="PER"):
    return {"start": start, "end": end, "label": label}


REFUSED = [
    *((values, layout, None, reason) for values, layout, reason in [
        ({}, Layout(), "no text in column 'text'"),
        ({"text": None}, Layout(), "no text in column 'text'"),
        ({"text": "  \n"}, Layout(), "no text in column 'text'"),
        ({"text": 7}, Layout(), "column 'text' holds 7, which is no text"),
        ({"text": float("nan")}, Layout(), "no text in column 'text': it holds nan, a missing number"),
        ({"text": ["a", 1]}, Layout(), "column 'text' holds ['a', 1], which is no text"),
        ({"text": "\ud800"}, Layout(), "column 'text' holds half a surrogate pair"),
        ({"text": "q", "pair": ""}, Layout(pair="pair"), "no text in column 'pair'"),
        ({"text": "q", "o": ["x"]}, Layout(options="o"), "column 'o' does not hold two or more options"),
        ({"text": "q", "o": "x or y"}, Layout(options="o"), "column 'o' is not a list or an object in JSON"),
        ({"text": "q", "o": ["x", 3]}, Layout(options="o"), "an option in column 'o' holds 3, which is no text"),
    ]),
    *(({"text": "one", "label": value}, Layout(), CLASSES, reason) for value, reason in [
        ("neutral", f"unknown label 'neutral' in column 'label'; allowed are {', '.join(CLASSES)}"),
        (1, "unknown label '1'"),
        (None, "no label"),
        ("", "no label"),
        (0.5, "the label is a float (0.5)"),
        (["a"], "the label is a list"),
    ]),
    ({"text": "one", "label": 2}, Layout(codes=CLASSES), CLASSES, "label 2 in column 'label', where there are 0 to 1"),
    *(({"tokens": tokens, "tags": tags}, TAGS, TYPES, reason) for tokens, tags, reason in [
        (["Ada"], ["O", "O"], "2 tags for 1 word"),
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
    ]),
    *(({"text": "Ada of London", "entities": entities}, ENTITIES, TYPES, reason) for entities, reason in [
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
    ]),
    *(({"text": "oh", "labels": value}, LABELS, EMOTIONS, reason) for value, reason in [
        (["grief"], "unknown label 'grief' in column 'labels'"),
        (None, "no list of labels in column 'labels'; an empty list means that no label applies"),
        (3, "column 'labels' holds a int, not a list of labels"),
        (["joy", None], "column 'labels' holds a list with None in it, which is not the name of a label"),
        (["joy", ""], "column 'labels' holds a list with '' in it"),
        ("[joy", "column 'labels' is not a list in JSON"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("values", "layout", "labels", "reason"), REFUSED)
def test_what_is_said_of_a_row_without_text_or_gold(values, layout, labels, reason):
    with pytest.raises(InputError) as error:
        example_of(values, layout, labels)
    assert str(error.value).startswith(reason)


def test_words_know_their_characters():
    words = Words(("Ada", "Lovelace", ",", "London"))
    assert words.text == "Ada Lovelace , London"
    assert [words.text[start:end] for start, end in words.spans] == list(words.tokens)


def test_tags_become_spans_in_the_joined_words():
    row = {
        "tokens": ["Ada", "Lovelace", "met", "Bob", "Eve", "."],
        "tags": ["B-PER", "I-PER", "O", "B-PER", "B-per", "O"],
    }
    example = example_of(row, TAGS, TYPES)
    assert example.text == Words(("Ada", "Lovelace", "met", "Bob", "Eve", "."))
    assert example.entities == (Span(0, 12, "PER"), Span(17, 20, "PER"), Span(21, 24, "PER"))
    assert (example.label, example.labels) == (None, None)
    assert example_of(row, TAGS, None).entities is None


def test_a_text_with_entities_keeps_its_characters():
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


def test_tags_and_spans_are_one_another():
    generator = random.Random(0)
    for _ in range(200):
        words = Words(tuple("x" * generator.randint(1, 4) for _ in range(generator.randint(1, 12))))
        tags, before = [], "O"
        for _ in words.tokens:
            choices = [tag for tag in tags_for(TYPES) if tag[0] != "I" or tag[2:] == before[2:]]
            tags.append(before := generator.choice(choices))
        assert tags_of_spans(words.spans, spans_of_tags(words, tags)) == tags
    assert tags_for(TYPES) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def test_an_at_sign_and_its_name_are_one_entity_where_the_corpus_cuts_them():
    words, tags = Words(("@", "ada", "@", "bob", "Eve")), ["B-PER", "B-PER", "O", "B-PER", "B-PER"]
    assert [words.text[s:e] for s, e, _ in spans_of_tags(words, tags, handles=True)] == ["@ ada", "bob", "Eve"]
    assert len(spans_of_tags(words, tags)) == 4
    other = spans_of_tags(words, ["B-PER", "B-LOC", "O", "O", "O"], handles=True)
    assert [words.text[s:e] for s, e, _ in other] == ["@", "ada"]


def test_a_word_belongs_to_the_first_entity_that_it_overlaps():
    spans = [Span(3, 7, "LOC"), Span(7, 9, "PER"), Span(10, 12, "PER")]
    assert tags_of_spans([(0, 2), (2, 5), (5, 8), (8, 9), (9, 10), (10, 12)], spans) == [
        "O", "B-LOC", "I-LOC", "B-PER", "O", "B-PER",
    ]  # fmt: skip


def test_labels_that_are_one_name_are_an_error():
    with pytest.raises(DataError, match="Two labels count as the same name: pos, Positive"):
        example_of({"text": "one", "label": "neg"}, Layout(), ("pos", "Positive"))


def test_a_stream_yields_examples_and_rejects_in_order(tmp_path):
    file = jsonl(
        tmp_path / "in.jsonl",
        {"id": 7, "text": "one", "label": "yes", "lang": "en"},
        {"text": 3, "label": "yes"},
        "{broken\n",
        {"text": "two", "label": "perhaps"},
        {"text": "three", "label": "no"},
    )
    rows = require_columns(read_rows(file), Layout(meta=("lang",)))
    got = [
        example_or_reject(row, Layout(meta=("lang",)), ("no", "yes"), unnamed=f"{row.file}:{row.line}") for row in rows
    ]
    assert got[0] == Example("7", "one", 1, {"lang": "en"})
    assert got[4] == Example("in.jsonl:5", "three", 0)
    assert [(row.line, row.reason.split(":")[0]) for row in got[1:4]] == [
        (2, "column 'text' holds 3, which is no text"),
        (3, "broken JSON"),
        (4, "unknown label 'perhaps' in column 'label'; allowed are no, yes"),
    ]
    assert got[3].as_row()["raw"].startswith("{'text': 'two'")


def test_without_labels_the_label_column_is_not_asked_for():
    [row] = require_columns([Row("f", 1, {"text": "one"})], Layout(), with_label=False)
    assert example_or_reject(row, Layout(), None).label is None


def test_a_missing_column_lists_those_there_are_and_the_nearest():
    rows = [Row("a.csv", 2, {"body": "fine", "stars": "5"})]
    with pytest.raises(DataError, match=r"no column 'bodi'; the columns are: body, stars. Did you mean 'body'\?"):
        require_columns(rows, Layout("bodi"))
    with pytest.raises(DataError, match="no column 'label'; the columns are: body, stars"):
        require_columns(rows, Layout("body"))


def test_a_column_is_missing_only_when_no_row_of_the_first_has_it():
    late = [Row("f", i, {"other": 1}) for i in range(1, 50)] + [Row("f", 50, {"text": "x"})]
    assert list(require_columns(late, Layout(label=None))) == late
    with pytest.raises(DataError, match="no column 'text'; the columns are: other"):
        require_columns((Row("f", i, {"other": 1}) for i in range(1, 1000)), Layout(label=None))
    nothing_readable = [Reject("f", 1, "broken", "")]
    assert list(require_columns(nothing_readable, Layout())) == nothing_readable


def test_content_key_is_of_the_words_and_their_places():
    assert content_key("a  b\n") == content_key("a b") != content_key("b a")
    assert content_key(("a", "b")) != content_key("a b") != content_key(("b", "a"))
