"""What the demo trains and evaluates on, and how much of it: sizes for at most six minutes on two cores.

The cost is counted in sentences through the model. Training is about three passes for each sentence and epoch, the
sampled methods ten or six for each row of every set. An IMDb review, cut at `max_length`, is as long as five sentences.
"""

from dataclasses import dataclass, field, replace

from uatlite.backbone.embedded import EMBEDDED
from uatlite.data.schema import Task
from uatlite.data.tasks import MOVIE_REVIEWS_IMDB, ROTTEN_TOMATOES
from uatlite.experiments.contenders import parse_contenders
from uatlite.experiments.plan import Plan, SetChoice
from uatlite.training.recipe import DEMO, Recipe


def part_of(task: Task, **shares: tuple[int, int]) -> Task:
    """A task with its splits narrowed to these hundredths of all rows, which stay disjoint as they were."""
    splits = {name: replace(task.splits[name], share=share) for name, share in shares.items()}
    for name, share in shares.items():
        low, high = task.splits[name].share
        assert low <= share[0] < share[1] <= high, f"{task.name}/{name} is {low}-{high}, not {share}"
    return replace(task, splits={**task.splits, **splits})


# Of 8,530 sentences: 2,985 train, 682 calibrate, 682 test. Of 25,000 reviews: 250.
SENTENCES = part_of(ROTTEN_TOMATOES, train=(0, 35), calibration=(70, 78), test=(85, 93))
REVIEWS = part_of(MOVIE_REVIEWS_IMDB, test=(99, 100))


@dataclass(frozen=True)
class Settings:
    """One demo. Another one, with the same fields, is a small demo of another task."""

    backbone: str = EMBEDDED
    task: Task = SENTENCES
    shift: Task = REVIEWS
    recipe: Recipe = DEMO
    methods: str = "base,ts,mc,uat,uat+ts,fast+ts,analytic+its"
    max_length: int = 96
    target_risk: float = 0.1
    explained: int = 6
    """texts that are shown word by word"""
    seed: int = 0
    plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        plan = Plan(
            contenders=parse_contenders(self.methods),
            test=SetChoice(self.task),
            shifts=(SetChoice(self.shift),),
            max_length=self.max_length,
        )
        object.__setattr__(self, "plan", plan)
