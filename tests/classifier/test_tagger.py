"""The tagger as a product: calibrated, asked for a promise, saved, loaded, explained."""

from functools import partial

import numpy as np
import pytest

from uatlite.classifier.entities import ENTITIES, ENTITY_EXAMPLE, missed_entities, right_entities
from uatlite.codec import dump
from uatlite.errors import CalibrationError, InputError
from uatlite.values import Span, Words


@pytest.fixture(scope="module")
def made(product_of):
    """`made(config)`: a new tagger with a random model that finds entities here and there."""
    return partial(product_of, "entities")


def found_spans(entities):
    return [Span(entity.start, entity.end, entity.label) for entity in entities]


def right_ones(pred, gold):
    """(entities,): whether each entity is one of its text's gold ones."""
    pairs = zip(pred.entities, gold, strict=True)
    return np.array([span in spans for entities, spans in pairs for span in found_spans(entities)])


def gold_of(pred, seed=0):
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
def rows(made, made_texts):
    texts = made_texts(300)
    return texts, gold_of(made("base").predict(texts))


@pytest.mark.parametrize("method", ["distilled", "analytic", "base", "uat:samples=3,rate=0.02"])
def test_calibrating_gives_confidences_a_rule_and_a_scope(method, made, made_texts):
    """An entity is right as often as its method says before it is calibrated."""
    tagger, texts, new = made(method), made_texts(300), made_texts(200, seed=5)
    before, gold = tagger.predict(texts), gold_of(tagger.predict(new), seed=5)
    assert before.rule is None
    assert tagger.calibrate(texts, gold_of(before), target_risk=0.3, target_recall=0.2) is tagger
    pred = tagger.predict(new, check_shift=False)
    assert pred.rule.promised, pred.rule.reason
    assert pred.recall_rule.kind == "recall"
    assert pred.recall_rule.promised, pred.recall_rule.reason
    assert (pred.answers.variance is None) == (method == "base")
    assert ((pred.sure > 0) & (pred.sure < 1)).all()
    assert pred.scope.shape == (200,)
    reported = pred.rule.reports(pred.answers.log_odds, pred.answers.text) & ~pred.out_of_scope[pred.answers.text]
    assert pred.reports.tolist() == reported.tolist()
    assert 0 < reported.sum() < len(reported)
    right = right_ones(pred, gold)
    assert 1 - np.mean(right) > 0.35  # without a rule more than is promised would be wrong
    assert 1 - np.mean(right[reported]) <= 0.3
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
    assert right_entities(decoded, gold).tolist() == [False] + [True] * (len(found) - 1)
    assert missed_entities(decoded, gold).tolist() == [1]


def test_rows_with_tags_or_entities_are_taken_as_they_are(made, rows):
    texts, gold = rows
    by_spans = made("base").calibrate(texts, gold)
    as_rows = [
        {"text": text, "entities": [{"start": s.start, "end": s.end, "label": s.label} for s in spans]}
        for text, spans in zip(texts, gold, strict=True)
    ]
    by_rows = made("base").calibrate(as_rows)
    assert dump(by_rows.calibration_) == dump(by_spans.calibration_)
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


def test_what_does_not_fit_is_said(made, rows):
    texts, gold = rows
    tagger = made("base")
    with pytest.raises(InputError, match=r"entities\[0\] has \(0, 99, 'person'\)"):
        tagger.calibrate(["a1"], [[(0, 99, "person")]])
    with pytest.raises(InputError, match="label of person, place"):
        tagger.calibrate(["a1"], [[(0, 2, "animal")]])
    with pytest.raises(InputError, match="tokens and tags, or text and entities"):
        tagger.calibrate([{"text": "a1", "label": "x"}])
    tagger.calibrate(texts, gold)
    tagger.aggregation_strategy = "simple"
    with pytest.raises(CalibrationError, match="calibrated with aggregation_strategy None, now simple"):
        tagger.predict(texts[:2])
