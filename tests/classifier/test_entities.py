"""Entities: those of transformers' pipeline, their probability by counting, windows, bad input."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast, pipeline

from uatlite import UncertaintyTagger
from uatlite.classifier.tags import TagScheme, decode, log_odds
from uatlite.errors import ConfigurationError, InputError, ModelError
from uatlite.model.load import embedded_backbone
from uatlite.model.windows import LocatedText, locate
from uatlite.predictive import softmax
from uatlite.values import Words

TAGS = ("O", "B-person", "I-person", "B-place", "I-place", "B-thing-made", "I-thing-made")
NAMES = dict(enumerate(TAGS))
TEXTS = (
    "Ada Lovelace lived in London, near St. James's Square.",
    "@kate wasn't unbelievably antidisestablishmentarian in São Paulo -- 东京 🙂!",
    "a",
    "  spaces   here and\tthere  ",
    "New York-based O'Neill's iPhone12 costs $1,299.99 (approx.)",
)
WORDS = (
    ("Ada", "Lovelace", "wasn't", "in", "São", "Paulo", "."),
    ("antidisestablishmentarianism",),
    ("a", "東京", "b."),
)
STRATEGIES = ("simple", "first", "average", "max")


def byte_pairs():
    """A tokenizer without a mark for the inside of words, as RoBERTa and GPT-2 have it."""
    trained = ByteLevelBPETokenizer(add_prefix_space=True)
    trained.train_from_iterator([*TEXTS] * 3, vocab_size=300, min_frequency=1, special_tokens=["<pad>", "<unk>"])
    return PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, pad_token="<pad>", unk_token="<unk>")


@pytest.fixture(scope="module")
def word_pieces():
    return AutoTokenizer.from_pretrained(embedded_backbone())


@pytest.fixture(scope="module", params=["word pieces", "byte pairs"])
def tagging(request, tiny, word_pieces):
    """A model and its tokenizer; both random, so that entities are everywhere and of all kinds."""
    tokenizer = word_pieces if request.param == "word pieces" else byte_pairs()
    model = tiny(
        "bert",
        tokens=True,
        num_labels=len(TAGS),
        id2label=NAMES,
        vocab_size=len(tokenizer),
        max_position_embeddings=64,
        pad_token_id=0,
    )
    return model, tokenizer


def by_pipeline(model, tokenizer, texts, strategy, **options):
    """(start, end, type, score) of each entity of each text, by transformers."""
    run = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy)
    found = [run(list(text) if isinstance(text, tuple) else text, **options) for text in texts]
    found = [one[0] if one and isinstance(one[0], list) else one for one in found]
    return [[(e["start"], e["end"], e["entity_group"], float(e["score"])) for e in one] for one in found]


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_entities_are_those_of_the_pipeline(tagging, strategy):
    model, tokenizer = tagging
    tagger = UncertaintyTagger(model, tokenizer, aggregation_strategy=strategy)
    for texts, options in ((TEXTS, {}), (WORDS, {"is_split_into_words": True})):
        pred = tagger.predict([list(text) if isinstance(text, tuple) else text for text in texts])
        expected = by_pipeline(model, tokenizer, texts, strategy, **options)
        ours = [[(e.start, e.end, pred.classes[e.type], e.score) for e in one.entities] for one in pred.decoded]
        assert [[e[:3] for e in one] for one in ours] == [[e[:3] for e in one] for one in expected]
        assert [e[3] for one in ours for e in one] == pytest.approx([e[3] for one in expected for e in one], abs=1e-5)
        assert sum(len(one) for one in ours) > 3
        for entities, text in zip(pred.entities, texts, strict=True):
            whole = " ".join(text) if isinstance(text, tuple) else text
            assert [e.text for e in entities] == [whole[e.start : e.end] for e in entities]


def test_words_that_are_given_are_decided_by_their_first_token(tagging):
    model, tokenizer = tagging
    tagger = UncertaintyTagger(model, tokenizer, "base")
    for words, found in zip(WORDS, tagger.predict([list(words) for words in WORDS]), strict=True):
        encoded = tokenizer(list(words), is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            tags = model(**encoded).logits[0].argmax(-1).tolist()
        ids = encoded.word_ids(0)
        own = [TAGS[tags[ids.index(number)]] for number in range(len(words))]
        starts = {start for start, _ in Words(words).spans}
        assert {e.start for e in found.entities} <= starts
        assert sum(e.end - e.start for e in found.entities) >= sum(
            len(word) for word, tag in zip(words, own, strict=True) if tag != "O"
        )


def located(words):
    places = np.array([(2 * word, 2 * word + 1) for word in range(words)])
    return LocatedText("a " * words, places, np.zeros(words, dtype=bool), None)


def test_the_probability_of_an_entity_counts_all_sequences_of_tags():
    """All taggings of four words, each with the product of its words' probabilities."""
    scheme = TagScheme(("O", "B-x", "I-x", "B-y", "I-y"))
    logits = np.random.default_rng(3).normal(0, 1.5, (1, 4, 5))
    p = softmax(logits[0])
    chances = {}
    for tags in product(range(5), repeat=4):
        one = decode(located(4), np.log(np.eye(5)[list(tags)] * 0.999 + 1e-4)[None], scheme, "first")
        chance = float(np.prod(p[np.arange(4), list(tags)]))
        for e in one.entities:
            key = e.start // 2, e.end // 2, e.type
            chances[key] = chances.get(key, 0.0) + chance
    found = decode(located(4), logits, scheme, "first")
    assert found.entities
    for e in found.entities:
        key = e.start // 2, e.end // 2
        assert e.probability == pytest.approx(chances[(*key, e.type)], abs=1e-12)
        assert e.boundaries == pytest.approx(sum(chances.get((*key, kind), 0.0) for kind in (0, 1)), abs=1e-12)


