"""Costs: the cheapest of answers and a review by hand, what a rule costs against sums written out, and its limits."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from reference import refuses
from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.trust.cost import Costs, best_in_hindsight, cost_rule
from uatlite.trust.promise import Labelled, decide
from uatlite.trust.rule import Wanted

TABLE = {"no": {"no": 0, "yes": 20, "review": 1}, "yes": {"no": 5, "yes": 0, "review": 2}}
UNEVEN = Costs.of(TABLE, ("no", "yes"))


def test_the_cheapest_by_hand():
    probs = np.array([[0.9, 0.1], [0.6, 0.4], [0.01, 0.99], [0.2, 0.8]])
    # "no" costs 5·p(yes), "yes" 20·p(no), a review 1·p(no) + 2·p(yes)
    expected = [[0.5, 18.0, 1.1], [2.0, 12.0, 1.4], [4.95, 0.2, 1.99], [4.0, 4.0, 1.8]]
    np.testing.assert_allclose(UNEVEN.expected(probs), expected)
    np.testing.assert_array_equal(UNEVEN.cheapest(probs), [0, 0, 1, 0])  # of equals the first
    np.testing.assert_allclose(UNEVEN.saving(probs), [0.6, -0.6, 1.79, -2.2])
    paid = UNEVEN.paid(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    np.testing.assert_array_equal(paid, [[0, 1], [5, 2], [20, 1], [0, 2]])


def slow_expected(costs, probs):
    """The expected cost of each action, one class at a time."""
    classes = len(probs)
    actions = [*range(classes), None]
    price = {(true, action): costs.review if action is None else costs.wrong * (action != true)
             for true in range(classes) for action in actions}  # fmt: skip
    if costs.table:
        price = {(true, a): costs.table[true][classes if a is None else a] for true in range(classes) for a in actions}
    return [sum(probs[true] * price[true, action] for true in range(classes)) for action in actions]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("table", [False, True])
def test_each_row_gets_what_costs_least(seed, table):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(4, 0.5), 50)
    rows = tuple(tuple(row) for row in rng.exponential(size=(4, 5)).tolist()) if table else ()
    costs = Costs(wrong=8.0, review=1.0, table=rows)
    slow = np.array([slow_expected(costs, row) for row in probs])
    np.testing.assert_allclose(costs.expected(probs), slow)
    answers, answered = costs.cheapest(probs), costs.saving(probs) > 0
    chosen = np.where(answered, answers, 4)
    np.testing.assert_allclose(slow[np.arange(50), chosen], slow.min(axis=1))
    if not table:  # the rule of Chow (1970): answer the likeliest class if it is wrong with less than review/wrong
        np.testing.assert_array_equal(answers, probs.argmax(axis=1))
        np.testing.assert_array_equal(answered, probs.max(axis=1) > 1 - 1 / 8)


def test_of_a_tie_a_review_is_taken_and_equal_rows_stay_together():
    assert Costs(wrong=4.0, review=1.0).saving(np.array([[0.75, 0.25]])) == 0
    paid = np.array([[0.0, 1.0], [0.0, 1.0], [9.0, 1.0]])
    assert best_in_hindsight(np.array([2.0, 1.0, 1.0]), paid) == pytest.approx(2 / 3)
    assert best_in_hindsight(np.array([2.0, 3.0, 1.0]), paid) == pytest.approx(1 / 3)


def test_what_a_rule_costs_is_the_sum_over_its_rows():
    rng = np.random.default_rng(3)
    probs = rng.dirichlet(np.ones(3), 200)
    gold = (rng.random(200)[:, None] > probs.cumsum(axis=1)[:, :-1]).sum(axis=1)
    inside, costs = rng.random(200) < 0.9, Costs(wrong=3.0, review=1.0)
    answers, saving = costs.cheapest(probs), costs.saving(probs)
    scores = {"logit-margin": probs.max(axis=1), "saving": saving}
    rows = Labelled(scores, answers != gold, kind=answers, paid=costs.paid(gold, answers))
    rule = decide(rows, Wanted(kind="cost", score="saving", costs=costs), inside=inside).rule
    spent, best = [], math.inf
    for i in range(200):
        spent.append(3.0 * (answers[i] != gold[i]) if inside[i] and saving[i] > 0 else 1.0)
    for threshold in (*saving, -math.inf):
        answered = inside & (saving > threshold)
        best = min(best, np.where(answered, 3.0 * (answers != gold), 1.0).mean())
    mean, low, high = rule.cost.rule
    assert mean == pytest.approx(np.mean(spent))
    assert low < mean < high == rule.target
    assert rule.cost.hindsight == pytest.approx(best)
    assert rule.cost.answer_all[0] == pytest.approx(3.0 * (answers != gold).mean())
    assert rule.cost.review_all == (1.0, 1.0, 1.0)
    assert (rule.texts, rule.among, rule.promised) == (200, (200, 0), True)
    assert rule.coverage == (inside & (saving > 0)).mean()
    said = rule.describe()
    assert said.startswith("Answer where that is expected to cost less than a review: ")
    assert f"that costs {mean:.4g} ({low:.4g} to {high:.4g}) a text; answering all costs" in said
    assert rule.allowed(200, 100) == rule.risk_bound
    listed = decide(rows, Wanted(kind="cost", score="saving", costs=costs), menu=True).menu
    assert {line.rule.kind for line in listed.reviews} == {"coverage"}


POOLS = {  # how sure, how far the probabilities are off, the share of the first class
    "few rows": (40, 1.0, 0.5),
    "calibrated": (150, 1.0, 0.5),
    "overconfident": (150, 2.0, 0.5),
    "all right": (60, 1.0, 1.0),
    "all wrong": (60, 1.0, -1.0),
    "ties": (100, 0.0, 0.5),
    "a class missing": (100, 1.0, 0.0),
}


@pytest.mark.parametrize("costs", [Costs(wrong=20.0, review=1.0), UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_the_limits_of_the_cost_are_broken_no_more_often_than_stated(pool, costs):
    """40 samples at the confidence 0.6 against what a text truly costs, above and below."""
    size, sharp, share = pool
    above = below = 0

    def draw(rows, rng):
        logits = rng.normal(0, 2.0, rows)
        truth = 1 / (1 + np.exp(-logits)) if sharp else np.full(rows, 0.8)
        if share in (0.0, 1.0):
            truth = np.full(rows, share)
        said = np.round(1 / (1 + np.exp(-sharp * logits)) if sharp else truth, 3)
        said = (truth > 0.5) * 1.0 if share == 1.0 else said
        gold = (rng.random(rows) < truth).astype(int)
        probs = np.column_stack([1 - said, said])
        answers = costs.cheapest(probs)
        gold = 1 - answers if share < 0 else gold
        return np.where(costs.saving(probs) > 0, *costs.paid(gold, answers).T)

    true = draw(200_000, np.random.default_rng(99)).mean()
    for repetition in range(40):
        drawn = draw(size, np.random.default_rng(repetition))
        limits = costs.share(drawn, 0.6)
        above += true > costs.highest * limits.high + 1e-9
        below += true < costs.highest * limits.low - 1e-9
    allowed = binom.ppf(0.999, 40, 0.2)
    assert above <= allowed
    assert below <= allowed


def test_bad_costs_are_named():
    def changed(**rows):
        return lambda: Costs.of({**TABLE, **rows}, ("no", "yes"))

    refuses(
        (
            ConfigurationError,
            "'no' where 'yes' is true is missing",
            lambda: Costs.of({"no": TABLE["no"]}, ("no", "yes")),
        ),
        (ConfigurationError, "'no' where 'yes' is true is missing", changed(yes={"yes": 0, "review": 1})),
        (ConfigurationError, "'review' where 'yes' is true is missing", changed(yes={"no": 1, "yes": 0, "review": ""})),
        (ConfigurationError, "'yes' where 'no' is true is -20; .* 0 or more", changed(no={**TABLE["no"], "yes": -20})),
        (ConfigurationError, "is 'much'; give a number", changed(no={**TABLE["no"], "yes": "much"})),
        (ConfigurationError, "is 'nan'", changed(no={**TABLE["no"], "yes": "nan"})),
        (
            ConfigurationError,
            "class in the table of costs='maybe' is not one of: no, yes, review",
            changed(maybe=TABLE["no"]),
        ),
        (ConfigurationError, "costs='perhaps' is not", changed(no={**TABLE["no"], "perhaps": 1})),
        (ConfigurationError, "the cost of a wrong answer or a review is -1", lambda: Costs(wrong=-1.0)),
        (ConfigurationError, "all costs are 0", lambda: Costs(wrong=0.0, review=0.0)),
    )
    wanted = Wanted(kind="cost", score="saving", costs=UNEVEN)
    empty = np.empty(0)
    with pytest.raises(CalibrationError, match="no calibration rows"):
        cost_rule(empty, np.empty((0, 2)), empty > 0, empty > 0, wanted)
