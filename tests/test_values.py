"""Values: what a text consists of, and a fingerprint that notices every change that matters."""

import dataclasses
import subprocess
import sys

import pytest

from uatlite.values import Choices, Dataset, Example, Span, Words, strings

EXAMPLES = (Example("1", "good", 1), Example("2", ("a premise", "a hypothesis"), 0))


def dataset(**changes):
    values = {"name": "t", "split": "test", "labels": ("no", "yes"), "examples": EXAMPLES, "source": "made"}
    return Dataset(**values | changes)


@pytest.mark.parametrize(
    ("text", "parts"), [("one", ("one",)), (("a", "b"), ("a", "b")), (Choices("q", ("x", "y")), ("q", "x", "y"))]
)
def test_strings_are_all_the_strings_of_a_text(text, parts):
    assert strings(text) == parts


def test_values_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EXAMPLES[0].label = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset().name = "other"


def test_columns_of_a_dataset_are_in_the_order_of_its_examples():
    data = dataset()
    texts = ["good", ("a premise", "a hypothesis")]
    assert (len(data), data.ids, data.texts, data.gold) == (2, ["1", "2"], texts, [1, 0])


def test_fingerprint_is_the_same_for_the_same_rows_wherever_they_came_from():
    again = tuple(dataclasses.replace(example, meta={"line": 7}) for example in EXAMPLES)
    assert dataset(examples=again, source="elsewhere", name="u").fingerprint == dataset().fingerprint
    # pinned: a stored prediction is found again by it
    assert dataset().fingerprint[:16] == "e98c069bcf5004ad"


@pytest.mark.parametrize(
    "changed",
    [
        {"examples": EXAMPLES[::-1]},
        {"examples": EXAMPLES[:1]},
        {"labels": ("yes", "no")},
        {"examples": (dataclasses.replace(EXAMPLES[0], label=0), EXAMPLES[1])},
        {"examples": (dataclasses.replace(EXAMPLES[0], text="good "), EXAMPLES[1])},
        {"examples": (EXAMPLES[0], dataclasses.replace(EXAMPLES[1], text=("a premise a", "hypothesis")))},
        {"examples": (EXAMPLES[0], dataclasses.replace(EXAMPLES[1], text=Choices("a premise", ("a hypothesis",))))},
    ],
)
def test_fingerprint_notices(changed):
    assert dataset(**changed).fingerprint != dataset().fingerprint


def test_fingerprint_knows_every_kind_of_gold_and_the_cut_of_words():
    words, text = Words(("Ada", "Eve")), "Ada Eve"
    rows = [
        Example("1", text),
        Example("1", words),
        Example("1", words, entities=(Span(0, 3, "PER"),)),
        Example("1", words, entities=(Span(0, 7, "PER"),)),
        Example("1", Words(("Ada Eve",)), entities=(Span(0, 7, "PER"),)),
        *(Example("1", text, labels=labels) for labels in ((), (0,), (1,))),
    ]
    assert len({dataset(examples=(row,)).fingerprint for row in rows}) == len(rows)


def test_in_scope_drops_the_out_of_scope_rows_and_says_so():
    scoped = dataset(out_of_scope=1).in_scope()
    assert scoped.gold == [0]
    assert "in-scope" in scoped.source
    assert len(dataset().in_scope()) == 2


def test_importing_values_and_tasks_is_cheap():
    heavy = "{'torch', 'transformers', 'pyarrow', 'datasets', 'pandas', 'sklearn'}"
    code = f"import sys, uatlite.values, uatlite.text.tasks; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
