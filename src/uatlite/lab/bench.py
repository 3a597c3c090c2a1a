"""The benchmark of costs: contenders timed on the user's texts, and how each grows with passes, length and texts.

A contender is a function of a model, batches of tokens and a number of passes; it runs over all batches.
"""

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
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
from uatlite.methods.distilled import DISTILLED, FEWEST_TEXTS, ReadOut, features_of
from uatlite.methods.registry import parse_method
from uatlite.methods.sampling import BASE
from uatlite.model.architectures import check_encoded, check_one_answer
from uatlite.model.load import Checkpoint
from uatlite.model.plain import in_mode
from uatlite.model.tokens import BATCH_TOKENS, Tokens, longest, tokenize
from uatlite.model.view import view_of
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import Chunk, run_chunk, sample
from uatlite.text.write import make_directory, write_text
from uatlite.values import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Batches = list[Mapping[str, Tensor]]
Contender = Callable[[PreTrainedModel, Batches, int], None]


def deterministic(model: PreTrainedModel, batches: Batches, passes: int) -> None:
    """The Hugging Face model in evaluation mode, once."""
    device = next(model.parameters()).device
    with torch.inference_mode(), in_mode(model, training=False):
        for batch in batches:
            model(**{name: value.to(device) for name, value in batch.items()})


def train_mode_loop(model: PreTrainedModel, batches: Batches, passes: int) -> None:
    """MC dropout the plain way: train mode, one forward after the other."""
    device = next(model.parameters()).device
    with torch.inference_mode(), in_mode(model, training=True):
        for batch in batches:
            inputs = {name: value.to(device) for name, value in batch.items()}
            for _ in range(passes):
                model(**inputs)


def sequential(model: PreTrainedModel, batches: Batches, passes: int) -> None:
    """UAT-Lite as in Algorithm 1 of the paper: a forward over the whole batch for each pass."""
    view, config = view_of(model), UATConfig(samples=passes)
    for batch in batches:
        inputs = check_encoded(batch, model)
        texts, tokens = inputs["input_ids"].shape
        one_by_one = tuple(range(number, number + 1) for number in range(passes))
        run_chunk(view, inputs, Chunk(torch.arange(texts), tokens, one_by_one), config)


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


def distilled(model: PreTrainedModel, batches: Batches, passes: int) -> None:
    """The default method as calibrated: the plain pass, and the variance read off it.

    The read-out has learned nothing, which does not change its cost.
    """
    for batch in batches:
        plain = BASE.run(model, batch)
        outputs = plain.arrays()
        read_out = ReadOut.empty("one", FEWEST_TEXTS, features_of(outputs).shape[1], quality=1.0)
        replace(DISTILLED, read_out=read_out).read_from(outputs)


BASELINE = "deterministic"
CONTENDERS: dict[str, Contender] = {
    BASELINE: deterministic,
    "Hugging Face loop": train_mode_loop,
    "UAT sequential": sequential,
    "UAT folded": folded,
    "fast": method("fast"),
    "analytic": method("analytic"),
    "distilled": distilled,
}
GROW_WITH_PASSES = ("Hugging Face loop", "UAT sequential", "UAT folded")
"""These run the number of passes of the plan; the others have their own."""


BATCH_SIZES = (8, 16, 32, 64, 128)
"""All contenders use the size at which the deterministic pass is fastest."""
PASSES = (2, 4, 8, 16)
LENGTHS = (16, 32, 64, 128, 256)
CURVE_TEXTS, CURVE_TOKENS = 16, 32
"""Texts at each point of the curves over passes and length, and their tokens in the curve over passes."""
CURVE_CONTENDERS = (BASELINE, "UAT folded", "fast", "analytic", "distilled")

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
    """Time the contenders on texts, interleaved; `on_results` gets the results so far after each part."""
    if not texts:
        raise InputError("there are no texts to time; give a file with some.")
    check_one_answer(checkpoint.model, "Methods that stop early or read a margin are about one answer.")
    tokens = tokenize(checkpoint.tokenizer, texts, longest(checkpoint.model, checkpoint.tokenizer))
    bench = _Bench(checkpoint, tokens, plan, on_step)
    on_step("finding the batch size at which the deterministic pass is fastest")
    sizes = bench.over_batch()
    batch = min(zip(sizes.seconds[BASELINE], sizes.sizes, strict=True))[1]
    names = list(dict.fromkeys((BASELINE, *plan.contenders)))
    results = BenchResults(
        model=checkpoint.name,
        texts=len(texts),
        tokens=sum(tokens.lengths),
        passes=plan.passes,
        rounds=plan.rounds,
        batch=batch,
        machine=_machine(),
        contenders=take_turns(bench.runs(bench.batches(batch), names), BASELINE, plan.rounds, on_step),
        curves=(sizes,),
    )
    on_results(results)
    for measure in (bench.over_passes, bench.over_tokens, bench.over_texts) if plan.curves else ():
        results = replace(results, curves=(*results.curves, measure()))
        on_results(results)
    return results


