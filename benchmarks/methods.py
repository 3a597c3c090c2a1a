"""Every method of the paper, trained and evaluated by one recipe: accuracy, calibration, and what each of them costs.

    python benchmarks/methods.py OUT [--seeds 3] [--rows 3000]

MiniLM-L6 is fine-tuned on sentences of Rotten Tomatoes once for each seed and method (laplace is fitted on the base of
its seed, and an ensemble's first member is that base), and evaluated in domain and on IMDb reviews cut at 64 tokens.
Everything is kept in OUT, and the same command goes on where it was stopped; another one takes another OUT. It prints
Markdown.

Scores are means over the seeds, ± their standard deviation; intervals resample test rows, the same for all methods and
seeds, so the differences are paired. Training cost is the CPU time of the training, inference cost that of the
method's passes over the same texts in turn with base, and storage the bytes of all safetensors; each relative to base.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.comparison import Score
from uatlite.lab.evaluate.evaluate import panel, scores
from uatlite.lab.evaluate.plan import Contender, parse_contenders
from uatlite.lab.evaluate.predict import Prepared
from uatlite.lab.evaluate.runs import Job, Model, NoProgress, Runs
from uatlite.lab.evaluate.store import Store
from uatlite.lab.train.methods import parse_training, train_method
from uatlite.lab.train.recipe import DEMO, PLAIN, TrainingJob
from uatlite.methods.method import Method
from uatlite.metrics.intervals import Resampling
from uatlite.model.load import Checkpoint, embedded_backbone, load_checkpoint
from uatlite.text.schema import Task, find_task
from uatlite.text.tasks import load
from uatlite.values import Dataset

TASK, SHIFT = "rotten-tomatoes", "movie-reviews-imdb"
# what is trained -> how; the others run on the base
TRAININGS = {
    "base": "base",
    "laplace": "laplace",
    "sngp": "sngp",
    "vi-last-layer": "vi-last-layer",
    "swag": "swag",
    "snapshot": "snapshot:members=3",
    "ensemble": "ensemble",
}
SHARED = ("laplace", "ensemble")
"""Which of them take the base of their seed as a part."""
CONTENDERS = (
    "base,ts,platt,vector,histogram,isotonic,mc-uniform,mc-uniform+ts,mc-component,mc-component+ts,mc-global,"
    "mc-global+ts,uat,uat+ts,fast,fast+ts,analytic+its,distilled+its,ensemble,ensemble+ts,snapshot:members=3,"
    "snapshot:members=3+ts,swag,swag+ts,laplace,laplace+ts,sngp,sngp+ts,vi-last-layer,vi-last-layer+ts"
)
SCORES = ("accuracy", "ece", "nll", "brier", "aurc")
COSTS = "cost.json"
TIMED_TEXTS, ROUNDS = 64, 3


@dataclass(frozen=True)
class Sizes:
    """How many rows of each set, and how many seeds."""

    train: int
    calibration: int
    test: int
    shift: int
    seeds: int


@dataclass(frozen=True)
class Sets:
    """The rows, the same for every seed."""

    train: Dataset
    scored: Mapping[str, Dataset]
    """'calibration', 'test' and 'shift'"""


def load_sets(sizes: Sizes) -> Sets:
    scored = {
        "calibration": load(TASK, "calibration", limit=sizes.calibration),
        "test": load(TASK, "test", limit=sizes.test),
        "shift": load(SHIFT, "test", limit=sizes.shift),
    }
    return Sets(load(TASK, "train", limit=sizes.train), scored)


def job_of(sets: Sets, seed: int) -> TrainingJob:
    return TrainingJob("minilm", sets.train, recipe=DEMO, seed=seed)


def train_all(out: Path, sets: Sets, seed: int) -> dict[str, Path]:
    """Train what is not trained yet; returns the directory of each."""
    places = {name: out / f"seed-{seed}" / name for name in TRAININGS}
    job = job_of(sets, seed)
    for name, spelling in TRAININGS.items():
        note = places[name] / COSTS
        if note.is_file():
            continue
        say(f"seed {seed}: training {spelling}")
        training = PLAIN if name == "base" else parse_training(spelling)
        begun = time.process_time()
        train_method(training, job, places[name], bases=[places["base"]] if name in SHARED else [], resume=True)
        seconds = time.process_time() - begun
        if name in SHARED:  # what training all of it costs, whoever did it
            seconds += json.loads((places["base"] / COSTS).read_text())["seconds"]
        note.write_text(json.dumps({"seconds": seconds}))
    return places


def training_of(method: Method) -> str:
    """Which of `TRAININGS` a method runs on."""
    key = method.key
    return key if key in TRAININGS else "base"


class TrainedModels:
    """The source of the benchmark: OUT/seed-SEED/TRAINING, and the rows of every seed."""

    label_order = None

    def __init__(self, out: Path, sets: Sets, seeds: int) -> None:
        self._out, self._sets, self._seeds = out, sets, seeds
        self._loaded: tuple[Model, Checkpoint] | None = None

    def models(self, cell: CellSpec) -> list[tuple[Model, int]]:
        training = training_of(cell.contender.method)
        return [(Model("minilm", TASK, training, seed), seed) for seed in range(self._seeds)]

    def load(self, model: Model) -> Checkpoint:
        if self._loaded is None or self._loaded[0] != model:
            place = self._out / f"seed-{model.seed}" / model.method
            self._loaded = model, load_checkpoint(place, device="cpu")
        return self._loaded[1]

    def task(self, on: str) -> Task:
        return find_task(on.partition("/")[0])

    def dataset(self, name: str) -> Dataset:
        return next(rows for rows in self._sets.scored.values() if f"{rows.name}/{rows.split}" == name)

    def reference(self, model: Model) -> None:
        return None

    def max_length(self, model: Model) -> int | None:
        return DEMO.max_length

    def describe(self, job: Job) -> str:
        return f"seed {job.model.seed}: {job.method.name}, {job.set_name}"

    @property
    def elsewhere(self) -> Callable[[], "TrainedModels"]:
        return partial(TrainedModels, self._out, self._sets, self._seeds)


class Said(NoProgress):
    """Says each step."""

    def step(self, what: str) -> None:
        say(what)


def inference_costs(runs: Runs, sets: Sets, contenders: Sequence[Contender], file: Path) -> dict[str, float]:
    """CPU time of each method over the same texts relative to base, timed in turn with it; medians of the ratios."""
    jobs = {contender.method.name: runs.jobs(of(sets, "test", contender))[0] for contender in contenders}
    if file.is_file():
        costs: dict[str, float] = json.loads(file.read_text())
        if set(costs) >= set(jobs):
            return costs
    say("timing inference")
    costs, rows = {}, list(range(min(TIMED_TEXTS, len(sets.scored["test"]))))
    base = runs.prepared(jobs["base"])
    for name, job in jobs.items():
        prepared, method = runs.prepared(job), runs.method(job)
        once(prepared, method, rows)  # members are made and draws are made once, before the first text
        ratios = [once(prepared, method, rows) / once(base, jobs["base"].method, rows) for _ in range(ROUNDS)]
        costs[name] = median(ratios)
    file.write_text(json.dumps(costs))
    return costs


def of(sets: Sets, name: str, contender: Contender) -> CellSpec:
    """A contender on a set, without a measure."""
    rows = sets.scored[name]
    return CellSpec(measure="", task=TASK, on=f"{rows.name}/{rows.split}", contender=contender)


def once(prepared: Prepared, method: Method, rows: list[int]) -> float:
    """CPU seconds of a method's passes over the prepared texts."""
    batches = list(prepared.tokens.batches(rows))
    begun = time.process_time()
    for batch in batches:
        method.run(prepared.checkpoint.model, batch.inputs)
    return time.process_time() - begun


