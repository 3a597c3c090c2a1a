"""The benchmark of costs: contenders timed in turns on the user's texts, and how each grows with passes and texts.

Each round runs every contender once, so that other load on the machine affects all of them equally. A contender is a
function of a model, batches of tokens and a number of passes; it runs over all batches.
"""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.attribution.first_order import Candidates
from uatlite.errors import ConfigurationError, InputError
from uatlite.lab.report.figures import SERIES, RenderedFigure, render
from uatlite.lab.report.tables import Entry, Record, Row, Table, columns, table_markdown
from uatlite.methods.distilled import FEATURES, FEWEST_TEXTS, ReadOut
from uatlite.methods.registry import parse_method
from uatlite.methods.sampling import BASE
from uatlite.model.architectures import answering, check_encoded, head_of
from uatlite.model.load import Checkpoint
from uatlite.model.plain import in_mode
from uatlite.model.tokens import BATCH_TOKENS, Tokens, longest, tokenize
from uatlite.model.view import view_of
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import Chunk, run_chunk, sample
from uatlite.text.write import make_directory, write_text
from uatlite.values import Text

_Runs = Mapping[str, Callable[[], None]]
OnStep = Callable[[str], None]
_Batches = list[Mapping[str, Tensor]]
_Contender = Callable[[PreTrainedModel, _Batches, int], None]
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


# ── the stopwatch ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Timed:
    """The cost of one contender."""

    seconds: float
    """the median over rounds"""
    ratio: float
    """its time over the baseline's, timed before and after it; the median over rounds"""
    peak_bytes: int | None
    """peak memory beyond what was in use before; None where the system does not report it"""


def take_turns(runs: _Runs, baseline: str, rounds: int, on_step: OnStep = lambda step: None) -> dict[str, Timed]:
    """Time every run once in each round, with the baseline before and after it. One round before warms up.

    Memory is measured in the warm-up, as later runs find it allocated. `on_step` gets the name of each step.
    """
    peaks: dict[str, int | None] = {}
    for name, run in runs.items():
        on_step(f"warming up: {name}")
        peaks[name] = peak_of(run)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    ratios: dict[str, list[float]] = {name: [] for name in runs} | {baseline: [1.0]}
    for number in range(1, rounds + 1):
        taken[baseline].append(seconds(runs[baseline]))
        for name, run in runs.items():
            if name == baseline:
                continue
            on_step(f"round {number} of {rounds}: {name}")
            taken[name].append(seconds(run))
            taken[baseline].append(seconds(runs[baseline]))
            before, after = taken[baseline][-2:]
            ratios[name].append(taken[name][-1] / ((before + after) / 2))
    return {name: Timed(statistics.median(taken[name]), statistics.median(ratios[name]), peaks[name]) for name in runs}


def seconds(run: Callable[[], None]) -> float:
    """The seconds that a run takes."""
    begun = time.perf_counter()
    run()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter() - begun


