"""Do the promises hold? Simulated worlds in which the truth is known.

    python benchmarks/promises.py [--repetitions 1000] [--only risk,conformal,false-alarm,power]

Prints Markdown tables: how often the promised selective risk is exceeded, the coverage of conformal label
sets, the false-alarm rate of the shift check, and its power.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import softmax

from uatlite.trust.label_sets import label_sets
from uatlite.trust.promise import Start, first_share, lowest_in_sequence, target_risk, upper_quantile
from uatlite.trust.rule import allowed_errors
from uatlite.trust.shift import summarise

CONFIDENCE = 0.95
CLASSES = 3
HUGE = 400_000


@dataclass(frozen=True)
class World:
    """Rows whose true class probabilities are known, seen through a model with logits `sharpness` times the true.

    `trap` rows, the model's most confident, are wrong with probability 0.3: there the risk does not fall as the
    threshold rises, and a method that takes this for granted has no promise.
    """

    name: str
    sharpness: float
    trap: float = 0.0

    def draw(self, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The model's probabilities (rows, classes) and the true ones (rows, classes)."""
        logits = rng.normal(0, 3.0, (rows, CLASSES))
        truth, model = softmax(logits, axis=1), softmax(self.sharpness * logits, axis=1)
        trapped = rng.random(rows) < self.trap
        model[trapped], truth[trapped] = [0.99999, 5e-6, 5e-6], [0.7, 0.15, 0.15]
        return model, truth

    @cached_property
    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores of a huge sample in falling order, and the true risk of answering down to each."""
        model, truth = self.draw(HUGE, np.random.default_rng(987_654_321))
        scores, chances = model.max(axis=1), 1.0 - truth[np.arange(HUGE), model.argmax(axis=1)]
        order = np.argsort(-scores, kind="stable")
        return scores[order], chances[order].cumsum() / np.arange(1, HUGE + 1)

    def at(self, threshold: float) -> tuple[float, float]:
        """The true risk and coverage of answering scores above the threshold."""
        scores, risks = self.curve
        answered = int(np.searchsorted(-scores, -threshold, side="left"))
        return (float(risks[answered - 1]) if answered else 0.0), answered / HUGE


WORLDS = (
    World("calibrated", 1.0),
    World("overconfident", 3.0),
    World("confidently wrong on 3 %", 1.0, trap=0.03),
)


def labels_of(truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One label for each row, (rows,), by its true probabilities."""
    return (rng.random(len(truth))[:, None] > truth.cumsum(axis=1)[:, :-1]).sum(axis=1)


def plug_in(scores: np.ndarray, errors: np.ndarray, target: float, pilot: np.ndarray) -> float:
    """The usual way: the lowest threshold whose observed risk is at most the target."""
    order = np.argsort(-scores)
    observed = errors[order].cumsum() / np.arange(1, len(scores) + 1)
    fine = np.flatnonzero(observed <= target)
    return math.inf if not len(fine) else float(np.append(scores[order], -math.inf)[fine[-1] + 1])


def bonferroni(scores: np.ndarray, errors: np.ndarray, target: float, pilot: np.ndarray) -> float:
    """Ten ranks fixed beforehand, each tested at a tenth of the level: valid too, and what we compare with."""
    rows, wrong = len(scores), np.concatenate([[0], errors[np.argsort(-scores)].cumsum()])
    below = np.append(np.sort(scores)[::-1], -math.inf)
    allowed = allowed_errors(np.arange(rows + 1), target, 1 - (1 - CONFIDENCE) / 10)
    fine = [k for k in np.linspace(rows / 10, rows, 10).astype(int) if wrong[k] <= allowed[k]]
    return float(below[max(fine)]) if fine else math.inf


def fixed_sequence(scores: np.ndarray, errors: np.ndarray, target: float, pilot: np.ndarray) -> float:
    """Ours, with the pilot scores of other rows."""
    return target_risk(scores, errors, target, confidence=CONFIDENCE, pilot=pilot).threshold


