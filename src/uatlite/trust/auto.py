"""The calibrators by name, and `auto`, which chooses one of them by cross-validated NLL and says why."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import CalibrationError, ConfigurationError, check_choice
from uatlite.trust.calibrators import (
    Calibrator,
    Identity,
    Temperature,
    VectorScaling,
    check_fit,
    check_fitted,
    check_variance,
)
from uatlite.trust.input_temperature import InputTemperature
from uatlite.trust.one_vs_rest import HistogramBinning, Isotonic, Platt
from uatlite.values import Floats, Integers

SIMPLEST_FIRST: dict[str, type[Calibrator]] = {
    "none": Identity,
    "input-temperature": InputTemperature,
    "temperature": Temperature,
    "vector": VectorScaling,
    "platt": Platt,
    "histogram": HistogramBinning,
    "isotonic": Isotonic,
}
"""The candidates, in the order in which `auto` prefers them when the data cannot tell.

Input temperature and vector scaling have priors that hold them near temperature scaling where the rows do not say
otherwise, so they come before calibrators with as many parameters and no prior.
"""


WORTH = 0.003
"""The most NLL that is given up for a simpler calibrator, however uncertain the difference is."""


@dataclass(frozen=True)
class Candidate:
    """One line of the table: the cross-validated NLL of a calibrator.

    `nll` is the mean over held-out rows, `excess` its difference from the best candidate's, and `error` the standard
    error of that difference, row by row. Where the calibrator cannot be fitted all are None and `note` says why.
    """

    name: str
    nll: float | None
    excess: float | None
    error: float | None
    note: str = ""


def stratified_folds(labels: Integers, folds: int, seed: int) -> Integers:
    """A fold in 0 .. folds-1 for each row, (rows,), each class spread evenly; a function of the seed."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    assigned = np.empty(len(labels), dtype=np.int64)
    assigned[by_class] = np.arange(len(labels)) % folds
    return assigned


def held_out(
    kind: type[Calibrator], logits: Floats, labels: Integers, variance: Floats | None, folds: Integers
) -> Floats:
    """Probabilities (rows, classes) of each row by a calibrator fitted on the other folds."""
    result = np.empty_like(logits)
    for fold in range(int(folds.max()) + 1):
        out = folds == fold
        inside, outside = (None, None) if variance is None else (variance[~out], variance[out])
        result[out] = kind().fit(logits[~out], labels[~out], inside).probabilities(logits[out], outside)
    return result


