"""Metrics of several answers a text, against seqeval, scikit-learn and slow references; intervals over texts."""

import random
from itertools import permutations

import numpy as np
import pytest
from seqeval.metrics import f1_score, precision_score, recall_score
from sklearn import metrics as sklearn

from by_hand import slow_aurc, slow_ece
from uatlite.errors import ConfigurationError, InputError
from uatlite.metrics.answers import AnswerRows, Found, LabelRows
from uatlite.metrics.intervals import Resampling, intervals, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.text.gold import spans_of_tags, tags_for
from uatlite.values import Words

TYPES = ("LOC", "ORG", "PER")


def bootstrap(estimates, resamples, seed=0):
    return intervals(estimates, Resampling(resamples, seed=seed))


def random_tags(generator, words):
    tags, before = [], "O"
    for _ in range(words):
        allowed = [tag for tag in (*tags_for(TYPES), "O", "O") if tag[0] != "I" or tag[2:] == before[2:]]
        tags.append(before := generator.choice(allowed))
    return tags


@pytest.mark.parametrize("seed", range(8))
def test_entity_scores_are_those_of_seqeval(seed):
    generator = random.Random(seed)
    lengths = [generator.randint(1, 15) for _ in range(30)]
    gold = [random_tags(generator, length) for length in lengths]
    said = [tags if generator.random() < 0.5 else random_tags(generator, len(tags)) for tags in gold]
    words = [Words(tuple("xyz"[: 1 + place % 3] for place in range(length))) for length in lengths]
    spans = [[spans_of_tags(word, tags) for word, tags in zip(words, one, strict=True)] for one in (said, gold)]
    scores = Found.of_entities(*spans).estimates().points()
    assert scores["precision"] == pytest.approx(precision_score(gold, said))
    assert scores["recall"] == pytest.approx(recall_score(gold, said))
    assert scores["f1"] == pytest.approx(f1_score(gold, said))
    assert scores["macro_f1"] == pytest.approx(f1_score(gold, said, average="macro"))


def test_an_entity_is_right_as_a_whole_or_not_at_all():
    gold = [[(0, 12, "PER")], [(0, 3, "LOC")], []]
    said = [[(0, 3, "PER")], [(0, 3, "ORG"), (5, 9, "LOC")], []]
    assert Found.of_entities(said, gold).estimates().points() == {"precision": 0, "recall": 0, "f1": 0, "macro_f1": 0}
    assert Found.of_entities(gold, gold).estimates().points()["f1"] == 1
    assert Found.of_entities([[]], [[]]).estimates().points()["f1"] == 0
    with pytest.raises(InputError, match="1 texts with reported entities, 3 with gold"):
        Found.of_entities([[]], gold)


def label_case(seed, texts=80, labels=5):
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(texts, labels)) - np.linspace(0, 2, labels)
    gold = generator.random((texts, labels)) < 1 / (1 + np.exp(-logits / 2))
    return np.round(1 / (1 + np.exp(-logits)), 2), gold.astype(np.int64)


@pytest.mark.parametrize("seed", range(4))
def test_label_scores_are_those_of_scikit_learn(seed):
    probabilities, gold = label_case(seed)
    scores = LabelRows.of(probabilities, gold).estimates().points()
    decided = probabilities > 0.5
    assert scores["micro_f1"] == pytest.approx(sklearn.f1_score(gold, decided, average="micro"))
    assert scores["macro_f1"] == pytest.approx(sklearn.f1_score(gold, decided, average="macro", zero_division=0))
    for average in ("micro", "macro"):
        expected = sklearn.average_precision_score(gold, probabilities, average=average)
        assert scores[f"{average}_average_precision"] == pytest.approx(expected)
    losses = [sklearn.log_loss(y, p, labels=[0, 1]) for y, p in zip(gold.T, probabilities.T, strict=True)]
    assert scores["label_nll"] == pytest.approx(np.mean(losses))
    briers = [sklearn.brier_score_loss(y, p) for y, p in zip(gold.T, probabilities.T, strict=True)]
    assert scores["label_brier"] == pytest.approx(np.mean(briers))
    assert scores["label_ece"] == pytest.approx(
        np.mean([slow_ece(p, y) for y, p in zip(gold.T, probabilities.T, strict=True)])
    )
    flat, wrong = probabilities.ravel(), (decided != gold).ravel()
    assert scores["pair_aurc"] == pytest.approx(slow_aurc(np.maximum(flat, 1 - flat), wrong))


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_scored_by_the_confidence_that_they_are_right(seed):
    generator = np.random.default_rng(seed)
    confidence = np.round(generator.random(60), 1 + seed % 2)
    right = generator.random(60) < confidence
    rows = AnswerRows.of(confidence, right)
    found = rows.estimates().points()
    assert found["answer_ece"] == pytest.approx(slow_ece(confidence, right.astype(np.int64)))
    assert found["answer_aurc"] == pytest.approx(slow_aurc(confidence, ~right))
    assert found["wrong_auroc"] == pytest.approx(sklearn.roc_auc_score(~right, -confidence))
    assert found["wrong_aupr"] == pytest.approx(sklearn.average_precision_score(~right, -confidence))
    inside = np.clip(confidence, np.finfo(float).eps, 1 - np.finfo(float).eps)
    assert found["answer_nll"] == pytest.approx(sklearn.log_loss(right, inside))


def test_a_tie_counts_as_the_mean_over_its_orders():
    confidence, wrong = np.array([0.9, 0.5, 0.5, 0.5, 0.1]), np.array([0, 1, 0, 0, 1])
    tied = [np.mean(np.cumsum([0, *order, 1]) / np.arange(1, 6)) for order in permutations(wrong[1:4].tolist())]
    area = AnswerRows.of(confidence, 1 - wrong).estimates().points()["answer_aurc"]
    assert area == pytest.approx(np.mean(tied))