def own_pilot(scores: np.ndarray, errors: np.ndarray, target: float, pilot: np.ndarray) -> float:
    """Ours, without a pilot: a tenth of the rows is set aside."""
    return target_risk(scores, errors, target, confidence=CONFIDENCE).threshold


def one_start(scores: np.ndarray, errors: np.ndarray, target: float, pilot: np.ndarray) -> float:
    """Ours, without the second start: valid too, and what the second start is for."""
    share = first_share(len(scores), len(pilot), target, 1 - CONFIDENCE)
    starts = [] if share is None else [Start(upper_quantile(pilot, share), 1 - CONFIDENCE)]
    return lowest_in_sequence(scores, errors, target, starts)


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, float, np.ndarray], float]] = {
    "ours, pilot": fixed_sequence,
    "ours, no pilot": own_pilot,
    "one start": one_start,
    "Bonferroni": bonferroni,
    "plug-in": plug_in,
}


def risk_outcomes(
    world: World, rows: int, target: float, repetitions: int, seed: int
) -> dict[str, tuple[float, float]]:
    """For each method the share of repetitions whose true risk exceeds the target, and the mean true coverage."""
    rng = np.random.default_rng(seed)
    broken, coverage = dict.fromkeys(METHODS, 0), dict.fromkeys(METHODS, 0.0)
    for _ in range(repetitions):
        model, truth = world.draw(2 * rows, rng)
        scores, errors = model.max(axis=1), model.argmax(axis=1) != labels_of(truth, rng)
        for name, method in METHODS.items():
            risk, share = world.at(method(scores[:rows], errors[:rows], target, scores[rows:]))
            broken[name] += risk > target
            coverage[name] += share
    return {name: (broken[name] / repetitions, coverage[name] / repetitions) for name in METHODS}


def risk_table(repetitions: int) -> None:
    error = math.sqrt((1 - CONFIDENCE) * CONFIDENCE / repetitions)
    print(
        f"\n### Selective risk: promise broken / mean coverage ({repetitions} repetitions, confidence {CONFIDENCE})\n"
    )
    print(f"Allowed: broken in at most {1 - CONFIDENCE:.3f} (Monte Carlo standard error {error:.3f}).\n")
    print(
        "| world | rows | target | best coverage | "
        + " | ".join(METHODS)
        + " |\n|---|--:|--:|--:|"
        + "--:|" * len(METHODS)
    )
    for world in WORLDS:
        for rows in (200, 500, 2000):
            for target in (0.02, 0.05, 0.10):
                fine = np.flatnonzero(world.curve[1] <= target)
                best = (fine[-1] + 1) / HUGE if len(fine) else 0.0
                found = risk_outcomes(world, rows, target, repetitions, seed=rows + int(1000 * target))
                cells = " | ".join(f"{broken:.3f} / {share:.3f}" for broken, share in found.values())
                print(f"| {world.name} | {rows} | {target} | {best:.3f} | {cells} |", flush=True)


def conformal_outcomes(
    world: World, rows: int, coverage: float, method: str, repetitions: int, seed: int
) -> tuple[float, float, float]:
    """Mean true coverage, its standard error over repetitions, and the mean size of the sets."""
    rng = np.random.default_rng(seed)
    covered, sizes = [], []
    for _ in range(repetitions):
        model, truth = world.draw(rows + 500, rng)
        uniforms, labels = rng.random(rows + 500), labels_of(truth[:rows], rng)
        fitted = label_sets(model[:rows], labels, coverage, method=method, uniforms=uniforms[:rows])
        sets = fitted.sets(model[rows:], uniforms[rows:])
        covered.append((sets * truth[rows:]).sum(axis=1).mean())
        sizes.append(sets.sum(axis=1).mean())
    return float(np.mean(covered)), float(np.std(covered, ddof=1) / math.sqrt(repetitions)), float(np.mean(sizes))


