"""What a student is taught: divergences and targets against slow references and torch's own."""

from typing import get_args

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch.distributions import Bernoulli, Categorical, kl_divergence

from uatlite.lab.train.dataset import TrainingRows
from uatlite.lab.train.student import LESSONS, class_divergence, label_divergence, taught_by
from uatlite.predictive import PassLogits, margin_direction
from uatlite.values import Kind

RNG = np.random.default_rng(0)


def test_every_kind_is_taught():
    assert set(LESSONS) == set(get_args(Kind))


def test_the_divergence_of_classes_is_that_of_torch_and_its_definition():
    targets = torch.tensor(RNG.dirichlet([0.5] * 4, size=(3, 5)))
    logits = torch.randn(3, 5, 4, dtype=torch.float64)
    expected = kl_divergence(Categorical(targets), Categorical(logits=logits)).mean()
    torch.testing.assert_close(class_divergence(logits, targets), expected)
    p, q = targets.numpy(), logits.softmax(dim=-1).numpy()
    slow = sum(p[i] * np.log(p[i] / q[i]) for i in np.ndindex(p.shape)) / 15
    assert class_divergence(logits, targets).item() == pytest.approx(slow)


def test_nothing_is_taught_where_targets_are_0():
    targets = torch.tensor(RNG.dirichlet([0.5] * 4, size=(2, 3)))
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    some = targets.clone()
    some[0, 1:] = 0.0
    loss = class_divergence(logits, some)
    every = kl_divergence(Categorical(targets), Categorical(logits=logits))
    torch.testing.assert_close(loss, torch.cat([every[0, :1], every[1]]).mean())
    loss.backward()
    assert not logits.grad[0, 1:].any()


def test_the_divergence_of_labels_is_that_of_torch_also_where_a_teacher_is_certain():
    targets = torch.tensor(RNG.random((3, 1, 4)))
    logits = torch.randn(3, 1, 4, dtype=torch.float64)
    expected = kl_divergence(Bernoulli(targets), Bernoulli(logits=logits)).mean()
    torch.testing.assert_close(label_divergence(logits, targets), expected)
    certain = torch.zeros(1, 1, 4, dtype=torch.float64)
    assert label_divergence(certain, certain.clone()).item() == pytest.approx(np.log(2))


@pytest.mark.parametrize("kind", LESSONS)
def test_the_loss_is_0_and_without_slope_at_the_teacher_itself(kind):
    lesson, logits = LESSONS[kind], torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor(lesson.probabilities(logits.detach().numpy()))
    loss = lesson.loss(logits, targets)
    loss.backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-12)
    assert logits.grad.abs().max() < 1e-12


def test_passes_teach_the_mean_of_their_probabilities():
    logits = RNG.normal(size=(3, 2, 4))
    said = taught_by(PassLogits(logits), LESSONS["one"])
    exponentials = np.exp(logits)
    np.testing.assert_allclose(said, (exponentials / exponentials.sum(axis=-1, keepdims=True)).mean(axis=0))
    np.testing.assert_allclose(taught_by(PassLogits(logits), LESSONS["labels"]), (1 / (1 + 1 / exponentials)).mean(0))


@pytest.mark.parametrize("kind", ["one", "labels"])
def test_a_known_variance_teaches_the_mean_over_its_gaussian(kind):
    lesson, logits = LESSONS[kind], RNG.normal(size=(1, 2, 3))
    variance = RNG.uniform(0.2, 2.0, size=(2, 3 if kind == "labels" else 1))
    said = taught_by(PassLogits(logits, variance), lesson)
    moves = np.sqrt(variance) * (1.0 if kind == "labels" else margin_direction(logits[0]))
    for row, column in np.ndindex(2, 3):

        def density(z, row=row, column=column):
            return lesson.probabilities(logits[0, row] + z * moves[row])[column] * norm.pdf(z)

        assert said[row, column] == pytest.approx(quad(density, -10, 10)[0], abs=1e-6)


def test_a_batch_has_targets_as_wide_as_its_tokens(tokenizer, made_texts):
    from uatlite.model.tokens import tokenize

    tokens = tokenize(tokenizer, made_texts(4), 40)
    targets = [RNG.random((length, 5)).astype(np.float32) for length in tokens.lengths]
    batch = TrainingRows(tokens, targets).batch([2, 0, 1])
    assert batch["labels"].shape == (*batch["input_ids"].shape, 5)
    for row, i in zip(batch["labels"].numpy(), [2, 0, 1], strict=True):
        np.testing.assert_array_equal(row[: tokens.lengths[i]], targets[i])
        assert not row[tokens.lengths[i] :].any()
