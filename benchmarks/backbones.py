"""The fine-tuned models that the benchmarks measure: MiniLM-L6 on eight tasks, three seeds each.

    python benchmarks/backbones.py --data DIR --models DIR [--only sst2,clinc150] [--seeds 0,1,2]

DIR of --data holds the files of the tasks (see `uatlite tasks`). A finished model is left as it is and an interrupted
one goes on from its last checkpoint, so the command can be stopped and repeated at any time.
"""

from dataclasses import replace
from pathlib import Path

from harness import numbers, parser_of_models
from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.recipe import Recipe, TrainingJob
from uatlite.text.tasks import load

SHORT = Recipe(learning_rate=1e-4, warmup_steps=60, batch_size=32, epochs=1, max_length=64, group_by_length=True)
RECIPES = {
    "sst2": SHORT,
    "clinc150": replace(SHORT, learning_rate=5e-4, batch_size=64, epochs=3),
    "mnli": replace(SHORT, learning_rate=2e-4, batch_size=64, epochs=2, max_length=96),
    "rotten-tomatoes": SHORT,
    "imdb": replace(SHORT, max_length=128),
    "wnut17": replace(SHORT, learning_rate=3e-4, epochs=5, max_length=96),
    "btc": replace(SHORT, learning_rate=3e-4, epochs=3, max_length=96),
    "goemotions": replace(SHORT, learning_rate=2e-4, batch_size=64, epochs=2),
}
"""task -> the recipe with which MiniLM-L6 learns it on two cores in minutes"""
ROWS = {"sst2": 20_000, "imdb": 4_000, "goemotions": 20_000}
"""task -> at most so many training rows; of the others all"""


def train(task: str, models: Path, data: Path | None, seed: int) -> None:
    """Fine-tune a model if it is not there."""
    directory, rows = models / f"{task}-{seed}", load(task, "train", data, limit=ROWS.get(task), seed=seed)
    job = TrainingJob("minilm", rows, recipe=RECIPES[task], seed=seed, checkpoint_steps=200)
    record = fine_tune(job, directory, resume=True)
    print(f"{directory.name}: {record.rows:,} rows, {record.steps} steps, {record.seconds:.0f} s", flush=True)


def main() -> None:
    options = parser_of_models(__doc__, only=",".join(RECIPES), seeds="0,1,2").parse_args()
    for seed in numbers(options.seeds):
        for task in options.only.split(","):
            train(task, options.models, options.data, seed)


if __name__ == "__main__":
    main()
