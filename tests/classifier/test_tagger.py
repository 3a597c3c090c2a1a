"""The tagger as a product: calibrated, asked for a promise, saved, loaded, explained."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import BertTokenizer

from uatlite import UncertaintyTagger
from uatlite.classifier.entities import ENTITIES, ENTITY_EXAMPLE, EntityPredictions
from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.values import Span, Words

TAGS = {0: "O", 1: "B-person", 2: "I-person", 3: "B-place", 4: "I-place"}


@pytest.fixture(scope="module")
def made(tiny: Callable, tokenizer: BertTokenizer) -> Callable:
    """`made(config)`: a new tagger with a random model that finds entities here and there."""

    def make(config: str | None = None, **options: object) -> UncertaintyTagger:
        model = tiny("bert", tokens=True, num_labels=5, id2label=TAGS)
        model.classifier.weight.data *= 5  # sure of what it says, and of no entity more often than not
        model.classifier.bias.data[0] += 5.0
        return UncertaintyTagger(model, tokenizer, config, **options)

    return make


def found_spans(entities) -> list[Span]:
    return [Span(entity.start, entity.end, entity.label) for entity in entities]


def right_ones(pred: EntityPredictions, gold) -> np.ndarray:
    """(entities,): whether each entity is one of its text's gold ones."""
    pairs = zip(pred.entities, gold, strict=True)
    return np.array([span in spans for entities, spans in pairs for span in found_spans(entities)])


def gold_of(pred: EntityPredictions, seed: int = 0) -> list[tuple[Span, ...]]:
    """What could be right: each entity with its own probability, else of another type; now and then one is missed."""
    rng = np.random.default_rng(seed)
    gold = []
    for text, entities in zip(pred.texts, pred.entities, strict=True):
        spans = []
        for entity in entities:
            wrong = rng.random() > entity.confidence
            other = "place" if entity.label == "person" else "person"
            spans.append(Span(entity.start, entity.end, other if wrong else entity.label))
        if not spans and rng.random() < 0.2:
            spans = [Span(0, len(str(text).split()[0]), "person")]
        gold.append(tuple(spans))
    return gold


@pytest.fixture(scope="module")
def rows(made: Callable, made_texts: Callable) -> tuple[list[str], list[tuple[Span, ...]]]:
    texts = made_texts(300)
    return texts, gold_of(made("base").predict(texts))


def synthetic(texts: list[str], seed: int) -> list[list[int]]:
    """The gold tags of random words: of a0 to a11 sure, of a12 to a27 a person in 65 % of the cases."""
    rng = np.random.default_rng(seed)
    numbers = [[int(word[1:]) for word in text.split()] for text in texts]
    return [
        [1 if n < 6 or (12 <= n < 28 and rng.random() < 0.65) else 3 if n < 12 else 0 for n in some] for some in numbers
    ]


def spans_of(text: str, tags: list[int]) -> tuple[Span, ...]:
    ends = np.cumsum([len(word) + 1 for word in text.split()]) - 1
    found = zip(text.split(), ends.tolist(), tags, strict=True)
    return tuple(Span(end - len(word), end, TAGS[tag][2:]) for word, end, tag in found if tag)