class Auto:
    """The simplest calibrator whose cross-validated NLL is within one standard error of the best one's, and of `WORTH`.

    The standard error is that of the difference, row by row, from the best: two calibrators are wrong on the
    same rows, so the difference is known much better than either NLL. The chosen one is then fitted on all rows.
    """

    name: ClassVar[str] = "auto"
    keeps_argmax: ClassVar[bool] = False
    uses_variance: ClassVar[bool] = False  # not needed, but used where given

    def __init__(self, folds: int = 5, seed: int = 0) -> None:
        self.folds = folds
        self.seed = seed

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn `chosen_` (a fitted calibrator), `table_` (a Candidate each) and `reason_` (a sentence)."""
        if self.folds < 2:
            raise ConfigurationError(f"folds={self.folds} leaves nothing held out; use 2 or more.")
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=30, every_class=False)
        v = None if variance is None else check_variance(variance, rows=len(z))
        assigned = stratified_folds(y, self.folds, self.seed)
        losses: dict[str, Floats] = {}
        notes: dict[str, str] = {}
        for name, kind in SIMPLEST_FIRST.items():
            if kind.uses_variance and v is None:
                notes[name] = "no variance was given"
                continue
            try:
                chances = held_out(kind, z, y, v, assigned)[np.arange(len(y)), y]
            except CalibrationError as error:
                notes[name] = str(error)
                continue
            losses[name] = -np.log(np.maximum(chances, np.finfo(np.float64).tiny))
        self.table_ = tabulate(losses, notes)
        name = simplest_within_one_error(self.table_)
        self.reason_ = explain(self.table_, name, rows=len(y), folds=self.folds)
        self.chosen_: Calibrator = SIMPLEST_FIRST[name]().fit(z, y, v)
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """Those of the chosen calibrator, (rows, classes)."""
        check_fitted(self, "chosen_")
        return self.chosen_.probabilities(logits, variance)

    def effective_variance(self, logits: ArrayLike, variance: ArrayLike | None) -> Floats | None:
        """That of the chosen calibrator."""
        check_fitted(self, "chosen_")
        return self.chosen_.effective_variance(logits, variance)

    def probabilities_with(self, logits: ArrayLike, effective: ArrayLike | None) -> Floats:
        """Those of the chosen calibrator."""
        check_fitted(self, "chosen_")
        return self.chosen_.probabilities_with(logits, effective)

    def to_dict(self) -> dict[str, Any]:
        """{"calibrator": "auto", "folds": ..., "seed": ..., "chosen": {...}, "table": [...], "reason": ...}."""
        check_fitted(self, "chosen_")
        return {
            "calibrator": self.name,
            "folds": self.folds,
            "seed": self.seed,
            "chosen": self.chosen_.to_dict(),
            "table": [asdict(candidate) for candidate in self.table_],
            "reason": self.reason_,
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        new = cls(folds=int(state["folds"]), seed=int(state["seed"]))
        new.chosen_ = SIMPLEST_FIRST[state["chosen"]["calibrator"]].from_dict(state["chosen"])
        new.table_ = tuple(Candidate(**line) for line in state["table"])
        new.reason_ = str(state["reason"])
        return new


def tabulate(losses: dict[str, Floats], notes: dict[str, str]) -> tuple[Candidate, ...]:
    """The table of all candidates, simplest first, from held-out losses (rows,); `notes` say why one has none."""
    best = losses[min(losses, key=lambda name: float(losses[name].mean()))]
    lines = []
    for name in SIMPLEST_FIRST:
        if name in notes:
            lines.append(Candidate(name, None, None, None, notes[name]))
            continue
        excess = losses[name] - best
        error = float(excess.std(ddof=1) / np.sqrt(len(excess)))
        lines.append(Candidate(name, float(losses[name].mean()), float(excess.mean()), error))
    return tuple(lines)


def simplest_within_one_error(table: tuple[Candidate, ...]) -> str:
    """The first name, simplest first, whose excess is at most one standard error of that excess, and `WORTH`."""
    return next(  # there is one: the best itself has 0 ≤ 0
        line.name
        for line in table
        if line.excess is not None and line.error is not None and line.excess <= min(line.error, WORTH)
    )


def explain(table: tuple[Candidate, ...], name: str, *, rows: int, folds: int) -> str:
    """One sentence: what was chosen and why."""
    scored = {line.name: line for line in table if line.nll is not None}
    best = min(scored.values(), key=lambda line: line.nll or 0.0)
    chosen = scored[name]
    evidence = f"NLL over {folds} folds of {rows} rows: {name} {chosen.nll:.4f}"
    if best.name == name:
        return f"{name}: it has the lowest cross-validated NLL ({evidence})."
    return (
        f"{name}: the simplest within one standard error of the best ({evidence}, best {best.name} "
        f"{best.nll:.4f}, difference {chosen.excess:.4f} ± {chosen.error:.4f})."
    )


CALIBRATORS: dict[str, type[Calibrator]] = {**SIMPLEST_FIRST, "auto": Auto}


def make_calibrator(name: str) -> Calibrator:
    """A new, unfitted calibrator with its default settings."""
    check_choice("calibrator", name, CALIBRATORS)
    return CALIBRATORS[name]()


def calibrator_from_dict(state: dict[str, Any]) -> Calibrator:
    """The fitted calibrator that `to_dict` described, whichever it is."""
    name = state.get("calibrator")
    if name not in CALIBRATORS:
        known = ", ".join(CALIBRATORS)
        raise CalibrationError(f"the stored calibrator {name!r} is not one of: {known}; calibrate again.")
    try:
        return CALIBRATORS[name].from_dict(state)
    except (KeyError, TypeError, ValueError) as error:
        raise CalibrationError(f"the stored calibrator {name!r} is broken ({error!r}); calibrate again.") from error
