"""Words out of word pieces, and what each of them does."""

import json
from collections.abc import Callable

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerFast

from uatlite.attribution.layers import propagate
from uatlite.attribution.words import attribute_tokens, replacement_id, tokens_of, words_of
from uatlite.errors import InputError
from uatlite.passes.config import DropoutRates, UATConfig

CONFIG = UATConfig(rates=DropoutRates(classifier=0.1))
Tiny = Callable[..., PreTrainedModel]
PIECES = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "un", "##believ", "##able", "not", "good", "film", ",", "a"]


@pytest.fixture(scope="module")
def wordpiece() -> PreTrainedTokenizerFast:
    vocabulary = {piece: i for i, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", **special)


@pytest.fixture(scope="module")
def byte_level() -> PreTrainedTokenizerFast:
    vocabulary = {piece: i for i, piece in enumerate(["<s>", "Ġ", "g", "o", "d", "n", "t", "go", "od", "Ġn", "Ġno"])}
    merges = [("g", "o"), ("o", "d"), ("Ġ", "n"), ("Ġn", "o")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def _encode(tokenizer: PreTrainedTokenizerFast, texts: list[str], pairs: list[str] | None = None) -> BatchEncoding:
    return tokenizer(texts, pairs, padding=True, return_tensors="pt", return_token_type_ids=False)


@pytest.mark.parametrize("said", [True, False])
def test_pieces_are_merged_and_specials_kept_apart(wordpiece: PreTrainedTokenizerFast, said: bool) -> None:
    """With what the tokenizer says of words, and from the pieces' own marks."""
    encoded = _encode(wordpiece, ["a film , unbelievable", "xyzzy good"])
    first, second = words_of(wordpiece, encoded if said else dict(encoded))
    assert [word.text for word in first] == ["[CLS]", "a", "film", ",", "unbelievable", "[SEP]"]
    assert [word.tokens for word in first] == [(0,), (1,), (2,), (3,), (4, 5, 6), (7,)]
    assert [word.special for word in first] == [True, False, False, False, False, True]
    assert [(word.text, word.special) for word in second] == [
        ("[CLS]", True),
        ("[UNK]", False),
        ("good", False),
        ("[SEP]", True),
    ]


def test_the_same_word_in_both_texts_of_a_pair_stays_two(wordpiece: PreTrainedTokenizerFast) -> None:
    (words,) = words_of(wordpiece, _encode(wordpiece, ["good good"], ["good"]))
    assert [word.text for word in words if not word.special] == ["good", "good", "good"]


@pytest.mark.parametrize("said", [True, False])
def test_byte_level_marks_begin_words(byte_level: PreTrainedTokenizerFast, said: bool) -> None:
    encoded = byte_level(["good not"], return_tensors="pt", return_token_type_ids=False)
    (words,) = words_of(byte_level, encoded if said else dict(encoded))
    assert [(word.text, word.tokens) for word in words] == [("good", (0, 1)), ("not", (2, 3))]


def test_words_carry_what_their_pieces_do(shared: Tiny, wordpiece: PreTrainedTokenizerFast) -> None:
    model = shared("bert")
    encoded = _encode(wordpiece, ["a film , unbelievable", "not good"])
    found = attribute_tokens(model, wordpiece, encoded, CONFIG, output="margin")
    analytic = propagate(model, encoded, CONFIG)
    torch.testing.assert_close(found.total, analytic.variance)
    torch.testing.assert_close(found.variance, analytic.tokens)
    word = found.words[0][4]
    assert word.variance == pytest.approx(float(analytic.tokens[0, 4:7].sum()))
    assert word.uncertainty == pytest.approx(float(analytic.token_uncertainty[0, 4:7].mean()))
    assert word.share == pytest.approx(word.variance / float(found.total[0]))
    shares = sum(word.share for word in found.words[1])
    assert shares + float(analytic.shares[1, -1]) == pytest.approx(1, abs=1e-4)
    json.dumps(found.to_dict())


def test_what_propagate_found_is_not_computed_again(shared: Tiny, wordpiece: PreTrainedTokenizerFast) -> None:
    model, calls = shared("bert"), []
    encoded = _encode(wordpiece, ["a film , unbelievable", "not good"])
    expected = attribute_tokens(model, wordpiece, encoded, CONFIG, output="margin")
    found = propagate(model, encoded, CONFIG)
    with model.register_forward_pre_hook(lambda *_: calls.append(1)):
        quick = tokens_of(found, model, wordpiece, encoded, CONFIG, occlusion=False)
    assert calls == []
    torch.testing.assert_close(quick.variance, expected.variance)
    assert tokens_of(found, model, wordpiece, encoded, CONFIG).to_dict() == expected.to_dict()


def test_masking_a_word_is_running_the_text_without_it(shared: Tiny, wordpiece: PreTrainedTokenizerFast) -> None:
    model, config = shared("bert"), UATConfig(gate="none", rates=DropoutRates(classifier=0.1))
    encoded = _encode(wordpiece, ["a film , unbelievable", "not good"])
    found = attribute_tokens(model, wordpiece, encoded, config)
    for row, words in enumerate(found.words):
        for word in words:
            if word.word.special:
                assert word.masked_confidence is None
                continue
            ids = encoded["input_ids"].clone()
            ids[row, list(word.word.tokens)] = 4
            with torch.inference_mode():
                logits = model(input_ids=ids, attention_mask=encoded["attention_mask"]).logits
            after = logits.softmax(-1)[row, found.predicted[row]]
            assert word.masked_confidence == pytest.approx(float(after), abs=1e-5)
    without = attribute_tokens(model, wordpiece, encoded, config, occlusion=False)
    assert all(word.masked_confidence is None for text in without.words for word in text)


def test_choices_have_words_too(wordpiece: PreTrainedTokenizerFast, chooser: PreTrainedModel) -> None:
    flat = _encode(wordpiece, ["good", "not good", "a film", "unbelievable"])
    encoded = {name: value.view(1, 4, -1) for name, value in flat.items()}
    found = attribute_tokens(chooser, wordpiece, encoded, CONFIG)
    texts = [word.word.text for word in found.words[0] if not word.word.special]
    assert texts == ["good", "not", "good", "a", "film", "unbelievable"]
    flat_places = [place for word in found.words[0] for place in word.word.tokens]
    assert flat_places == encoded["attention_mask"].flatten().nonzero()[:, 0].tolist()


def test_what_a_masked_word_is_replaced_by(
    wordpiece: PreTrainedTokenizerFast, byte_level: PreTrainedTokenizerFast
) -> None:
    assert replacement_id(wordpiece) == 4
    assert replacement_id(wordpiece, embeddings=4) == 0  # the model has no mask token: the unknown one
    with pytest.raises(InputError, match=r"no mask, unknown or padding token.*occlusion=False"):
        replacement_id(byte_level)


def test_unpadded_texts_need_no_attention_mask(shared: Tiny, wordpiece: PreTrainedTokenizerFast) -> None:
    ids: Tensor = _encode(wordpiece, ["not good"])["input_ids"]
    found = attribute_tokens(shared("bert"), wordpiece, {"input_ids": ids}, CONFIG)
    assert [word.word.text for word in found.words[0]] == ["[CLS]", "not", "good", "[SEP]"]
