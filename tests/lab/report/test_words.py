"""Texts word by word: shades, the file of explanations, and words from a tiny model."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.errors import ConfigurationError, DataError, ModelError, StoreError
from uatlite.lab.report import evaluation_page as words
from uatlite.lab.report.abstention import abstain
from uatlite.lab.report.evaluation import Evaluation
from uatlite.lab.report.evaluation_page import explain, read_explanations
from uatlite.lab.report.explanation import Shading
from uatlite.model.load import Checkpoint
from uatlite.values import Choices, Example, Word, WordAttribution

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##bear", "##able", "film", "so", "long"]


@pytest.fixture
def checkpoint(tiny: Callable[..., PreTrainedModel]) -> Checkpoint:
    tokenizer = BertTokenizer(vocab={word: place for place, word in enumerate(WORDS)})
    return Checkpoint("tiny", tiny("bert", id2label={0: "bad", 1: "fair", 2: "good"}, rate=0.1), tokenizer)


def test_pieces_are_words_and_special_tokens_are_left_out(checkpoint: Checkpoint) -> None:
    examples = [Example("one", "unbearable film", 2), Example("pair", ("film", "so long"), None)]
    single, pair = explain(checkpoint, examples, ("bad", "fair", "good"))
    assert [word.word.text for word in single.words] == ["unbearable", "film"]
    assert [word.word.text for word in pair.words] == ["film", "so", "long"]
    assert (single.gold, pair.gold) == ("good", None)
    assert single.predicted in ("bad", "fair", "good")
    assert all(word.uncertainty > 0 and word.masked_confidence is not None for word in single.words)
    assert 0 < sum(word.share for word in single.words) < 1  # the special tokens have the rest


def test_questions_with_choices_are_left_out(checkpoint: Checkpoint) -> None:
    assert explain(checkpoint, [Example("x", Choices("so", ("film", "long")), 0)], ("A", "B")) == ()


def attributed(uncertainty: float, share: float, masked: float | None) -> WordAttribution:
    return WordAttribution(Word("w", (1,), False), uncertainty, share, share, masked)


WORDS_OF_A_TEXT = (attributed(0.1, 0.5, 0.8), attributed(0.16, 0.2, 0.2), attributed(0.2, 0.0, 0.95))


@pytest.mark.parametrize(
    ("by", "shades", "styles"),
    [
        ("share", [5, 2, 0], ["s5", "s2", "s0"]),
        ("masking", [0, 5, -1], ["s0", "s5", "c1"]),  # from 0.8 with every word: the second word carries it
        ("uncertainty", [0, 3, 5], ["s0", "s3", "s5"]),
    ],
)
def test_words_are_shaded_by_what_is_asked(by: str, shades: list[int], styles: list[str]) -> None:
    shading = Shading(WORDS_OF_A_TEXT, 0.8, by)
    assert [shading.shade(word) for word in WORDS_OF_A_TEXT] == shades
    assert [shading.style(word) for word in WORDS_OF_A_TEXT] == styles


def test_small_shares_stay_pale() -> None:
    words = (attributed(0.1, 0.02, 0.795), attributed(0.2, 0.005, 0.8))
    assert [Shading(words, 0.8).shade(word) for word in words] == [1, 0]
    assert [Shading(words, 0.8, "masking").shade(word) for word in words] == [0, 0]
    assert Shading(words[:1], 0.8, "uncertainty").shade(words[0]) == 0


def test_what_words_cannot_be_shaded_by() -> None:
    with pytest.raises(ConfigurationError, match="shading='shares' is not one of"):
        Shading(WORDS_OF_A_TEXT, 0.8, "shares")
    with pytest.raises(ConfigurationError, match=r"no word was masked.*occlusion=True"):
        Shading((attributed(0.1, 0.5, None),), 0.8, "masking")


def test_explanations_come_back_and_broken_ones_are_named(evaluation: Path, tmp_path: Path) -> None:
    (one,) = read_explanations(evaluation / "explanations.json")
    assert one.words[1] == WordAttribution(Word("<b>bad</b>", (2, 3), False), 0.15, 0.25, 0.5, 0.71)
    (tmp_path / "explanations.json").write_text("[{}]")
    with pytest.raises(StoreError, match="delete it and explain again"):
        read_explanations(tmp_path / "explanations.json")


def test_explaining_takes_the_texts_and_the_very_model(
    opened: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abstention = abstain(opened, "base", target=0.15)
    with pytest.raises(DataError, match=r"texts of toy/test were not found.*--data-dir"):
        words.explain_stored(opened, abstention, "model", tmp_path / "e.json")
    monkeypatch.setattr(Evaluation, "examples", lambda *_: {"toy-test-1": Example("toy-test-1", "a")})
    monkeypatch.setattr("uatlite.model.load.load_checkpoint", lambda name: SimpleNamespace(hash="f" * 64))
    with pytest.raises(ModelError, match="model is not the model that was evaluated"):
        words.explain_stored(opened, abstention, "model", tmp_path / "e.json")
