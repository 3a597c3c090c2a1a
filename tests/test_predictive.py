"""The predictive distribution against loops over passes, and the laws that it must keep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import entropy as scipy_entropy

from uatlite.errors import InputError
from uatlite.predictive import (
    NODE_WEIGHTS,
    NODES,
    margin_direction,
    margin_variance,
    predict,
    softmax,
    summarise,
    summarise_gaussian,
)

LOGITS = np.random.default_rng(0).normal(size=(7, 20, 4)) * 3


def test_each_part_by_its_definition():
    found = predict(LOGITS)
    for row in range(20):
        passes = [np.exp(z) / np.exp(z).sum() for z in LOGITS[:, row]]
        mean = LOGITS[:, row].mean(axis=0)
        prediction = np.exp(mean) / np.exp(mean).sum()
        top = int(prediction.argmax())
        total, expected = scipy_entropy(np.mean(passes, axis=0)), np.mean([scipy_entropy(p) for p in passes])
        assert found.probabilities[row] == pytest.approx(prediction)
        assert found.predicted[row] == top
        assert found.confidence[row] == pytest.approx(prediction.max())
        assert found.margin[row] == pytest.approx(np.sort(prediction)[-1] - np.sort(prediction)[-2])
        assert found.entropy[row] == pytest.approx(total)
        assert found.expected_entropy[row] == pytest.approx(expected)
        assert found.mutual_information[row] == pytest.approx(total - expected)
        assert found.variance[row] == pytest.approx(np.var([p[top] for p in passes], ddof=1))


@given(arrays(np.float64, (3, 2, 4), elements=st.floats(-1e4, 1e4)))
def test_the_laws_hold_for_any_logits(logits):
    found = predict(logits)
    assert found.probabilities.sum(axis=1) == pytest.approx(1)
    assert (found.mutual_information >= 0).all()
    assert found.mutual_information == pytest.approx(found.entropy - found.expected_entropy, abs=1e-12)
    assert (found.entropy <= np.log(4) + 1e-12).all()
    assert ((found.margin >= 0) & (found.margin <= found.confidence)).all()


def test_passes_that_agree_carry_no_epistemic_uncertainty():
    found = predict(np.repeat(LOGITS[:1], 5, axis=0))
    assert (found.mutual_information < 1e-15).all()
    assert (found.variance < 1e-30).all()


def test_one_pass_and_one_class():
    single = predict(LOGITS[:1])
    assert single.probabilities == pytest.approx(softmax(LOGITS[0]))
    for unknown in (single.variance, single.mutual_information, single.expected_entropy):
        assert np.isnan(unknown).all()
    alone = predict(LOGITS[:, :, :1])
    assert (alone.probabilities == 1).all()
    assert (alone.margin == 1).all()
    assert (alone.entropy == 0).all()


def test_logits_beyond_the_range_of_exp():
    found = predict(np.array([[[1000.0, -1000.0]]]))
    assert found.probabilities.tolist() == [[1, 0]]
    assert found.entropy.tolist() == [0]


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.zeros((2, 3)), r"shape \(2, 3\); allowed is \(passes, rows, classes\).*logits\[None\]"),
        (np.zeros((0, 2, 3)), r"shape \(0, 2, 3\)"),
        (np.array([[[0.0, np.nan]]]), r"logits\[0, 0, 1\] is nan"),
    ],
)
def test_bad_logits_are_refused(logits, message):
    with pytest.raises(InputError, match=message):
        predict(logits)


def test_margin_variances_are_those_of_the_two_best_classes():
    logits = np.random.default_rng(1).normal(size=(5, 40, 3))
    for row, variance in enumerate(margin_variance(logits)):
        first, second = np.argsort(-logits[:, row].mean(axis=0))[:2]
        assert variance == pytest.approx((logits[:, row, first] - logits[:, row, second]).var(ddof=1))


def test_a_gaussian_margin_agrees_with_many_sampled_passes():
    rng = np.random.default_rng(5)
    logits, variance = rng.normal(0, 2, (40, 4)), rng.uniform(0.05, 6.0, 40)
    found = summarise_gaussian(logits, variance)
    draws = rng.standard_normal(40_000)
    for row in range(40):
        first, second = np.argsort(-logits[row])[:2]
        passes = np.repeat(logits[None, row], len(draws), axis=0)
        passes[:, first] += draws * np.sqrt(variance[row]) / 2
        passes[:, second] -= draws * np.sqrt(variance[row]) / 2
        sampled = summarise(softmax(logits[row : row + 1]), softmax(passes)[:, None], logits[row : row + 1])
        for name in ("entropy", "expected_entropy", "mutual_information", "variance"):
            assert getattr(found, name)[row] == pytest.approx(getattr(sampled, name)[0], abs=6e-3), name
    assert found.probabilities == pytest.approx(softmax(logits))


def test_a_gaussian_is_summarised_in_one_call_as_node_by_node():
    """`apply` may depend on the row, as a calibrator does that knows each row's variance; exactly the same numbers."""
    rng = np.random.default_rng(6)
    logits, variance, scales = rng.normal(0, 2, (5, 3)), rng.uniform(0.05, 6.0, 5), rng.uniform(0.5, 2.0, 5)
    calls = []

    def apply(given, rows):
        calls.append(len(given))
        return softmax(given * scales[rows][:, None])

    found = summarise_gaussian(logits, variance, apply)
    assert calls == [5, 5 * len(NODES)]
    rows, step = np.arange(5), margin_direction(logits) * np.sqrt(variance)[:, None]
    passes = np.stack([apply(logits + node * step, rows) for node in NODES])
    expected = summarise(apply(logits, rows), passes, logits, NODE_WEIGHTS)
    for name, values in vars(expected).items():
        np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)


def test_an_unknown_variance_leaves_the_other_measures():
    logits = np.array([[2.0, 0.0, -1.0], [0.5, 0.4, 0.3]])
    found = summarise_gaussian(logits, np.array([0.0, 1.0]))
    assert np.isnan(found.mutual_information).tolist() == [True, False]
    assert np.isnan(found.variance).tolist() == [True, False]
    assert found.entropy[0] == pytest.approx(predict(logits[None, :1]).entropy[0])