def peak_of(run: Callable[[], None]) -> int | None:
    """The peak memory of a run beyond what was in use before: of the GPU, else of the process (Linux)."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return int(torch.cuda.max_memory_allocated() - before)
    try:
        _CLEAR.write_text("5")  # resets the peak
        before = _status("VmRSS")
        run()
        return max(0, _status("VmHWM") - before)
    except OSError:  # another system, or one that does not allow it
        run()
        return None


def _status(field: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


# ── the contenders ─────────────────────────────────────────────────────────────────────────────────────────────────


def hugging_face(model: PreTrainedModel, batches: _Batches, passes: int, *, training: bool) -> None:
    """The Hugging Face model in evaluation mode, once; or MC dropout the plain way: train mode, pass after pass."""
    device = next(model.parameters()).device
    with torch.inference_mode(), in_mode(model, training=training):
        for batch in batches:
            inputs = {name: value.to(device) for name, value in batch.items()}
            for _ in range(passes if training else 1):
                model(**inputs)


def sequential(model: PreTrainedModel, batches: _Batches, passes: int) -> None:
    """UAT-Lite as in Algorithm 1 of the paper: a forward over the whole batch for each pass."""
    view, config = view_of(model), UATConfig(samples=passes)
    for batch in batches:
        inputs = check_encoded(batch, model)
        texts, tokens = inputs["input_ids"].shape
        one_by_one = tuple(range(number, number + 1) for number in range(passes))
        for _ in run_chunk(view, inputs, Chunk(torch.arange(texts), tokens, one_by_one), config):
            pass


def folded(model: PreTrainedModel, batches: _Batches, passes: int) -> None:
    """The same passes in one batch."""
    for batch in batches:
        sample(model, batch, UATConfig(samples=passes))


def method(spelling: str, model: PreTrainedModel, batches: _Batches, passes: int) -> None:
    """A method by its spelling, with its own number of passes."""
    chosen, tokens = parse_method(spelling), _tokens(model)
    for batch in batches:
        chosen.run(model, batch, tokens)


def distilled(model: PreTrainedModel, batches: _Batches, passes: int) -> None:
    """The default method as calibrated: the plain pass, and the variance read off it.

    The read-out has learned nothing, which does not change its cost.
    """
    tokens = _tokens(model)
    for batch in batches:
        plain = BASE.run(model, batch)
        logits = plain.logits[0]
        outputs = plain.arrays(None if tokens is None else tokens(torch.arange(len(logits)), logits))
        features = FEATURES[answering(model)].of(outputs)
        ReadOut.empty(answering(model), FEWEST_TEXTS, features.shape[1], quality=1.0).read(outputs)


def _tokens(model: PreTrainedModel) -> Candidates | None:
    """Of a token classifier the token of each text whose tag is least sure, as of a text with one entity."""

    def least_sure(rows: Tensor, logits: Tensor) -> Tensor:
        two = logits.topk(2, dim=-1).values
        return torch.nn.functional.one_hot((two[..., 0] - two[..., 1]).argmin(dim=1), logits.shape[1]).bool()

    return least_sure if "tokens" in head_of(model).logits else None


BASELINE = "deterministic"
CONTENDERS: dict[str, _Contender] = {
    BASELINE: partial(hugging_face, training=False),
    "Hugging Face loop": partial(hugging_face, training=True),
    "UAT sequential": sequential,
    "UAT folded": folded,
    "fast": partial(method, "fast"),
    "analytic": partial(method, "analytic"),
    "distilled": distilled,
}


# ── the benchmark ──────────────────────────────────────────────────────────────────────────────────────────────────

_BATCH_SIZES = (8, 16, 32, 64, 128)
"""All contenders use the size at which the deterministic pass is fastest."""
_PASSES = (2, 4, 8, 16)
_LENGTHS = (16, 32, 64, 128, 256)
_CURVE_TEXTS, _CURVE_TOKENS = 16, 32
"""Texts at each point of the curves over passes and length, and their tokens in the curve over passes."""
GROW_WITH_PASSES = ("Hugging Face loop", "UAT sequential", "UAT folded")
"""These run the number of passes of the plan; the others have their own."""
GROW_WITH_TEXTS = (BASELINE, "UAT folded", "fast", "analytic", "distilled")
_AXES = {"passes": "Passes M", "tokens": "Tokens of a text", "texts": "Texts"}


@dataclass(frozen=True)
class BenchPlan:
    """How much is measured."""

    passes: int = 10
    rounds: int = 3

    def __post_init__(self) -> None:
        if self.passes < 2 or self.rounds < 1:
            raise ConfigurationError(
                f"passes={self.passes}, rounds={self.rounds}: allowed are 2 passes or more and 1 round or more."
            )


@dataclass(frozen=True)
class Curve:
    """The seconds of each contender at each size of one quantity: passes, tokens or texts."""

    over: str
    sizes: tuple[int, ...]
    seconds: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class BenchResults:
    """The results of one benchmark on one machine."""

    model: str
    texts: int
    tokens: int
    """in all texts together"""
    passes: int
    rounds: int
    batch: int
    """texts of a batch: the size at which the deterministic pass was fastest"""
    machine: Mapping[str, str]
    contenders: Mapping[str, Timed]
    curves: tuple[Curve, ...] = ()

    def lines(self) -> list[str]:
        """What was measured, and the costs as Markdown."""
        about = (
            f"{self.model}: {self.texts:,} texts of {self.tokens / self.texts:.0f} tokens on average, "
            f"M = {self.passes}, batches of {self.batch}, {self.rounds} rounds; {', '.join(self.machine.values())}"
        )
        rows = []
        for name, timed in self.contenders.items():
            peak = "" if timed.peak_bytes is None else f"{timed.peak_bytes / 2**20:,.0f} MiB"
            values = (f"{timed.ratio:.2f}", f"{self.texts / timed.seconds:,.1f}", peak)
            rows.append(Row(name, tuple(map(Entry, values))))
        return [about, "", *table_markdown(Table("", columns((), ("cost", "texts/s", "peak memory")), tuple(rows)))]

    def figure(self) -> RenderedFigure:
        """How costs grow: the seconds of each contender at each size, a panel for each curve."""

        def draw(axes: Any) -> None:
            for panel, curve in zip(axes[0], self.curves, strict=True):
                for name, values in curve.seconds.items():
                    colour = SERIES[list(CONTENDERS).index(name) % len(SERIES)]
                    panel.plot(curve.sizes, values, "o-", color=colour, markersize=4, label=name)
                panel.set(xscale="log", yscale="log", xlabel=_AXES[curve.over], ylabel="Seconds")
                panel.set_xticks(curve.sizes, [str(size) for size in curve.sizes])
                panel.minorticks_off()
                panel.legend(fontsize=7.5, handlelength=1.6)

        records: list[Record] = [
            {"over": curve.over, "size": size, "method": name, "seconds": value}
            for curve in self.curves
            for name, values in curve.seconds.items()
            for size, value in zip(curve.sizes, values, strict=True)
        ]
        alt, panels = "The seconds of each method at each number of passes, tokens and texts.", len(self.curves)
        return render("bench", "How costs grow", alt, records, draw, (3.4 * panels, 3.4), ncols=panels, squeeze=False)

    def write(self, directory: Path) -> None:
        """Write bench.json and bench.md, and once there are curves bench.svg, bench.png and bench.csv."""
        make_directory(directory)
        write_text(directory / "bench.json", json.dumps(asdict(self), indent=2) + "\n")
        write_text(directory / "bench.md", "\n".join(self.lines()) + "\n")
        if self.curves:
            self.figure().write(directory)


def run_bench(
    checkpoint: Checkpoint, texts: Sequence[Text], plan: BenchPlan, on_step: OnStep = lambda step: None
) -> Iterator[BenchResults]:
    """Time the contenders on texts, interleaved: the results so far after each part, the last are all of them."""
    if not texts:
        raise InputError("there are no texts to time; give a file with some.")
    most = longest(checkpoint.model, checkpoint.tokenizer)
    bench = _Bench(checkpoint.model, tokenize(checkpoint.tokenizer, texts, most), plan, on_step)
    on_step("finding the batch size at which the deterministic pass is fastest")
    sizes = {size: bench.batches(size) for size in _BATCH_SIZES if size <= max(len(texts), _BATCH_SIZES[0])}
    by_size = {f"{size}": bench.runs(batches, [BASELINE])[BASELINE] for size, batches in sizes.items()}
    timed = take_turns(by_size, f"{_BATCH_SIZES[0]}", plan.rounds)
    batch = min(sizes, key=lambda size: timed[f"{size}"].seconds)
    results = BenchResults(
        model=checkpoint.name,
        texts=len(texts),
        tokens=sum(bench.tokens.lengths),
        passes=plan.passes,
        rounds=plan.rounds,
        batch=batch,
        machine=_machine(),
        contenders=take_turns(bench.runs(sizes[batch], CONTENDERS), BASELINE, plan.rounds, on_step),
    )
    yield results
    for curve in bench.curves(most):
        yield (results := replace(results, curves=(*results.curves, curve)))


@dataclass(frozen=True)
class _Bench:
    """A model, the tokens of the texts, and what is measured on them."""

    model: PreTrainedModel
    tokens: Tokens
    plan: BenchPlan
    on_step: OnStep

    def batches(self, size: int, rows: Sequence[int] | None = None) -> _Batches:
        """Batches of similar length, of at most `size` texts."""
        most = max(BATCH_TOKENS, size * max(self.tokens.lengths))
        return [batch.inputs for batch in self.tokens.batches(rows, most_tokens=most, most_texts=size)]

    def of_length(self, length: int) -> _Batches:
        """One batch of the longest texts, cut or repeated to `length` tokens."""
        rows = self.tokens.by_length()[-_CURVE_TEXTS:]
        columns = torch.arange(length) % min(self.tokens.lengths[row] for row in rows)
        return [{name: value[..., columns] for name, value in self.tokens.pad(rows).items()}]

    def runs(self, batches: _Batches, names: Iterable[str], passes: int | None = None) -> _Runs:
        """The contenders of these names over the batches."""
        return {name: partial(CONTENDERS[name], self.model, batches, passes or self.plan.passes) for name in names}

    def curves(self, most: int) -> Iterator[Curve]:
        """How costs grow with passes, with length, and with a quarter of the texts once, twice and four times over."""
        short = self.of_length(min(_CURVE_TOKENS, most))
        yield self.curve("passes", {passes: self.runs(short, GROW_WITH_PASSES, passes) for passes in _PASSES})
        lengths = {length: self.of_length(length) for length in _LENGTHS if length <= most}
        yield self.curve("tokens", {size: self.runs(batches, GROW_WITH_TEXTS) for size, batches in lengths.items()})
        quarter = range(max(1, len(self.tokens) // 4))
        once = self.batches(_CURVE_TEXTS, quarter)
        more = {len(quarter) * times: self.runs(once * times, GROW_WITH_TEXTS) for times in (1, 2, 4)}
        yield self.curve("texts", more)

    def curve(self, over: str, runs_at: Mapping[int, _Runs]) -> Curve:
        """The same contenders at each size."""
        taken: dict[str, list[float]] = {}
        for size, runs in runs_at.items():
            self.on_step(f"how costs grow with {over}: {size}")
            for name, timed in take_turns(runs, next(iter(runs)), self.plan.rounds).items():
                taken.setdefault(name, []).append(timed.seconds)
        return Curve(over, tuple(runs_at), {name: tuple(values) for name, values in taken.items()})


def _machine() -> dict[str, str]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
    return {
        "device": device,
        "threads": f"{torch.get_num_threads()} threads",
        "torch": f"torch {torch.__version__.split('+')[0]}",
        "system": platform.system(),
    }
