"""Texts that are out of scope: how well they are told from others, what it is good for, and what it costs.

    python benchmarks/scope.py --models DIR --data DIR [--seeds 0,1,2] [--cache DIR] [--only out-of-scope,mixture,...]

DIR of --models holds the models of benchmarks/backbones.py, DIR of --data the files of the tasks. What the models say
of the texts is kept in --cache, so that a second run takes seconds. Numbers are means over seeds; an interval resamples
the test texts, the same for both scores that are compared and for all seeds, and takes the mean over seeds each time.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from scipy.special import log_softmax
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from uatlite.metrics.accuracy import aupr, auroc, fpr95
from uatlite.metrics.ranking import Ranking
from uatlite.metrics.selective import risk_coverage
from uatlite.model.plain import plain_pass
from uatlite.text.tasks import load
from uatlite.trust.gaussians import ScopeFit
from uatlite.trust.scope import Scope, chance_in_scope, energy, fit_scope
from uatlite.values import Dataset, Text

REFERENCE = 6000
"""Unlabelled training texts that fit the scope."""
FEW = 500
"""Calibration rows where there are few and no reference texts."""
OTHERS = 2000
"""At most so many texts of another task or domain."""
BATCH, LENGTH = 64, 128


@dataclass(frozen=True)
class Read:
    """What a model says of texts: logits (rows, classes), representations (rows, units), labels (rows,), -1 if none."""

    logits: np.ndarray
    representations: np.ndarray
    labels: np.ndarray

    def __getitem__(self, rows: np.ndarray | slice) -> "Read":
        return Read(self.logits[rows], self.representations[rows], self.labels[rows])

    @property
    def log_confidence(self) -> np.ndarray:
        return np.asarray(log_softmax(self.logits, axis=1).max(axis=1))

    @property
    def wrong(self) -> np.ndarray:
        """1 for an error, and for every answer to a text that has no right one."""
        return np.asarray(self.logits.argmax(axis=1) != self.labels, dtype=np.float64)


class Reader:
    """A model with its tokenizer."""

    def __init__(self, directory: Path) -> None:
        self.model = AutoModelForSequenceClassification.from_pretrained(directory).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(directory)

    def tokens(self, texts: list[Text]) -> dict[str, torch.Tensor]:
        pairs = [text if isinstance(text, tuple) else (text,) for text in texts]
        columns = [list(column) for column in zip(*pairs, strict=True)]
        return dict(self._tokenizer(*columns, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"))

    @torch.inference_mode()
    def read(self, texts: list[Text]) -> tuple[np.ndarray, np.ndarray]:
        """Logits, and the first token after the last layer beside the mean over tokens of what that layer reads."""
        inputs = self.tokens(texts)
        output = self.model(**inputs, output_hidden_states=True)
        mask = inputs["attention_mask"].unsqueeze(-1)
        mean = (output.hidden_states[-2] * mask).sum(dim=1) / mask.sum(dim=1)
        return output.logits.numpy(), torch.cat([output.hidden_states[-1][:, 0], mean], dim=1).numpy()


@dataclass(frozen=True)
class Bench:
    """Where models and data are, and what was read of them."""

    models: Path
    data: Path | None
    seeds: tuple[int, ...]
    cache: Path | None

    def dataset(self, task: str, split: str, rows: int | None = None) -> Dataset:
        return load(task, split, self.data, limit=rows)

    @cache  # noqa: B019  one for the whole run
    def reader(self, task: str, seed: int) -> Reader:
        return Reader(self.models / f"{task}-{seed}")

    @cache  # noqa: B019
    def read(self, task: str, seed: int, of: str, split: str, rows: int | None = None) -> Read:
        """What the model of a task says of a split of this or another task."""
        file = self.cache and self.cache / f"{task}-{seed}-{of}-{split}-{rows}.npz"
        if file and file.exists():
            return Read(**np.load(file))
        data = self.dataset(of, split, rows)
        result = read_all(self.reader(task, seed), data)
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez(file, **vars(result))
        return result


def read_all(reader: Reader, data: Dataset) -> Read:
    """All texts of a data set, in batches of like length."""
    order = sorted(range(len(data)), key=lambda row: len(str(data.texts[row])))
    logits, representations = [], []
    for start in range(0, len(order), BATCH):
        some = reader.read([data.texts[row] for row in order[start : start + BATCH]])
        logits.append(some[0])
        representations.append(some[1])
    back = np.argsort(order)
    labels = [-1 if label is None or label == data.out_of_scope else label for label in data.gold]
    return Read(np.concatenate(logits)[back], np.concatenate(representations)[back], np.array(labels))


@dataclass(frozen=True)
class Setting:
    """A task, texts in scope to test on, and texts that are out of scope."""

    name: str
    task: str
    calibration: tuple[str, ...]
    inside: str
    outside: tuple[str, str]

    def reference(self, bench: Bench, seed: int) -> Read:
        return known(bench.read(self.task, seed, self.task, "train", REFERENCE))

    def rows(self, bench: Bench, seed: int) -> tuple[Read, Read, Read]:
        """Calibration rows, test rows in scope, and rows out of scope."""
        parts = [known(bench.read(self.task, seed, self.task, split)) for split in self.calibration]
        calibration = Read(*(np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])))
        inside = known(bench.read(self.task, seed, self.task, self.inside))
        of, split = self.outside
        if of == self.task:
            outside = bench.read(self.task, seed, of, split)
            outside = outside[outside.labels < 0]
        else:
            outside = bench.read(self.task, seed, of, split, OTHERS)
            outside = Read(outside.logits, outside.representations, np.full(len(outside.labels), -1))
        return calibration, inside, outside


def known(rows: Read) -> Read:
    return rows[rows.labels >= 0]


SETTINGS = (
    Setting("CLINC150, its out-of-scope questions", "clinc150", ("calibration",), "test", ("clinc150", "test")),
    Setting("SST-2, CLINC150's questions", "sst2", ("calibration", "test"), "test-original", ("clinc150", "test")),
)


def fitted(reference: Read | None, calibration: Read) -> Scope:
    fit = None
    if reference is not None:
        fit = ScopeFit(reference.representations.shape[1], reference.logits.shape[1])
        fit.add(reference.representations, reference.logits.argmax(axis=1))
    return fit_scope(fit, calibration.representations, calibration.logits)


def some_of(rows: Read, count: int, seed: int) -> Read:
    return rows[np.random.default_rng(seed).permutation(len(rows.labels))[:count]]


def strangeness(
    setting: Setting, bench: Bench, seed: int
) -> dict[str, tuple[Callable[[Read], np.ndarray], Scope | None]]:
    """Each score, higher for stranger texts, with its scope where it is one."""
    calibration = setting.rows(bench, seed)[0]
    few = fitted(None, some_of(calibration, FEW, seed))
    own = fitted(None, calibration)
    best = fitted(setting.reference(bench, seed), calibration)

    def of(scope: Scope) -> Callable[[Read], np.ndarray]:
        return lambda rows: scope.nonconformity(rows.representations, rows.logits)

    logits = fit_scope(None, None, calibration.logits)
    return {
        "maximum probability": (lambda rows: -rows.log_confidence, None),
        "scope by the logits alone": (lambda rows: energy(np.asarray(rows.logits, dtype=np.float64)), logits),
        f"scope by {FEW} calibration rows": (of(few), few),
        f"scope by {len(calibration.labels):,} calibration rows": (of(own), own),
        f"scope by {REFERENCE:,} reference texts": (of(best), best),
    }


def out_of_scope_table(bench: Bench) -> None:
    for setting in SETTINGS:
        print(f"\n### {setting.name}\n")
        print("| score | AUROC | AUPR | FPR at 95 % | false alarms at 1 % | found |\n|---|--:|--:|--:|--:|--:|")
        numbers: dict[str, list[list[float]]] = {}
        for seed in bench.seeds:
            _, inside, outside = setting.rows(bench, seed)
            positives = np.repeat([False, True], [len(inside.labels), len(outside.labels)])
            for name, (score, scope) in strangeness(setting, bench, seed).items():
                values = np.concatenate([score(inside), score(outside)])
                row = [auroc(values, positives), aupr(values, positives), fpr95(values, positives)]
                for rows in (inside, outside):
                    x = rows.representations if scope is not None and scope.needs_representations else None
                    share = np.nan if scope is None else scope.out_of_scope(scope.p_values(x, rows.logits)).mean()
                    row.append(float(share))
                numbers.setdefault(name, []).append(row)
        for name, rows in numbers.items():
            print(f"| {name} | " + " | ".join(f"{value:.4f}" for value in np.mean(rows, axis=0)) + " |", flush=True)


def aurc(trust: np.ndarray, wrong: np.ndarray) -> float:
    """Area under the risk–coverage curve, times 100."""
    return 100.0 * float(risk_coverage(Ranking.of(trust), wrong).mean())


Scored = tuple[np.ndarray, np.ndarray, np.ndarray]  # two scores of trust, and the errors: (rows,) each


def compare(scored: list[Scored], *, strata: tuple[int, ...], resamples: int) -> str:
    """Both scores' AURC and the paired difference, with its interval: means over seeds."""

    def both(rows: np.ndarray) -> np.ndarray:
        return np.mean([[aurc(a[rows], wrong[rows]), aurc(b[rows], wrong[rows])] for a, b, wrong in scored], axis=0)

    first, second = both(np.arange(sum(strata)))
    rng, starts = np.random.default_rng(0), np.cumsum((0, *strata[:-1]))
    draws = []
    for _ in range(resamples):
        parts = [start + rng.integers(size, size=size) for start, size in zip(starts, strata, strict=True)]
        a, b = both(np.concatenate(parts))
        draws.append(b - a)
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{first:.3f} | {second:.3f} | {second - first:+.3f} [{low:+.3f}, {high:+.3f}] | {second / first - 1:+.1%}"


