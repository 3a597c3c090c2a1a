"""What each trained method of the paper costs: training, passes and storage, relative to the plain model.

    python benchmarks/methods.py OUT [--seeds 3] [--rows 3000]

MiniLM-L6 is fine-tuned on sentences of Rotten Tomatoes once for each seed and method (laplace is fitted on the base of
its seed, and an ensemble's first member is that base). Everything is kept in OUT, and the same command goes on where it
was stopped; another one takes another OUT. It prints Markdown. How good the models are says `uatlite evaluate` with
OUT/seed-0/base, OUT/seed-0/swag and so on, and for all seeds `uatlite reproduce main`.

Training cost is the CPU time of the training, inference cost that of the method's passes over the same texts in turn
with base, and storage the bytes of all safetensors.
"""

import json
import time
from pathlib import Path
from statistics import mean

import torch

from harness import head, line, parser_of, ratios, seconds
from uatlite.classifier.runtime import run_tokens
from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.methods import parse_training
from uatlite.lab.train.recipe import DEMO, TrainingJob
from uatlite.methods.method import Method
from uatlite.methods.registry import parse_method
from uatlite.model.load import load_checkpoint
from uatlite.model.tokens import tokenize
from uatlite.text.tasks import load
from uatlite.values import Dataset

TASK = "rotten-tomatoes"
# what is trained -> how; the other methods run on the base
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
METHODS = (
    "mc-uniform,mc-component,mc-global,uat,fast,analytic,ensemble,snapshot:members=3,swag,laplace,sngp,vi-last-layer"
)
TIMED_TEXTS, ROUNDS = 64, 3


def say(what: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {what}", flush=True)


def train_all(directory: Path, train: Dataset, seed: int) -> dict[str, float]:
    """Train what is not trained yet into the directory of a seed; returns the seconds that each took."""
    costs, job = directory / "cost.json", TrainingJob("minilm", train, recipe=DEMO, seed=seed)
    spent: dict[str, float] = json.loads(costs.read_text()) if costs.is_file() else {}
    for name, spelling in TRAININGS.items():
        if name in spent:
            continue
        say(f"seed {seed}: training {spelling}")
        bases = [directory / "base"] if name in SHARED else []
        taken = seconds(
            lambda: fine_tune(job, directory / name, parse_training(spelling), bases=bases, resume=True),  # noqa: B023
            time.process_time,
        )
        spent[name] = taken + (spent["base"] if bases else 0.0)  # what training all of it costs, whoever did it
        costs.write_text(json.dumps(spent))
    return spent


def trained_as(method: Method) -> str:
    """Which of `TRAININGS` a method runs on."""
    return method.key if method.key in TRAININGS else "base"


def inference_costs(directory: Path, texts: list[str], methods: dict[str, Method]) -> dict[str, float]:
    """The time of each method over the same texts relative to base, timed in turn with it; medians of the ratios."""
    base, costs = load_checkpoint(directory / "base", device="cpu"), {}
    tokens = tokenize(base.tokenizer, texts, 64)
    for name, method in methods.items():
        model = load_checkpoint(directory / trained_as(method), device="cpu").model
        run = {name: lambda model=model, method=method: run_tokens(model, method, tokens)}
        costs |= ratios(run, lambda: run_tokens(base.model, parse_method("base"), tokens), ROUNDS)  # type: ignore[arg-type]
    return costs


def storage(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.safetensors"))


def main() -> None:
    parser = parser_of(__doc__, seeds=3, rows=3000, threads=2, methods=METHODS)
    parser.add_argument("out", type=Path, help="directory for models and costs")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train, test = load(TASK, "train", limit=options.rows), load(TASK, "test")
    methods = {name: parse_method(name) for name in options.methods.split(",")}
    directories = [options.out / f"seed-{seed}" for seed in range(options.seeds)]
    spent = [train_all(directory, train, seed) for seed, directory in enumerate(directories)]
    say("timing inference")
    inference = inference_costs(directories[0], [str(text) for text in test.texts[:TIMED_TEXTS]], methods)
    head("method", "train", "run", "store")
    for name, method in methods.items():
        training = trained_as(method)
        train_cost = mean(one[training] for one in spent) / mean(one["base"] for one in spent)
        store = mean(storage(one / training) / storage(one / "base") for one in directories)
        line(name, f"{train_cost:.1f}×", f"{inference[name]:.1f}×", f"{store:.1f}×")


if __name__ == "__main__":
    main()