def answers(seed=0, texts=40):
    """Some texts without an answer, some with many."""
    generator = np.random.default_rng(seed)
    text = np.repeat(np.arange(texts), generator.integers(0, 5, size=texts))
    confidence = generator.random(len(text))
    return AnswerRows.of(confidence, generator.random(len(text)) < confidence**2, text, texts=texts)


def test_counting_a_text_is_repeating_it_with_all_of_its_answers():
    rows, (probabilities, gold) = answers(), label_case(2, texts=40)
    counts = np.random.default_rng(1).integers(0, 3, size=40)
    places = np.concatenate([np.flatnonzero(rows.text == text) for text in range(40) for _ in range(counts[text])])
    labels = LabelRows.of(np.repeat(probabilities, counts, axis=0), np.repeat(gold, counts, axis=0))
    repeated = AnswerRows.of(rows.confidence[places], rows.labels[places]), labels
    for first, again in zip((rows, LabelRows.of(probabilities, gold)), repeated, strict=True):
        for name, expected in again.estimates().points().items():
            assert first.estimates()[name].statistic(counts[None].astype(float))[0] == pytest.approx(expected), name


def test_one_answer_a_text_is_the_bootstrap_of_rows():
    rows = answers(texts=60)
    alone = AnswerRows.of(rows.confidence, rows.labels)
    of_rows = bootstrap(metric_estimates(Rows.of(rows.probabilities, rows.labels), ["nll"]), 200, seed=3)["nll"]
    assert bootstrap(alone.estimates(), 200, seed=3)["answer_nll"] == of_rows


def test_copies_within_a_text_make_no_interval_narrower():
    generator = np.random.default_rng(4)
    confidence = generator.random(50)
    right = generator.random(50) < confidence
    alone = bootstrap(AnswerRows.of(confidence, right).estimates(), 100)
    four = AnswerRows.of(np.repeat(confidence, 4), np.repeat(right, 4), np.repeat(np.arange(50), 4))
    for name, interval in bootstrap(four.estimates(), 100).items():
        if name != "answer_debiased_ece":  # whose estimate of the noise takes rows as independent
            near = 0.02 if name == "answer_aurc" else 1e-9  # 1/k differs at the first ranks
            assert (interval.low, interval.high) == pytest.approx((alone[name].low, alone[name].high), abs=near), name


def test_an_interval_holds_the_truth_as_often_as_it_says():
    """F1 of entities that come in texts all right or all wrong: the worst dependence there is."""
    held = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        size, right = generator.integers(1, 5, size=120), generator.random(120) < 0.7
        gold = [[(place, place + 1, "PER") for place in range(count)] for count in size]
        said = [
            [(start, end + (not good), kind) for start, end, kind in one] for one, good in zip(gold, right, strict=True)
        ]
        interval = bootstrap(Found.of_entities(said, gold).estimates(), 200, seed)["f1"]
        held += interval.low <= 0.7 <= interval.high
    assert 0.90 <= held / 200 <= 0.99


def test_differences_see_the_same_texts():
    first, second = answers(0).estimates(), answers(1).estimates()
    same = bootstrap(first - first, 50)
    assert all((one.point, one.low, one.high) == (0, 0, 0) for one in same.values())
    for name, one in bootstrap(first - second, 50).items():
        assert one.point == pytest.approx(first.points()[name] - second.points()[name])
        assert one.low < one.high
    with pytest.raises(InputError, match="the first is of 40 rows or texts and the second of 30"):
        first - answers(0, texts=30).estimates()


def test_some_metrics_can_be_named():
    estimates = answers().estimates()
    assert bootstrap(estimates.chosen("answer_nll"), 20) == {"answer_nll": bootstrap(estimates, 20)["answer_nll"]}
    with pytest.raises(ConfigurationError, match="metric='nll' is not one of: answer_ece"):
        estimates.chosen("nll")


def test_texts_without_any_answer():
    none = AnswerRows.of([], np.array([], dtype=bool), np.array([], dtype=int), texts=5)
    assert all(np.isnan(one.point) for one in bootstrap(none.estimates(), 10).values())
    few = AnswerRows.of([0.9], [True], [2], texts=3)
    ece = bootstrap(few.estimates(), 50)["answer_ece"]
    assert ece.point == pytest.approx(0.1)
    assert 0 < ece.undefined < 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AnswerRows.of([1.2], [True]), "confidence goes below 0 or above 1"),
        (lambda: AnswerRows.of([0.2], [0.5]), "labels have type float64"),
        (lambda: AnswerRows.of([0.2], [2]), r"labels\[0\] is 2"),
        (lambda: AnswerRows.of([0.2, 0.3], [0, 1], [0]), r"text has shape \(1,\); allowed is \(2,\)"),
        (lambda: AnswerRows.of([0.2], [1], [3], texts=3), "a number from 0 to 2 for each"),
        (lambda: LabelRows.of([[1.1]], [[1]]), "probabilities go below 0 or above 1; pass the sigmoid"),
        (lambda: LabelRows.of([[0.1]], [[2]]), "labels hold other numbers than 0 and 1"),
        (lambda: LabelRows.of([[0.1]], [[0, 1]]), r"labels have shape \(1, 2\); allowed is that of the probabilities"),
        (lambda: LabelRows.of(np.empty((0, 2)), np.empty((0, 2))), "probabilities have shape"),
        (lambda: Found.of_labels([[1]], [[0, 1]]), r"reported labels have shape \(1, 1\), gold \(1, 2\)"),
    ],
)
def test_arrays_that_do_not_fit(make, message):
    with pytest.raises(InputError, match=message):
        make()