def mixture_table(bench: Bench, resamples: int = 500) -> None:
    print("\n### AURC × 100: confidence, and confidence times the chance in scope (reference texts)\n")
    print("| texts | confidence | × chance in scope | difference | relative |\n|---|--:|--:|--:|--:|")
    for setting in SETTINGS:
        alone, mixed, sizes = [], [], (0, 0)
        for seed in bench.seeds:
            calibration, inside, outside = setting.rows(bench, seed)
            scope = fitted(setting.reference(bench, seed), calibration)
            one, other = scored(scope, inside), scored(scope, outside)
            alone.append(one)
            mixed.append(tuple(np.concatenate(pair) for pair in zip(one, other, strict=True)))
            sizes = (len(inside.labels), len(outside.labels))
        print(f"| {setting.task}, in scope | {compare(alone, strata=sizes[:1], resamples=resamples)} |", flush=True)
        print(f"| {setting.name}, mixed in | {compare(mixed, strata=sizes, resamples=resamples)} |", flush=True)


def scored(scope: Scope, rows: Read) -> Scored:
    confidence = np.exp(rows.log_confidence)
    p_values = scope.p_values(rows.representations, rows.logits)
    return confidence, confidence * chance_in_scope(p_values), rows.wrong


SHIFTS = (
    ("SST-2", "sst2", ("calibration", "test"), ("sst2", "test-original")),
    ("SST-2 → IMDb", "sst2", ("calibration", "test"), ("imdb", "test")),
    ("MNLI", "mnli", ("calibration",), ("mnli", "test")),
    ("MNLI → SNLI", "mnli", ("calibration",), ("snli", "test")),
)