@dataclass(frozen=True)
class _Bench:
    """A model, the tokens of the texts, and what is measured on them."""

    checkpoint: Checkpoint
    tokens: Tokens
    plan: BenchPlan
    on_step: OnStep

    def batches(self, size: int, rows: Sequence[int] | None = None) -> Batches:
        """Batches of similar length, of at most `size` texts."""
        most = max(BATCH_TOKENS, size * max(self.tokens.lengths))
        return [batch.inputs for batch in self.tokens.batches(rows, most_tokens=most, most_texts=size)]

    def of_length(self, length: int) -> Batches:
        """One batch of the longest texts, cut or repeated to `length` tokens."""
        rows = self.tokens.by_length()[-CURVE_TEXTS:]
        places = torch.arange(length) % min(self.tokens.lengths[row] for row in rows)
        return [{name: value[..., places] for name, value in self.tokens.pad(rows).items()}]

    def runs(self, batches: Batches, names: Sequence[str], passes: int | None = None) -> Runs:
        """The contenders of these names over the batches."""
        model, passes = self.checkpoint.model, passes or self.plan.passes
        return {name: partial(CONTENDERS[name], model, batches, passes) for name in names}

    def curve(self, over: str, sizes: Sequence[int], runs_at: Callable[[int], Runs]) -> Curve:
        """Time the same contenders at each size, by the fastest of the rounds, and fit how they grow."""
        taken: dict[str, list[float]] = {}
        for size in sizes:
            self.on_step(f"how costs grow with {over}: {size}")
            runs = runs_at(size)
            for run in runs.values():
                run()
            rounds = [{name: seconds(run) for name, run in runs.items()} for _ in range(self.plan.rounds)]
            for name in runs:
                taken.setdefault(name, []).append(min(times[name] for times in rounds))
        exponents = {name: exponent(sizes, values) for name, values in taken.items()} if len(sizes) > 1 else {}
        return Curve(over, tuple(sizes), {name: tuple(values) for name, values in taken.items()}, exponents)

    def over_batch(self) -> Curve:
        sizes = [size for size in BATCH_SIZES if size <= max(len(self.tokens), BATCH_SIZES[0])]
        names = [BASELINE, "UAT folded"] if self.plan.curves else [BASELINE]
        return self.curve("batch", sizes, lambda size: self.runs(self.batches(size), names))

    def over_passes(self) -> Curve:
        batches = self.of_length(min(CURVE_TOKENS, self._longest))
        return self.curve("passes", PASSES, lambda passes: self.runs(batches, GROW_WITH_PASSES, passes))

    def over_tokens(self) -> Curve:
        lengths = [length for length in LENGTHS if length <= self._longest]
        return self.curve("tokens", lengths, lambda length: self.runs(self.of_length(length), CURVE_CONTENDERS))

    def over_texts(self) -> Curve:
        """A quarter of the texts once, twice and four times over."""
        some = range(max(1, len(self.tokens) // 4))
        once = self.batches(CURVE_TEXTS, some)
        sizes = [len(some) * times for times in (1, 2, 4)]
        return self.curve("texts", sizes, lambda size: self.runs(once * (size // len(some)), CURVE_CONTENDERS))

    @property
    def _longest(self) -> int:
        return longest(self.checkpoint.model, self.checkpoint.tokenizer)


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
    with themed():
        figure = draw(results)
        for name in ("bench.svg", "bench.png"):
            figure.savefig(directory / name, dpi=150, facecolor="white")
