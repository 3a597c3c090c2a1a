"""What the benchmarks share: options, texts of the tasks, what a model says kept on disk, turns, Markdown tables."""

import argparse
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from uatlite.lab.evaluate.comparison import Measurement, ResampledRows, Sampled, measured
from uatlite.metrics.intervals import Estimates, Interval, Resampling
from uatlite.text.tasks import load

CALIBRATION = {"clinc150": ("calibration",), "sst2": ("calibration", "test"), "mnli": ("calibration",)}
"""The original test sentences of SST-2 test it, so both halves of its dev split calibrate."""

Run = Callable[[], object]
Texts = tuple[list[Any], list[Any]]
"""texts, and the name of each label"""
T = TypeVar("T")


def parser_of(description: str | None, **defaults: object) -> argparse.ArgumentParser:
    """A parser of whole numbers and texts by their defaults: --repetitions 100."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        kind = int if default is None else type(default)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default)
    return parser


def parser_of_models(description: str | None, *, cache: bool = False, **defaults: object) -> argparse.ArgumentParser:
    """The same with --models, --data and --cache, which may be required."""
    parser = parser_of(description, **defaults)
    parser.add_argument("--models", type=Path, required=True, help="the models of benchmarks/backbones.py")
    parser.add_argument("--data", type=Path, help="directory of the tasks' files; by default UATLITE_DATA")
    parser.add_argument("--cache", type=Path, required=cache, help="keeps what the models say of the texts")
    return parser


def numbers(text: str) -> list[int]:
    """The seeds of '0,1,2'."""
    return [int(part) for part in text.split(",")]


def trained(models: Path, task: str, seeds: Iterable[int]) -> list[int]:
    """The seeds whose model of a task is there."""
    return [seed for seed in seeds if (models / f"{task}-{seed}" / "model.safetensors").exists()]


def rows_of(task: str, splits: Iterable[str], data: Path | None) -> Texts:
    """The texts in scope of some splits."""
    sets = [load(task, split, data).in_scope() for split in splits]
    return [text for one in sets for text in one.texts], [one.labels[label] for one in sets for label in one.gold]


def outside_questions(data: Path | None, split: str = "test") -> Texts:
    """CLINC150's questions that are out of its scope."""
    questions = load("clinc150", split, data)
    texts = [example.text for example in questions.examples if example.label == questions.out_of_scope]
    return texts, [None] * len(texts)


def review_sentences(data: Path | None, reviews: int) -> Texts:
    """A sentence of 4 to 40 words from each of so many IMDb reviews, with the label of the review."""
    rng, split = random.Random(0), load("imdb", "test", data, limit=reviews)
    texts, labels = [], []
    for review, label in zip(split.texts, split.gold, strict=True):
        sentences = [part for part in re.split(r"(?<=[.!?])\s+", str(review)) if 4 <= len(part.split()) <= 40]
        if sentences:
            texts.append(rng.choice(sentences))
            labels.append(split.labels[label])
    return texts, labels


def seconds(run: Run, clock: Callable[[], float] = time.perf_counter) -> float:
    """What a call takes; `clock=time.process_time` counts this process alone."""
    begun = clock()
    run()
    return clock() - begun


def ratios(runs: dict[str, Run], base: Run, rounds: int) -> dict[str, float]:
    """The median over rounds of each run's time over that of the base run, which is timed before and after it."""
    from uatlite.lab.bench import take_turns  # not at the top: the metrics are compared without transformers

    timed = take_turns({"": base, **runs}, "", rounds)  # type: ignore[dict-item]
    return {name: timed[name].ratio for name in runs}


def head(*headings: str, left: int = 1) -> None:
    """The first two lines of a Markdown table, whose first columns are aligned on the left."""
    print(f"\n| {' | '.join(headings)} |\n|{'---|' * left}{'--:|' * (len(headings) - left)}")


def line(*cells: object) -> None:
    """A line of a Markdown table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def title(text: str) -> None:
    """The heading over a table."""
    print(f"\n### {text}\n")


def slashed(values: Iterable[float]) -> str:
    """Several numbers in one cell."""
    return " / ".join(f"{value:.3f}" for value in values)


def over_seeds(seeds: Sequence[Estimates]) -> dict[str, Measurement]:
    """The mean over seeds of each metric; the rows that are drawn are the same for all that have as many."""
    rows = (ResampledRows(seeds[0].strata),)
    of_name = {name: [replace(estimates[name], truth=None) for estimates in seeds] for name in seeds[0]}
    return measured({name: Sampled(of_seeds, rows) for name, of_seeds in of_name.items()}, Resampling())


def change(gap: Interval, digits: int = 4, by: float = 1.0) -> str:
    """A difference and its interval, multiplied by a number."""
    point, low, high = (f"{by * end:+.{digits}f}" for end in (gap.point, gap.low, gap.high))
    return f"{point} [{low}, {high}]"


def less(ours: Measurement, plain: Measurement) -> str:
    """The mean difference over seeds, and an interval that resamples rows, the same for all seeds."""
    return change(ours.minus(plain).interval_or_point())


def quantiles(drawn: np.ndarray) -> tuple[float, float]:
    """The ends of the interval of 95 % that drawn values give."""
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def best_share(scores: np.ndarray, wrong: np.ndarray, target: float) -> float:
    """Knowing the truth: the largest share of rows above one threshold whose risk is at most the target."""
    risks = wrong[np.argsort(-scores, kind="stable")].cumsum() / np.arange(1, len(wrong) + 1)
    return float((np.flatnonzero(risks <= target).max(initial=-1) + 1) / len(wrong))


def only(
    parser: argparse.ArgumentParser,
    tables: dict[str, Callable[[T], None]],
    bench: Callable[[argparse.Namespace], T],
    usual: Iterable[str] | None = None,
) -> None:
    """Print the tables that --only names, each by what `bench` makes of the options; by default the usual ones."""
    names = ",".join(tables if usual is None else usual)
    parser.add_argument("--only", default=names, help=f"tables to print, by comma: {', '.join(tables)}")
    options = parser.parse_args()
    made = bench(options)
    for name in options.only.split(","):
        tables[name](made)
