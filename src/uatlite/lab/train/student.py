"""A student is taught the probabilities of its teachers, by the KL divergence and the Trainer; the kinds' `LESSONS`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import PreTrainedModel
from transformers.trainer_callback import PrinterCallback

from uatlite.lab.train.dataset import TrainingRows
from uatlite.lab.train.fine_tune import (
    Advance,
    MethodTrainer,
    StepCallback,
    isolated,
    last_checkpoint,
    training_arguments,
)
from uatlite.lab.train.recipe import PLAIN, Recipe
from uatlite.predictive import NODE_WEIGHTS, NODES, PassLogits, margin_direction, sigmoid, softmax
from uatlite.values import Floats, Kind

CHECKPOINTS_OF_A_RUN = 10
"""A killed run loses at most this part of its steps."""


def class_divergence(logits: Tensor, targets: Tensor) -> Any:
    """Σ p log(p/q), the mean over answers with targets, which are not all 0: (batch, answers, classes) both."""
    terms = torch.special.xlogy(targets, targets) - targets * logits.log_softmax(dim=-1)
    return terms.sum() / targets.sum().clamp(min=1.0)


def label_divergence(logits: Tensor, targets: Tensor) -> Any:
    """p log(p/q) + (1-p) log((1-p)/(1-q)), the mean over texts and labels: (batch, answers, labels)."""
    entropies = torch.special.entr(targets) + torch.special.entr(1 - targets)
    return (binary_cross_entropy_with_logits(logits, targets, reduction="none") - entropies).mean()


@dataclass(frozen=True)
class Lesson:
    """What is taught to a model of one kind of answers."""

    loss: Callable[[Tensor, Tensor], Any]
    """of logits and targets, (batch, answers, classes) both"""
    probabilities: Callable[[Floats], Floats]
    answers: Callable[[NDArray[Any]], NDArray[Any]]
    """what is said by probabilities (answers, classes)"""
    direction: Callable[[Floats], Floats] | None = None
    """mean logits (batch, classes) -> how a known variance moves them; None where tokens are taught"""


def _likeliest(probabilities: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(probabilities.argmax(axis=-1))


_CLASS = Lesson(class_divergence, softmax, _likeliest, margin_direction)
LESSONS: Mapping[Kind, Lesson] = {
    "one": _CLASS,
    "choice": _CLASS,
    "labels": Lesson(label_divergence, sigmoid, lambda probabilities: probabilities > 0.5, np.ones_like),
    "entities": Lesson(class_divergence, softmax, _likeliest),
}


def taught_by(passes: PassLogits, lesson: Lesson) -> Floats:
    """The mean probabilities of passes, (batch, ..., classes); over the Gaussian of a variance known without them."""
    if passes.given_variance is None or lesson.direction is None:
        return np.asarray(lesson.probabilities(passes.logits).mean(axis=0))
    spread = lesson.direction(passes.mean_logits) * np.sqrt(passes.given_variance)
    return np.tensordot(NODE_WEIGHTS, lesson.probabilities(passes.mean_logits + NODES[:, None, None] * spread), axes=1)


def teach(
    model: PreTrainedModel,
    rows: TrainingRows,
    lesson: Lesson,
    recipe: Recipe,
    directory: Path,
    *,
    seed: int = 0,
    advance: Advance = lambda steps: None,
) -> None:
    """Train a model towards the targets of rows; it goes on from the last checkpoint in the directory."""

    def loss(outputs: Any, targets: Tensor, num_items_in_batch: Any = None) -> Any:
        return lesson.loss(outputs.logits.float().view_as(targets), targets)

    every = -(-recipe.steps(len(rows)) // CHECKPOINTS_OF_A_RUN)
    arguments = training_arguments(recipe, seed, directory, model.device, every)
    options = {"train_dataset": rows, "compute_loss_func": loss}
    trainer = MethodTrainer(PLAIN, recipe, model, arguments, lambda batch: batch, **options)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(StepCallback(PLAIN, advance))
    with isolated(model.device):
        trainer.train(resume_from_checkpoint=last_checkpoint(directory))
    model.eval()
