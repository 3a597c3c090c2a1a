"""Words out of word pieces, and what each of them does."""

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from uatlite.attribution.layers import propagate
from uatlite.attribution.words import attribute_words, words_of
from uatlite.passes.config import DropoutRates, UATConfig

CONFIG = UATConfig(rates=DropoutRates(classifier=0.1))
PIECES = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "un", "##believ", "##able", "not", "good", "film", ",", "a"]


@pytest.fixture(scope="module")
def wordpiece():
    vocabulary = {piece: i for i, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", **special)


@pytest.fixture(scope="module")
def byte_level():
    vocabulary = {piece: i for i, piece in enumerate(["<s>", "Ġ", "g", "o", "d", "n", "t", "go", "od", "Ġn", "Ġno"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("g", "o"), ("o", "d"), ("Ġ", "n"), ("Ġn", "o")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def encode(tokenizer, texts, pairs=None):
    return tokenizer(texts, pairs, padding=len(texts) > 1, return_tensors="pt", return_token_type_ids=False)


@pytest.mark.parametrize("said", [True, False])
def test_pieces_are_merged_and_specials_kept_apart(wordpiece, byte_level, said):
    """With what the tokenizer says of words, and from the pieces' own marks."""
    encoded, bytewise = encode(wordpiece, ["a film , unbelievable", "xyzzy good"]), encode(byte_level, ["good not"])
    first, second = words_of(wordpiece, encoded if said else dict(encoded))
    places = {"[CLS]": (0,), "a": (1,), "film": (2,), ",": (3,), "unbelievable": (4, 5, 6), "[SEP]": (7,)}
    assert {word.text: word.tokens for word in first} == places
    assert [word.text for word in first] == list(places)
    assert [word.text for word in second] == ["[CLS]", "[UNK]", "good", "[SEP]"]
    for words in (first, second):
        assert [word.special for word in words] == [True, *[False] * (len(words) - 2), True]
    (words,) = words_of(byte_level, bytewise if said else dict(bytewise))
    assert [(word.text, word.tokens) for word in words] == [("good", (0, 1)), ("not", (2, 3))]


def test_the_same_word_in_both_texts_of_a_pair_stays_two(wordpiece):
    (words,) = words_of(wordpiece, encode(wordpiece, ["good good"], ["good"]))
    assert [word.text for word in words if not word.special] == ["good", "good", "good"]


def test_words_carry_what_their_pieces_do(shared, wordpiece):
    model = shared("bert")
    encoded = encode(wordpiece, ["a film , unbelievable", "not good"])
    analytic = propagate(model, encoded, CONFIG)
    first, second = attribute_words(analytic, wordpiece, encoded)
    assert first[4].variance == pytest.approx(float(analytic.tokens[0, 4:7].sum()))
    assert first[4].uncertainty == pytest.approx(float(analytic.token_uncertainty[0, 4:7].mean()))
    assert first[4].share == pytest.approx(first[4].variance / float(analytic.total[0]))
    shares = sum(word.share for word in second)
    assert shares + float(analytic.shares[1, -1]) == pytest.approx(1, abs=1e-4)
    assert all(word.masked_confidence is None for word in (*first, *second))


def test_choices_have_words_too(wordpiece, chooser):
    flat = encode(wordpiece, ["good", "not good", "a film", "unbelievable"])
    encoded = {name: value.view(1, 4, -1) for name, value in flat.items()}
    (words,) = attribute_words(propagate(chooser, encoded, CONFIG), wordpiece, encoded)
    texts = [word.word.text for word in words if not word.word.special]
    assert texts == ["good", "not", "good", "a", "film", "unbelievable"]
    flat_places = [place for word in words for place in word.word.tokens]
    assert flat_places == encoded["attention_mask"].flatten().nonzero()[:, 0].tolist()


def test_unpadded_texts_need_no_attention_mask(wordpiece):
    (words,) = words_of(wordpiece, {"input_ids": encode(wordpiece, ["not good"])["input_ids"]})
    assert [word.text for word in words] == ["[CLS]", "not", "good", "[SEP]"]
