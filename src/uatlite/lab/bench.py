"""The benchmark of costs: contenders timed on the user's texts, and how each grows with passes, length and texts.

A contender is a function of a model, batches of tokens and a number of passes; it runs over all batches.
"""

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError, InputError
from uatlite.lab.bench_timing import BenchResults, Curve, OnStep, Runs, exponent, seconds, take_turns
from uatlite.lab.report.figures import SERIES, figure_of, themed
from uatlite.methods.registry import parse_method
from uatlite.model.architectures import check_encoded
from uatlite.model.load import Checkpoint
from uatlite.model.plain import evaluating
from uatlite.model.tokens import BATCH_TOKENS, Tokens, longest, tokenize
from uatlite.model.view import view_of
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import MEMORY_BUDGET, run_passes, sample
from uatlite.text.write import make_directory, write_text
from uatlite.values import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """MC dropout the plain way: train mode, one forward after the other."""
    device = next(model.parameters()).device
    with torch.inference_mode(), training(model):
        for batch in batches:
            inputs = {name: value.to(device) for name, value in batch.items()}
            for _ in range(passes):
                model(**inputs)


def sequential(model: PreTrainedModel, batches: Batches, passes: int) -> None:
    """UAT-Lite as in Algorithm 1 of the paper: a forward over the whole batch for each pass."""
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
    """A method by its spelling, with its own number of passes."""

    def contender(model: PreTrainedModel, batches: Batches, passes: int) -> None:
        chosen = parse_method(spelling)
        for batch in batches:
            chosen.run(model, batch)

    return contender


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
"""These run the number of passes of the plan; the others have their own."""


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


BATCH_SIZES = (8, 16, 32, 64, 128)
"""All contenders use the size at which the deterministic pass is fastest."""
PASSES = (2, 4, 8, 16)
LENGTHS = (16, 32, 64, 128, 256)
CURVE_TEXTS, CURVE_TOKENS = 16, 32
"""Texts at each point of the curves over passes and length, and their tokens in the curve over passes."""
CURVE_CONTENDERS = (BASELINE, "UAT folded", "fast", "analytic")

OnResults = Callable[[BenchResults], None]


@dataclass(frozen=True)
class BenchPlan:
    """How much is measured."""

    passes: int = 10
    rounds: int = 3
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    curves: bool = True

    def __post_init__(self) -> None:
        if self.passes < 2 or self.rounds < 1:
            raise ConfigurationError(
                f"passes={self.passes}, rounds={self.rounds}: allowed are 2 passes or more and 1 round or more."
            )


def run_bench(
    checkpoint: Checkpoint,
    texts: Sequence[Text],
    plan: BenchPlan,
    on_step: OnStep = lambda step: None,
    on_results: OnResults = lambda results: None,
) -> BenchResults:
    """Time the contenders on texts, by turns; `on_results` gets the results so far after each part."""
    if not texts:
        raise InputError("there are no texts to time; give a file with some.")
    tokens = tokenize(checkpoint.tokenizer, texts, longest(checkpoint.model, checkpoint.tokenizer))
    on_step("finding the batch size at which the deterministic pass is fastest")
    sizes = _over_batch(checkpoint, tokens, plan, on_step)
    batch = min(zip(sizes.seconds[BASELINE], sizes.sizes, strict=True))[1]
    results = BenchResults(
        model=checkpoint.name,
        texts=len(texts),
        tokens=sum(tokens.lengths),
        passes=plan.passes,
        rounds=plan.rounds,
        batch=batch,
        machine=_machine(),
        contenders=take_turns(
            _runs(checkpoint, _batches(tokens, batch), plan, plan.contenders), BASELINE, plan.rounds, on_step
        ),
        curves=(sizes,),
    )
    on_results(results)
    for measure in (_over_passes, _over_tokens, _over_texts) if plan.curves else ():
        results = replace(results, curves=(*results.curves, measure(checkpoint, tokens, plan, on_step)))
        on_results(results)
    return results


def _batches(tokens: Tokens, size: int, rows: Sequence[int] | None = None) -> Batches:
    """Batches of similar length, of at most `size` texts."""
    most = max(BATCH_TOKENS, size * max(tokens.lengths))
    return [batch.inputs for batch in tokens.batches(rows, most_tokens=most, most_texts=size)]


def _runs(checkpoint: Checkpoint, batches: Batches, plan: BenchPlan, names: Sequence[str]) -> Runs:
    chosen = [BASELINE, *(name for name in names if name != BASELINE)]
    return {name: partial(CONTENDERS[name], checkpoint.model, batches, plan.passes) for name in chosen}