def storage(place: Path) -> int:
    return sum(path.stat().st_size for path in place.glob("*.safetensors"))


def plain_trainer(out: Path, sets: Sets, seed: int) -> float:
    """The accuracy on the test rows of what the Trainer alone gives, without any code of ours but the rows."""
    note = out / f"seed-{seed}" / "trainer.json"
    if note.is_file():
        return float(json.loads(note.read_text())["accuracy"])
    say(f"seed {seed}: the plain Trainer")
    source = embedded_backbone()
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForSequenceClassification.from_pretrained(source, num_labels=len(sets.train.labels))

    def encode(rows: Dataset) -> list[dict[str, object]]:
        texts = tokenizer(list(rows.texts), truncation=True, max_length=DEMO.max_length)
        return [{"input_ids": ids, "labels": label} for ids, label in zip(texts["input_ids"], rows.gold, strict=True)]

    arguments = TrainingArguments(
        output_dir=str(note.parent / "trainer"),
        learning_rate=DEMO.learning_rate,
        warmup_steps=DEMO.warmup_steps,
        per_device_train_batch_size=DEMO.batch_size,
        num_train_epochs=DEMO.epochs,
        weight_decay=DEMO.weight_decay,
        max_grad_norm=DEMO.clip,
        seed=seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(model, arguments, DataCollatorWithPadding(tokenizer), train_dataset=encode(sets.train))
    trainer.train()
    test = sets.scored["test"]
    predicted = trainer.predict(encode(test)).predictions.argmax(axis=1)
    accuracy = float(np.mean(predicted == np.array(test.gold)))
    note.write_text(json.dumps({"accuracy": accuracy}))
    return accuracy


def table(scores: Mapping[str, Mapping[str, Score]], costs: Callable[[str], list[str]]) -> str:
    """One Markdown row for each contender; costs only where a contender has some of its own."""
    heads = ["method", "accuracy ↑", "ECE ↓", "NLL ↓", "Brier ↓", "AURC ↓", "NLL less base's", "train", "run", "store"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name, of in scores.items():
        cells = [cell(of[metric]) for metric in SCORES]
        gap = of["nll"].differences.get(next(iter(scores)))
        change = "" if gap is None else f"{gap.point:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
        lines.append("| " + " | ".join([name, *cells, change, *costs(name)]) + " |")
    return "\n".join(lines)


def cell(score: Score) -> str:
    spread = "" if score.deviation is None else f" ±{score.deviation:.3f}"
    return f"{score.mean:.3f}{spread} [{score.low:.3f}, {score.high:.3f}]"


def relative_costs(
    out: Path, seeds: int, contenders: tuple[Contender, ...], inference: Mapping[str, float]
) -> dict[str, list[str]]:
    """Training, inference and storage of each contender relative to base."""
    costs = {}
    for contender in contenders:
        training = training_of(contender.method)
        places = [(out / f"seed-{seed}" / training, out / f"seed-{seed}" / "base") for seed in range(seeds)]
        spent = [[json.loads((place / COSTS).read_text())["seconds"] for place in pair] for pair in places]
        train = mean(own for own, _ in spent) / mean(base for _, base in spent)
        store = mean(storage(own) / storage(base) for own, base in places)
        costs[contender.name] = [f"{train:.1f}×", f"{inference[contender.method.name]:.1f}×", f"{store:.1f}×"]
    return costs


def check_base(scores: Mapping[str, Score], accuracies: list[float]) -> str:
    """Whether the base is as accurate as what the plain Trainer gives."""
    gap = 100 * (scores["accuracy"].mean - mean(accuracies))
    verdict = "within" if abs(gap) <= 1 else "NOT within"
    return (
        f"Base accuracy {scores['accuracy'].mean:.4f}, plain Trainer {mean(accuracies):.4f} (means over "
        f"{len(accuracies)} seeds): {gap:+.2f} points, {verdict} 1 point."
    )


def say(what: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {what}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory for models, predictions and costs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=3000, help="training rows")
    parser.add_argument("--calibration", type=int, default=400)
    parser.add_argument("--test", type=int, default=1066)
    parser.add_argument("--shift", type=int, default=300)
    parser.add_argument("--methods", default=CONTENDERS)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    sets = load_sets(Sizes(given.rows, given.calibration, given.test, given.shift, given.seeds))
    contenders = parse_contenders(given.methods)
    accuracies = []
    for seed in range(given.seeds):
        train_all(given.out, sets, seed)
        accuracies.append(plain_trainer(given.out, sets, seed))
    runs = Runs(TrainedModels(given.out, sets, given.seeds), Store(given.out / "store"))
    jobs = [job for name in sets.scored for contender in contenders for job in runs.jobs(of(sets, name, contender))]
    runs.compute(sorted(jobs, key=lambda job: (job.model.seed, job.model.method)), Said())
    inference = inference_costs(runs, sets, contenders, given.out / "inference.json")
    costs = relative_costs(given.out, given.seeds, contenders, inference)
    for set_name, title in (("test", "In domain"), ("shift", "Shift")):
        rows = sets.scored[set_name]
        cells = panel(of(sets, set_name, contenders[0]), contenders, {score: score for score in SCORES})
        scored = scores(cells, runs, Resampling())
        print(f"\n### {title}: {rows.name}, {len(rows):,} rows\n\n{table(scored, costs.__getitem__)}")
        if set_name == "test":
            print(f"\n{check_base(scored['base'], accuracies)}")


if __name__ == "__main__":
    main()
