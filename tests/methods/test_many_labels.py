"""Models of many labels: the passes of each method, the variance of each label's logit, and its read-out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.attribution.case import Case, LabelLogit
from uatlite.attribution.first_order import first_order
from uatlite.methods.distilled import DISTILLED, Distilled
from uatlite.methods.method import CalibrationRows, Method
from uatlite.methods.one_pass import ANALYTIC
from uatlite.methods.read_out import OFFSET, fit_read_out, label_features_of, sampling_noise
from uatlite.methods.registry import method_from_dict, parse_method
from uatlite.predictive import PassLogits
from uatlite.values import Floats

Encoded = dict[str, Tensor]
Shared = Callable[..., PreTrainedModel]
MANY: dict[str, Any] = {"problem_type": "multi_label_classification"}


@pytest.mark.parametrize("name", ["base", "mc-uniform", "uat", "fast", "analytic", "distilled", "distilled:of=fast"])
def test_passes_are_those_of_the_same_weights_with_one_class(
    name: str, shared: Shared, texts: Callable[..., Encoded]
) -> None:
    """The meaning of the logits differs and nothing else: the logits of every pass are equal."""
    method, batch = parse_method(name), texts((9, 5, 7))
    many = method.run(shared("bert", **MANY), batch)
    one = method.run(shared("bert"), batch)
    torch.testing.assert_close(many.logits, one.logits)
    assert many.logits.shape[1:] == (3, 3)
    if method.passes == 1 and method.knows_variance:
        assert many.margin_variance is not None
        assert many.margin_variance.shape == (3, 3)


def test_a_text_has_the_same_variances_in_every_batch(architecture: str, tiny: Shared, texts: Any) -> None:
    model, batch = tiny(architecture, **MANY), texts((9, 5, 7))
    together = ANALYTIC.run(model, batch).margin_variance
    assert together is not None
    for place in range(3):
        alone = ANALYTIC.run(model, {key: value[place : place + 1] for key, value in batch.items()}).margin_variance
        torch.testing.assert_close(alone, together[place : place + 1], rtol=1e-3, atol=1e-6)
    case = Case.of(model, batch, ANALYTIC.config)
    for label in range(3):
        torch.testing.assert_close(first_order(case, LabelLogit(label)).parts.sum(dim=1), together[:, label])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_first_order_variance_is_that_of_little_dropout(shared: Shared, texts: Callable[..., Encoded]) -> None:
    """Where few units are dropped, many sampled passes have the first-order variance."""
    rates = "embedding=0.001,attention=0.001,feed_forward=0.001,classifier=0.001,gate=none"
    model, batch = shared("bert", **MANY), texts((6,))
    analytic = parse_method(f"analytic:{rates}").run(model, batch).margin_variance
    sampled = parse_method(f"uat:{rates},samples=6000").run(model, batch).logits
    assert analytic is not None
    torch.testing.assert_close(sampled.var(dim=0), analytic, rtol=0.15, atol=0.0)


def made(rows: int, noise: float) -> tuple[PassLogits, Floats]:
    """A plain pass, and variances (rows, 3) whose logarithm is linear in what it read, but for some noise."""
    rng = np.random.default_rng(0)
    read = rng.normal(size=(rows, 8))
    logs = read @ rng.normal(size=(8, 3)) / 3 - 1 + noise * rng.normal(size=(rows, 3))
    return PassLogits(rng.normal(0, 2, (1, rows, 3)), representations=read), np.exp(logs)


def rows_of(plain: PassLogits, variance: Floats) -> CalibrationRows:
    def run(method: Method) -> PassLogits:
        return PassLogits(plain.logits, variance) if method == ANALYTIC else plain

    return CalibrationRows(np.zeros(variance.shape, dtype=np.int64), run)


def test_a_label_is_read_as_it_would_be_alone() -> None:
    plain, variance = made(150, 0.5)
    features = label_features_of(plain)
    together, left_out = fit_read_out(features, variance, 100)
    for label in range(3):
        alone, own = fit_read_out(features, variance[:, label], 100)
        assert together.variance(features)[:, label] == pytest.approx(alone.variance(features), rel=1e-9)
        assert left_out[:, label] == pytest.approx(own, rel=1e-9)


def test_the_read_out_of_many_labels_is_a_ridge_regression() -> None:
    plain, variance = made(150, 0.5)
    features, y = label_features_of(plain), np.log(variance + OFFSET)
    assert features.shape == (150, 8 + 3 + 3)
    x = (features - features.mean(axis=0)) / features.std(axis=0)
    found, _ = fit_read_out(features, variance, 150)
    refits = [Ridge(10.0**power).fit(x, y).predict(x) for power in np.linspace(-2, 6, 33)]
    logs = np.log(found.variance(features) + OFFSET)
    for label in range(3):
        within = [np.clip(one[:, label], y[:, label].min(), y[:, label].max()) for one in refits]
        assert min(np.abs(logs[:, label] - one).max() for one in within) < 1e-6


def test_distilled_reads_every_label_and_is_stored() -> None:
    plain, variance = made(400, 0.2)
    tuned = DISTILLED.tuned(rows_of(plain, variance))
    method = tuned.method
    assert isinstance(method, Distilled)
    assert method.reads
    assert method.cost == 1
    said = method.read_from(plain)
    assert said is not None
    assert said.given_variance is not None
    assert said.given_variance.shape == (400, 3)
    for label in range(3):
        assert np.corrcoef(np.log(said.given_variance[:, label]), np.log(variance[:, label]))[0, 1] > 0.9
    again = method_from_dict(method.to_dict()).with_arrays(method.to_arrays())
    read = again.read_from(plain)
    assert read is not None
    assert (read.given_variance == said.given_variance).all()


def test_the_variance_over_passes_is_that_of_each_logit() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 4, 3))
    found = PassLogits(logits).label_variance
    assert found is not None
    assert found[2, 1] == pytest.approx(np.var(logits[:, 2, 1], ddof=1))
    assert PassLogits(logits[:1]).label_variance is None


def test_r2_leaves_out_the_noise_of_few_passes() -> None:
    """Of variances from five passes R² is that of the variances which many passes would have."""
    plain, truth = made(3000, 0.6)
    logits = np.random.default_rng(1).normal(size=(5, 3000, 3)) * np.sqrt(truth)
    found, _ = fit_read_out(label_features_of(plain), PassLogits(logits).label_variance, 3000, sampling_noise(5))  # type: ignore[arg-type]
    exact, _ = fit_read_out(label_features_of(plain), truth, 3000)
    rough, _ = fit_read_out(label_features_of(plain), PassLogits(logits).label_variance, 3000)  # type: ignore[arg-type]
    assert found.r2 == pytest.approx(exact.r2, abs=0.03)
    assert rough.r2 < exact.r2 - 0.2
    draws = np.log(np.random.default_rng(2).normal(size=(5, 40_000)).var(axis=0, ddof=1))
    assert sampling_noise(5) == pytest.approx(draws.var(), rel=0.03)
    assert sampling_noise(1) == 0


@pytest.mark.parametrize("spelling", ["distilled:of=fast,per_input=true", "distilled:of=fast"])
def test_noise_is_taken_out_only_where_texts_have_masks_of_their_own(spelling: str) -> None:
    plain, truth = made(400, 0.3)
    logits = np.random.default_rng(1).normal(size=(5, 400, 3)) * np.sqrt(truth)
    rows = CalibrationRows(
        np.zeros((400, 3), dtype=np.int64), lambda method: plain if method.passes == 1 else PassLogits(logits)
    )
    method = parse_method(spelling).tuned(rows).method
    assert isinstance(method, Distilled)
    assert method.read_out is not None
    variance = PassLogits(logits).label_variance
    assert variance is not None
    expected, _ = fit_read_out(
        label_features_of(plain), variance, 400, sampling_noise(5) if "per_input" in spelling else 0.0
    )
    assert method.read_out.r2 == expected.r2


@pytest.mark.parametrize("rows", [200, 40])
def test_where_the_variances_of_labels_cannot_be_read_the_plain_pass_runs(
    rows: int, shared: Shared, texts: Callable[..., Encoded]
) -> None:
    plain, variance = made(rows, 9.0)
    tuned = DISTILLED.tuned(rows_of(plain, variance))
    assert "the plain pass runs, without variances" in tuned.reason
    assert tuned.outputs is plain
    again = method_from_dict(tuned.method.to_dict()).with_arrays(tuned.method.to_arrays())
    for method in (tuned.method, again):
        assert (method.passes, method.cost, method.sampled) == (1, 1, None)
        assert method.read_from(plain) is plain
        found = method.run(shared("bert", **MANY), texts((4,)))
        assert found.logits.shape[0] == 1
        assert found.margin_variance is None