def _curve(over: str, sizes: Sequence[int], runs_at: Callable[[int], Runs], rounds: int, on_step: OnStep) -> Curve:
    """Time the same contenders at each size, by the fastest of the rounds, and fit how they grow."""
    taken: dict[str, list[float]] = {}
    for size in sizes:
        on_step(f"how costs grow with {over}: {size}")
        runs = runs_at(size)
        for run in runs.values():
            run()
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(rounds):
            for name, run in runs.items():
                best[name] = min(best[name], seconds(run))
        for name, value in best.items():
            taken.setdefault(name, []).append(value)
    exponents = {name: exponent(sizes, values) for name, values in taken.items()} if len(sizes) > 1 else {}
    return Curve(over, tuple(sizes), {name: tuple(values) for name, values in taken.items()}, exponents)


def _over_batch(checkpoint: Checkpoint, tokens: Tokens, plan: BenchPlan, on_step: OnStep) -> Curve:
    sizes = [size for size in BATCH_SIZES if size <= max(len(tokens), BATCH_SIZES[0])]
    names = [BASELINE] if not plan.curves else [BASELINE, "UAT folded"]
    return _curve(
        "batch", sizes, lambda size: _runs(checkpoint, _batches(tokens, size), plan, names), plan.rounds, on_step
    )


def _over_passes(checkpoint: Checkpoint, tokens: Tokens, plan: BenchPlan, on_step: OnStep) -> Curve:
    batches = [_of_length(tokens, min(CURVE_TOKENS, longest(checkpoint.model, checkpoint.tokenizer)))]

    def runs_at(passes: int) -> Runs:
        return {name: partial(CONTENDERS[name], checkpoint.model, batches, passes) for name in GROW_WITH_PASSES}

    return _curve("passes", PASSES, runs_at, plan.rounds, on_step)


def _over_tokens(checkpoint: Checkpoint, tokens: Tokens, plan: BenchPlan, on_step: OnStep) -> Curve:
    most = longest(checkpoint.model, checkpoint.tokenizer)
    lengths = [length for length in LENGTHS if length <= most]

    def runs_at(length: int) -> Runs:
        return _runs(checkpoint, [_of_length(tokens, length)], plan, CURVE_CONTENDERS)

    return _curve("tokens", lengths, runs_at, plan.rounds, on_step)


def _of_length(tokens: Tokens, length: int) -> Inputs:
    """A batch of the longest texts, cut or repeated to `length` tokens."""
    rows = tokens.by_length()[-CURVE_TEXTS:]
    places = torch.arange(length) % min(tokens.lengths[row] for row in rows)
    return {name: value[..., places] for name, value in tokens.pad(rows).items()}


def _over_texts(checkpoint: Checkpoint, tokens: Tokens, plan: BenchPlan, on_step: OnStep) -> Curve:
    """The texts once, twice and four times over."""
    every = list(range(len(tokens)))
    some = every[: max(1, len(every) // 4)]

    def runs_at(size: int) -> Runs:
        batches = [batch for _ in range(size // len(some)) for batch in _batches(tokens, CURVE_TEXTS, some)]
        return _runs(checkpoint, batches, plan, CURVE_CONTENDERS)

    return _curve("texts", [len(some) * times for times in (1, 2, 4)], runs_at, plan.rounds, on_step)


def _machine() -> dict[str, str]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
    return {
        "device": device,
        "threads": f"{torch.get_num_threads()} threads",
        "torch": f"torch {torch.__version__.split('+')[0]}",
        "system": platform.system(),
    }


AXES = {"batch": "Texts of a batch", "passes": "Passes M", "tokens": "Tokens of a text", "texts": "Texts"}
COLOURS = {name: SERIES[place % len(SERIES)] for place, name in enumerate(CONTENDERS)}


def draw(results: BenchResults) -> "Figure":
    """Seconds on logarithmic axes, a panel for each curve; the number after a name is its exponent."""
    figure, axes = figure_of(3.4 * len(results.curves), 3.4, ncols=len(results.curves), squeeze=False)
    for panel, curve in zip(axes[0], results.curves, strict=True):
        for name, values in curve.seconds.items():
            power = "" if curve.over == "batch" else f", {curve.exponents[name]:.2f}"
            panel.plot(curve.sizes, values, "o-", color=COLOURS[name], markersize=4, label=f"{name}{power}")
        panel.set(xscale="log", yscale="log", xlabel=AXES[curve.over], ylabel="Seconds")
        panel.set_xticks(curve.sizes, [str(size) for size in curve.sizes])
        panel.minorticks_off()
        panel.legend(fontsize=7.5, handlelength=1.6)
    return figure


def write(results: BenchResults, directory: Path) -> None:
    """Write bench.json, bench.md, bench.svg and bench.png."""
    make_directory(directory)
    write_text(directory / "bench.json", json.dumps(results.to_dict(), indent=2) + "\n")
    write_text(directory / "bench.md", "\n".join(results.lines()) + "\n")
    save(results, directory)


def save(results: BenchResults, directory: Path) -> list[Path]:
    """Write the figure as SVG and PNG."""
    paths = [directory / "bench.svg", directory / "bench.png"]
    with themed():
        figure = draw(results)
        for path in paths:
            figure.savefig(path, dpi=150, facecolor="white")
    return paths
