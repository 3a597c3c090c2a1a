"""Who is timed. Each is a function of a model, batches of tokens and a number of passes, and runs over all batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.backbone.checks import check_encoded
from uatlite.backbone.plain import evaluating
from uatlite.backbone.view import view_of
from uatlite.methods import parse_method
from uatlite.passes.adaptive import run_passes
from uatlite.passes.chunks import MEMORY_BUDGET
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import sample

Inputs = Mapping[str, Tensor]
Batches = Sequence[Inputs]
Contender = Callable[[PreTrainedModel, Batches, int], None]


def deterministic(model: PreTrainedModel, batches: Batches, passes: int) -> None:
    """The Hugging Face model in evaluation mode, once."""
    device = next(model.parameters()).device
    with torch.inference_mode(), evaluating(model):
        for batch in batches:
            model(**{name: value.to(device) for name, value in batch.items()})


def train_mode_loop(model: PreTrainedModel, batches: Batches, passes: int) -> None:
    """The plain way to MC dropout: train mode, one forward after the other."""
    device = next(model.parameters()).device
    with torch.inference_mode(), training(model):
        for batch in batches:
            inputs = {name: value.to(device) for name, value in batch.items()}
            for _ in range(passes):
                model(**inputs)


def sequential(model: PreTrainedModel, batches: Batches, passes: int) -> None:
    """UAT-Lite as Algorithm 1 of the paper runs: a forward over the whole batch for each pass."""
    view, config = view_of(model), UATConfig(samples=passes)
    for batch in batches:
        inputs = check_encoded(batch, model, view.architecture)
        for number in range(passes):
            run_passes(view, inputs, config, range(number, number + 1), len(batch["input_ids"]), MEMORY_BUDGET)


def folded(model: PreTrainedModel, batches: Batches, passes: int) -> None:
    """The same passes in one batch."""
    for batch in batches:
        sample(model, batch, UATConfig(samples=passes))


def method(spelling: str) -> Contender:
    """A method by its spelling, with as many passes as it has of its own."""

    def run(model: PreTrainedModel, batches: Batches, passes: int) -> None:
        chosen = parse_method(spelling)
        for batch in batches:
            chosen.run(model, batch)

    return run


BASELINE = "deterministic"
CONTENDERS: dict[str, Contender] = {
    BASELINE: deterministic,
    "Hugging Face loop": train_mode_loop,
    "UAT sequential": sequential,
    "UAT folded": folded,
    "fast": method("fast"),
    "adaptive": method("adaptive"),
    "analytic": method("analytic"),
    "cascade + fast": method("cascade"),
    "cascade + analytic": method("cascade:then=analytic"),
}
GROW_WITH_PASSES = ("Hugging Face loop", "UAT sequential", "UAT folded")
"""Those whose number of passes is the one that was asked for; the others have their own."""


@contextmanager
def training(model: PreTrainedModel) -> Iterator[None]:
    """Switch a model to train mode; afterwards every module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
