"""The fine-tuned models that the benchmarks measure: MiniLM-L6 on eight tasks, three seeds each.

    python benchmarks/backbones.py --data DIR --models DIR [--only sst2,clinc150] [--seeds 0,1,2]

DIR of --data holds the files of the tasks (see `uatlite tasks`). A finished model is left as it is and an interrupted
one goes on from its last checkpoint, so the command can be stopped and repeated at any time.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from harness import numbers, parser_of_models
from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.recipe import Recipe, TrainingJob
from uatlite.text.tasks import load

SHORT = Recipe(learning_rate=1e-4, warmup_steps=60, batch_size=32, epochs=1, max_length=64, group_by_length=True)


@dataclass(frozen=True)
class Backbone:
    """A task and the recipe with which MiniLM-L6 learns it on two cores in minutes."""

    task: str
    recipe: Recipe
    rows: int | None = None

    def directory(self, models: Path, seed: int) -> Path:
        return models / f"{self.task}-{seed}"

    def train(self, models: Path, data: Path | None, seed: int) -> Path:
        """The directory of the fine-tuned model; trained now if it is not there."""
        directory = self.directory(models, seed)
        rows = load(self.task, "train", data, limit=self.rows, seed=seed)
        record = fine_tune(
            TrainingJob("minilm", rows, recipe=self.recipe, seed=seed, checkpoint_steps=200), directory, resume=True
        )
        print(f"{directory.name}: {record.rows:,} rows, {record.steps} steps, {record.seconds:.0f} s", flush=True)
        return directory


def recipe(**settings: object) -> Recipe:
    return replace(SHORT, **settings)  # type: ignore[arg-type]


BACKBONES = {
    "sst2": Backbone("sst2", SHORT, rows=20_000),
    "clinc150": Backbone("clinc150", recipe(learning_rate=5e-4, batch_size=64, epochs=3)),
    "mnli": Backbone("mnli", recipe(learning_rate=2e-4, batch_size=64, epochs=2, max_length=96)),
    "rotten-tomatoes": Backbone("rotten-tomatoes", SHORT),
    "imdb": Backbone("imdb", recipe(max_length=128), rows=4_000),
    "wnut17": Backbone("wnut17", recipe(learning_rate=3e-4, epochs=5, max_length=96)),
    "btc": Backbone("btc", recipe(learning_rate=3e-4, epochs=3, max_length=96)),
    "goemotions": Backbone("goemotions", recipe(learning_rate=2e-4, batch_size=64, epochs=2), rows=20_000),
}


def main() -> None:
    options = parser_of_models(__doc__, only=",".join(BACKBONES), seeds="0,1,2").parse_args()
    for seed in numbers(options.seeds):
        for name in options.only.split(","):
            BACKBONES[name].train(options.models, options.data, seed)


if __name__ == "__main__":
    main()