def covariate_table(bench: Bench) -> None:
    print("\n### Who is right: AUROC of errors, in domain and under covariate shift\n")
    print("| texts | accuracy | out of scope | confidence | scope | confidence × chance |\n|---|--:|--:|--:|--:|--:|")
    for name, task, calibration, (of, split) in SHIFTS:
        numbers = []
        for seed in bench.seeds:
            parts = [bench.read(task, seed, task, each) for each in calibration]
            fit = Read(*(np.concatenate([getattr(part, field) for part in parts]) for field in vars(parts[0])))
            scope = fitted(bench.read(task, seed, task, "train", REFERENCE), fit)
            rows = bench.read(task, seed, of, split, OTHERS)
            p_values = scope.p_values(rows.representations, rows.logits)
            confidence, both, wrong = scored(scope, rows)
            strange = scope.nonconformity(rows.representations, rows.logits)
            doubts = (-confidence, strange, -both)
            numbers.append(
                [1 - wrong.mean(), scope.out_of_scope(p_values).mean(), *(auroc(d, wrong > 0) for d in doubts)]
            )
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in np.mean(numbers, axis=0)) + " |", flush=True)


def cost_table(bench: Bench, repetitions: int = 15) -> None:
    """The scope beside the plain pass, alternating, so that both see the same machine."""
    print("\n### Cost, in plain passes over the same texts\n")
    print("| task | texts | one pass, ms | scope, ms | share | fit on these texts, ms | share |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for setting in SETTINGS:
        seed = bench.seeds[0]
        reader, (calibration, _, _) = bench.reader(setting.task, seed), setting.rows(bench, seed)
        reference = setting.reference(bench, seed)
        scope = fitted(reference, calibration)
        texts = sorted(bench.dataset(setting.task, "train", REFERENCE).texts, key=lambda text: len(str(text)))
        for size in (1, 32, 256):
            middle = slice((len(texts) - size) // 2, (len(texts) + size) // 2)  # texts of like length, as they run
            inputs, some = reader.tokens(texts[middle]), calibration[slice(size)]
            fit, predicted = ScopeFit(some.representations.shape[1], some.logits.shape[1]), some.logits.argmax(axis=1)
            times = np.zeros((repetitions, 3))
            for row in times:
                row[0] = seconds(plain_pass, reader.model, inputs)
                row[1] = seconds(scope.p_values, some.representations, some.logits)
                row[2] = seconds(fit.add, some.representations, predicted)
            one, p, add = 1e3 * np.median(times, axis=0)
            print(
                f"| {setting.task} | {size} | {one:.1f} | {p:.2f} | {p / one:.3f} | {add:.2f} | {add / one:.3f} |",
                flush=True,
            )
        last = seconds(fit_scope, fit, calibration.representations, calibration.logits)
        whole = (add * 100_000 / size + 1e3 * last) / (one * 100_000 / size)
        print(f"| {setting.task} | 100,000 of these; once {last:.2f} s | | | | | {whole:.3f} |", flush=True)


def seconds(function: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


TABLES: dict[str, Callable[[Bench], None]] = {
    "out-of-scope": out_of_scope_table,
    "mixture": mixture_table,
    "covariate": covariate_table,
    "cost": cost_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="directory of the tasks' files; by default UATLITE_DATA")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--cache", type=Path, help="keeps what the models say of the texts")
    parser.add_argument("--only", default=",".join(TABLES), help="tables to print, by comma: " + ", ".join(TABLES))
    options = parser.parse_args()
    seeds = tuple(int(seed) for seed in options.seeds.split(","))
    bench = Bench(options.models, options.data, seeds, options.cache)
    for name in options.only.split(","):
        TABLES[name](bench)


if __name__ == "__main__":
    main()