def conformal_table(repetitions: int) -> None:
    print(f"\n### Conformal label sets: coverage ± standard error ({repetitions} repetitions) and mean size\n")
    print("| world | rows | promised | lac | size | aps | size |\n|---|--:|--:|--:|--:|--:|--:|")
    for world in WORLDS[:2]:
        for rows in (50, 200, 500, 2000):
            for coverage in (0.9, 0.95):
                cells = []
                for method in ("lac", "aps"):
                    mean, error, size = conformal_outcomes(world, rows, coverage, method, repetitions, seed=rows)
                    cells.append(f"{mean:.4f} ± {error:.4f} | {size:.2f}")
                print(f"| {world.name} | {rows} | {coverage} | {' | '.join(cells)} |", flush=True)


def representations(rows: int, units: int, rng: np.random.Generator) -> np.ndarray:
    """Correlated, heavy-tailed vectors (rows, units): a falling spectrum, Student's t with 5 degrees."""
    spectrum = 1.0 / np.sqrt(1 + np.arange(units))
    tails = np.sqrt(5.0 / rng.chisquare(5, rows))
    return rng.standard_normal((rows, units)) * spectrum * tails[:, None]


def alarm_rate(
    rows: int, checked: int, units: int, repetitions: int, *, shift: float = 0.0, seed: int = 0
) -> tuple[float, float]:
    """The share of repetitions with an alarm, and the share of outlying rows; each unit's mean moves by `shift` σ."""
    rng = np.random.default_rng(seed)
    world, alarms, outliers = WORLDS[0], 0, 0.0
    for _ in range(repetitions):
        scores = world.draw(rows + checked, rng)[0].max(axis=1)
        x = representations(rows + checked, units, rng)
        x[rows:] += shift / np.sqrt(1 + np.arange(units))
        report = summarise(scores[:rows], x[:rows]).check(scores[rows:], x[rows:])
        alarms += bool(report.shifted)
        outliers += report.outliers or 0.0
    return alarms / repetitions, outliers / repetitions


def false_alarm_table(repetitions: int) -> None:
    print("\n### Shift check: false alarms at the stated rate 0.01\n")
    print("| units | calibration rows | new rows | repetitions | false alarms ± s.e. | outlying rows |")
    print("|--:|--:|--:|--:|--:|--:|")
    for units in (32, 384):
        for rows in (50, 200, 500, 2000):
            for checked in (50, 500, 2000):
                count = repetitions if units * rows < 100_000 else 2 * repetitions // 5  # the dear ones
                rate, outliers = alarm_rate(rows, checked, units, count, seed=rows + checked)
                error = math.sqrt(rate * (1 - rate) / count)
                print(
                    f"| {units} | {rows} | {checked} | {count} | {rate:.4f} ± {error:.4f} | {outliers:.4f} |",
                    flush=True,
                )


def power_table(repetitions: int) -> None:
    print(f"\n### Shift check: alarms when each unit's mean moves ({repetitions} repetitions, 384 units)\n")
    print("| calibration rows | new rows | 0.1 σ | 0.2 σ | 0.3 σ | 0.5 σ |\n|--:|--:|--:|--:|--:|--:|")
    for rows, checked in ((200, 50), (200, 500), (500, 50), (500, 500), (2000, 500)):
        rates = [alarm_rate(rows, checked, 384, repetitions, shift=shift)[0] for shift in (0.1, 0.2, 0.3, 0.5)]
        print(f"| {rows} | {checked} | " + " | ".join(f"{rate:.2f}" for rate in rates) + " |", flush=True)


TABLES: dict[str, Callable[[int], None]] = {
    "risk": risk_table,
    "conformal": conformal_table,
    "false-alarm": false_alarm_table,
    "power": lambda repetitions: power_table(max(repetitions // 10, 50)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--only", default=",".join(TABLES), help="tables to print, by comma: " + ", ".join(TABLES))
    options = parser.parse_args()
    for name in options.only.split(","):
        TABLES[name](options.repetitions)


if __name__ == "__main__":
    main()