@pytest.fixture(scope="module")
def learned(tiny: Callable, tokenizer: BertTokenizer, made_texts: Callable) -> Callable:
    """`learned(config)`: a new tagger with a tiny model that learned the synthetic tags, in a few seconds."""
    model = tiny("bert", tokens=True, num_labels=5, id2label=TAGS).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for step in range(150):
            texts = made_texts(32, seed=100 + step)
            encoded = tokenizer(texts, padding=True, return_tensors="pt")
            labels = torch.full_like(encoded["input_ids"], -100)
            for row, tags in enumerate(synthetic(texts, seed=100 + step)):
                labels[row, 1 : 1 + len(tags)] = torch.tensor(tags)
            model(**encoded, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return lambda config: UncertaintyTagger(model.eval(), tokenizer, config)


@pytest.mark.parametrize("method", ["distilled", "analytic", "base", "uat:samples=3"])
def test_calibrating_gives_confidences_a_rule_and_a_scope(method, learned, made_texts):
    """Sure words are right and the others wrong in a third of the cases, so one in ten is a promise for any method."""
    texts = made_texts(300)
    tagger = learned(method)
    gold = [spans_of(*pair) for pair in zip(texts, synthetic(texts, seed=0), strict=True)]
    before = tagger.predict(texts[:40])
    assert before.rule is None
    assert tagger.calibrate(texts, gold, target_risk=0.1, target_recall=0.5) is tagger
    pred = tagger.predict(made_texts(60, seed=5), check_shift=False)
    assert pred.rule.promised, pred.rule.reason
    assert pred.recall_rule.kind == "recall"
    assert pred.recall_rule.promised, pred.recall_rule.reason
    assert (pred.answers.variance is None) == (method == "base")
    assert ((pred.sure > 0) & (pred.sure < 1)).all()
    assert pred.scope.shape == (60,)
    reported = pred.rule.reports(pred.answers.log_odds, pred.answers.text) & ~pred.out_of_scope[pred.answers.text]
    assert pred.reports.tolist() == reported.tolist()
    assert 0 < reported.sum() < len(reported)
    new = synthetic(list(pred.texts), seed=5)
    right = right_ones(pred, [spans_of(*pair) for pair in zip(pred.texts, new, strict=True)])
    assert 1 - np.mean(right) > 0.12  # without a rule more than is promised would be wrong
    assert 1 - np.mean(right[reported]) <= 0.1
    for row, entities in enumerate(pred.entities):
        withheld = any(not entity.reported for entity in entities)
        assert pred.abstain[row] == (withheld or pred.out_of_scope[row] or pred.too_much_missed[row])
    reasons = {"answered", "below the threshold", "out of scope", "an entity may be missed", "no promise"}
    assert set(pred.reasons) <= reasons


def test_calibrated_confidences_are_right_as_often_as_they_say(made, rows, made_texts):
    """The gold is drawn with the model's own probabilities, so calibrating must not move them by much."""
    texts, gold = rows
    tagger = made("base").calibrate(texts, gold)
    new = made_texts(300, seed=9)
    plain, calibrated = made("base").predict(new), tagger.predict(new, check_shift=False)
    right = right_ones(calibrated, gold_of(plain, seed=3))
    assert abs(calibrated.sure.mean() - right.mean()) < 0.08
    assert np.abs(calibrated.sure - plain.sure).mean() < 0.12


def test_matches_are_of_span_and_type(made):
    assert " ".join(ENTITY_EXAMPLE[0]) == "start end text label confidence boundaries variance reported"
    tagger, texts = made("base"), ["a1 a2 a3 a4 a5 a6 a7 a8 a9"]
    (entities,) = tagger.predict(texts).entities
    assert entities
    found = found_spans(entities)
    wrong = found[0]._replace(end=found[0].end + 1)
    gold = ENTITIES.gold([[wrong, *found[1:]]], texts, tagger.class_names)
    decoded = tagger.predict(texts).decoded
    assert gold.right(decoded).tolist() == [False] + [True] * (len(found) - 1)
    assert gold.missed(decoded).tolist() == [1]


def test_rows_with_tags_or_entities_are_taken_as_they_are(made, rows):
    texts, gold = rows
    by_spans = made("base").calibrate(texts, gold)
    as_rows = [
        {"text": text, "entities": [{"start": s.start, "end": s.end, "label": s.label} for s in spans]}
        for text, spans in zip(texts, gold, strict=True)
    ]
    by_rows = made("base").calibrate(as_rows)
    assert by_rows.calibration_.to_dict() == by_spans.calibration_.to_dict()
    words = [text.split() for text in texts]
    tags = [["B-person" if number % 4 == 0 else "O" for number in range(len(one))] for one in words]
    tagged = made("base").calibrate([{"tokens": w, "tags": t} for w, t in zip(words, tags, strict=True)])
    assert tagged.predict([words[0]])[0].text == Words(tuple(words[0]))


def test_words_and_their_text_are_read_alike(made):
    """Of the tiny tokenizer every word is one token."""
    tagger = made("base")
    text = "a1 a2 a3 a4 a5 a6 a7 a8 a9"
    assert tagger.predict([text.split()])[0].entities == tagger.predict(text)[0].entities


def test_recall_asks_a_person_where_something_may_be_missed(made, rows):
    """Entities that are found are all right, and one is missed in each text where the model is least sure of that."""
    texts, _ = rows
    tagger = made("base")
    plain = tagger.predict(texts)
    unsure = plain.missed > np.quantile(plain.missed, 0.8)
    gold = []
    for text, entities, misses in zip(texts, plain.entities, unsure, strict=True):
        spans = found_spans(entities)
        free = [word for word in Words(tuple(text.split())).spans if all(not s.start <= word[0] < s.end for s in spans)]
        gold.append((*spans, *(Span(*word, "place") for word in free[: 2 * misses])))
    tagger.calibrate(texts, gold, target_recall=0.85)
    pred = tagger.predict(texts, check_shift=False)
    answered = ~pred.too_much_missed
    assert pred.rule is None
    assert pred.recall_rule.promised, pred.recall_rule.reason
    assert 0 < answered.sum() < len(texts)
    missed = np.array([len(set(g).difference(found_spans(f))) for g, f in zip(gold, pred.entities, strict=True)])
    counts = np.array([len(one) for one in gold])
    assert missed[answered].sum() / counts[answered].sum() < 0.15 < missed.sum() / counts.sum()
    assert set(np.array(pred.reasons)[~answered]) <= {"an entity may be missed", "out of scope"}


def test_an_explanation_is_of_the_weakest_word(made, rows):
    texts, gold = rows
    tagger = made("analytic").calibrate(texts, gold)
    text = next(text for text, one in zip(texts, tagger.predict(texts).entities, strict=True) if len(one) > 1)
    found = tagger.explain(text)
    entities = found.prediction.entities
    entity = entities[found.number]
    assert entity.confidence == min(e.confidence for e in entities)
    assert found.variance == pytest.approx(entity.variance, rel=1e-3)
    assert found.weakest in text
    assert found.to_dict()["entity"]["label"] == entity.label == found.label
    assert tagger.explain(text, 1).number == 1
    with pytest.raises(InputError, match="entity=99 is not one of"):
        tagger.explain(text, 99)


def test_what_does_not_fit_is_said(made, rows, tiny, tokenizer):
    texts, gold = rows
    tagger = made("base")
    with pytest.raises(InputError, match=r"entities\[0\] has \(0, 99, 'person'\)"):
        tagger.calibrate(["a1"], [[(0, 99, "person")]])
    with pytest.raises(InputError, match="label of person, place"):
        tagger.calibrate(["a1"], [[(0, 2, "animal")]])
    with pytest.raises(InputError, match="tokens and tags, or text and entities"):
        tagger.calibrate([{"text": "a1", "label": "x"}])
    with pytest.raises(ConfigurationError, match=r"target_risk=5.*between 0 and 1"):
        tagger.calibrate(texts, gold, target_risk=5)
    tagger.calibrate(texts, gold)
    tagger.aggregation_strategy = "simple"
    with pytest.raises(CalibrationError, match="calibrated with aggregation_strategy None, now simple"):
        tagger.predict(texts[:2])
    with pytest.raises(ConfigurationError, match="'cascade' is gone: use 'distilled'"):
        made("cascade").predict(texts[:2])
