"""Whether a model has learned its task. A claim about a model that has not would compare noise."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from uatlite.lab.paper.artifacts import Artifacts
from uatlite.lab.paper.declaration import CellSpec

MARGIN = 0.05
"""How far above chance the accuracy of a model must be that has learned its task."""


@dataclass(frozen=True)
class Learning:
    """The accuracy of the plain model on the test rows of its own task, mean over seeds."""

    backbone: str
    task: str
    seeds: int
    rows: int
    accuracy: float
    chance: float
    """the share of the most frequent class: what always giving one answer gets"""

    @property
    def learned(self) -> bool:
        return self.accuracy >= self.chance + MARGIN

    @property
    def sentence(self) -> str:
        """'bert-tiny on mnli has an accuracy of 0.362, and always giving one answer 0.340'."""
        name = Path(self.backbone).name
        return f"{name} on {self.task} has an accuracy of {self.accuracy:.3f}, and one answer for all {self.chance:.3f}"


def learning_spec(spec: CellSpec) -> CellSpec:
    """The plain model of a cell on the test rows of its own task."""
    return CellSpec(measure="accuracy", contender="base", task=spec.task, backbone=spec.backbone, seeds=spec.seeds)


def learning_of(spec: CellSpec, artifacts: Artifacts) -> Learning:
    """Whether the model of a cell has learned its task; its predictions on the task's test rows were made before."""
    own = learning_spec(spec)
    outcomes = artifacts.outcomes(own)
    labels = outcomes[0].labels
    return Learning(
        backbone=artifacts.settings.backbone_of(spec.backbone),
        task=spec.task,
        seeds=len(outcomes),
        rows=len(labels),
        accuracy=float(np.mean([one.rows.correct.mean() for one in outcomes])),
        chance=float(np.bincount(labels).max() / len(labels)),
    )


def most_seeds(found: Iterable[Learning]) -> list[Learning]:
    """One entry for each backbone and task: the one over the most seeds."""
    best: dict[tuple[str, str], Learning] = {}
    for one in found:
        known = best.get((one.task, one.backbone))
        if known is None or one.seeds > known.seeds:
            best[one.task, one.backbone] = one
    return list(best.values())