def test_over_passes_it_is_the_mean_and_its_spread_that_of_the_log_odds():
    scheme = TagScheme(("O", "B-x", "I-x"))
    logits = np.random.default_rng(1).normal(0, 0.5, (6, 3, 3)) + np.array([0.0, 2.0, 0.0])
    whole = decode(located(3), logits, scheme, "first")
    singles = [decode(located(3), one[None], scheme, "first") for one in logits]
    assert len(whole.entities) == 3
    for place, entity in enumerate(whole.entities):
        own = [one.entities[place].probability for one in singles]
        assert entity.probability == pytest.approx(np.mean(own))
        assert entity.spread == pytest.approx(log_odds(own).var(ddof=1))


def test_what_may_be_missed():
    scheme = TagScheme(("O", "B-x", "I-x"))
    p = np.array([[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1]])
    found = decode(located(3), np.log(p)[None], scheme, "first")
    assert [(e.start, e.end) for e in found.entities] == [(2, 3)]
    assert found.missed == pytest.approx(np.log((1 - 0.9 * 0.6) / (0.9 * 0.6)))
    assert found.missed_at == (4, 5)


def test_windows_give_each_entity_once_and_tokens_their_best_context(tagging):
    model, tokenizer = tagging
    text = " ".join(f"{TEXTS[0]} {TEXTS[4]}" for _ in range(9))
    whole = locate(tokenizer, [text], 10_000, windows=True)
    some = locate(tokenizer, [text, TEXTS[2]], 40, windows=True)
    assert len(whole.windows) == 1
    windows = [window for window in some.windows if window.text == 0]
    assert len(windows) > 5
    size = len(whole.texts[0])
    counted = [token for window in windows for token in range(window.first, window.last)]
    assert counted == list(range(size))
    assert all(len(row[0]["input_ids"]) <= 40 for row in some.tokens.rows)
    assert not any(whole.texts[0].continues[window.first] for window in windows[1:])
    for window in windows:  # away from its edges, but for the text's own
        assert window.first == 0 or window.first > window.start
        assert window.last == size or window.last < window.stop
    values = [np.arange(window.start, window.stop) for window in some.windows]
    assert some.stitched(values)[0].tolist() == list(range(size))
    tagger = UncertaintyTagger(model, tokenizer, "analytic", max_length=40)
    entities = tagger.predict([text])[0].entities
    places = [(e.start, e.end) for e in entities]
    assert places == sorted(set(places))
    assert all(first[1] <= second[0] for first, second in pairwise(places))
    assert all(e.variance is not None and e.variance > 0 for e in entities)
    cut = UncertaintyTagger(model, tokenizer, "base", max_length=40, windows=False).predict([text, "a"])
    assert cut.cut_tokens.tolist() == [size - (40 - tokenizer.num_special_tokens_to_add()), 0]
    assert max(e.end for e in cut[0].entities) < len(text) / 3


def test_bad_input_is_an_error_that_says_what_is_allowed(tagging, tiny):
    model, tokenizer = tagging
    with pytest.raises(ConfigurationError, match="aggregation_strategy='none' is not one of: simple"):
        UncertaintyTagger(model, tokenizer, aggregation_strategy="none")
    tagger = UncertaintyTagger(model, tokenizer)
    for text, reason in (
        (["a", ""], "none of them empty"),
        ([], "an empty text"),
        (" ", "an empty text"),
        (3, "allowed are"),
    ):
        with pytest.raises(InputError, match=rf"texts\[0\].*{reason}"):
            tagger.predict([text])
    with pytest.raises(ConfigurationError, match="'words' is for texts that are given as words"):
        UncertaintyTagger(model, tokenizer, aggregation_strategy="words").predict("a b")
    with pytest.raises(ModelError, match=r"one answer a text.*UncertaintyClassifier"):
        UncertaintyTagger(tiny("bert"), tokenizer)
