"""Do the promises hold? Simulated worlds in which the truth is known, and resamples of a real pool.

    python benchmarks/promises.py [--repetitions 1000] [--only risk,per-class,conformal,false-alarm,power]
    python benchmarks/promises.py --only pool --models DIR --data DIR

Prints Markdown tables: how often the promised selective risk is exceeded, for all answers and for each class, the
coverage of conformal label sets, the false-alarm rate of the shift check, and its power.

The pool are the 2,693 labelled sentences of SST-2's dev and test sets, scored by each model DIR/sst2-*: labelled rows
and unlabelled reference texts are drawn from it again and again, and its own risk is the truth.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
import torch
from scipy.special import softmax
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from harness import best_share, head, line, parser_of, slashed, title
from uatlite.text.tasks import load
from uatlite.trust.binomial import STARTS, allowed_errors, needed_share, plan_starts, upper_quantile
from uatlite.trust.distribution import label_sets
from uatlite.trust.planners import RowsPlanner
from uatlite.trust.promise import Labelled, decide, fitting_rows, rows_planner
from uatlite.trust.rule import Wanted
from uatlite.trust.scope import fit_scope
from uatlite.trust.search import Plan, search
from uatlite.trust.shift import summarise

CONFIDENCE = 0.95
CLASSES = 3
HUGE = 400_000


@dataclass(frozen=True)
class World:
    """Rows whose true class probabilities are known, seen through a model with logits `sharpness` times the true.

    `trap` rows, the model's most confident, are wrong with probability 0.3: there the risk does not fall as the
    threshold rises, and a method that takes this for granted has no promise. `noise` of the labels are flipped among
    rows with a confidence above 0.9, in calibration and truth alike: so much of the most trusted rows is always wrong.
    """

    name: str
    sharpness: float
    trap: float = 0.0
    noise: float = 0.0

    def draw(self, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The model's probabilities (rows, classes) and the true ones (rows, classes)."""
        logits = rng.normal(0, 3.0, (rows, CLASSES))
        truth, model = softmax(logits, axis=1), softmax(self.sharpness * logits, axis=1)
        trapped = rng.random(rows) < self.trap
        model[trapped], truth[trapped] = [0.99999, 5e-6, 5e-6], [0.7, 0.15, 0.15]
        trusted = model.max(axis=1) > 0.9
        truth[trusted] = (1 - self.noise) * truth[trusted] + self.noise * (1 - truth[trusted]) / (CLASSES - 1)
        return model, truth

    @cached_property
    def curves(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Scores of a huge sample in falling order, and the true risk of answering down to each: of all rows, and of
        those predicted as each class."""
        model, truth = self.draw(HUGE, np.random.default_rng(987_654_321))
        scores, predicted = model.max(axis=1), model.argmax(axis=1)
        chances = 1.0 - truth[np.arange(HUGE), predicted]
        order = np.argsort(-scores, kind="stable")
        found = []
        for part in [order, *(order[predicted[order] == column] for column in range(CLASSES))]:
            found.append((scores[part], chances[part].cumsum() / np.arange(1, len(part) + 1)))
        return found

    def at(self, threshold: float, column: int = -1) -> tuple[float, float]:
        """The true risk and coverage of answering scores above the threshold, of all rows or of one class."""
        scores, risks = self.curves[column + 1]
        answered = int(np.searchsorted(-scores, -threshold, side="left"))
        return (float(risks[answered - 1]) if answered else 0.0), answered / HUGE

    def best(self, target: float) -> float:
        """The coverage of the best threshold, if the truth were known."""
        fine = np.flatnonzero(self.curves[0][1] <= target)
        return (fine[-1] + 1) / HUGE if len(fine) else 0.0


WORLDS = (
    World("calibrated", 1.0),
    World("overconfident", 3.0),
    World("confidently wrong on 3 %", 1.0, trap=0.03),
    World("3 % of trusted labels flipped", 1.0, noise=0.03),
)


def labels_of(truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One label for each row, (rows,), by its true probabilities."""
    return (rng.random(len(truth))[:, None] > truth.cumsum(axis=1)[:, :-1]).sum(axis=1)


Method = Callable[[np.ndarray, np.ndarray, float, np.ndarray, int], float]
"""From scores, wrong, the target, reference scores and a seed to a threshold."""


def plug_in(scores: np.ndarray, wrong: np.ndarray, target: float, reference: np.ndarray, seed: int) -> float:
    """The usual way: the lowest threshold whose observed risk is at most the target."""
    order = np.argsort(-scores)
    observed = wrong[order].cumsum() / np.arange(1, len(scores) + 1)
    fine = np.flatnonzero(observed <= target)
    return math.inf if not len(fine) else float(np.append(scores[order], -math.inf)[fine[-1] + 1])


def bonferroni(scores: np.ndarray, wrong: np.ndarray, target: float, reference: np.ndarray, seed: int) -> float:
    """Ten ranks fixed beforehand, each tested at a tenth of the level: valid too, and what we compare with."""
    rows, errors = len(scores), np.concatenate([[0], wrong[np.argsort(-scores)].cumsum()])
    below = np.append(np.sort(scores)[::-1], -math.inf)
    allowed = allowed_errors(np.arange(rows + 1), target, 1 - (1 - CONFIDENCE) / 10)
    fine = [k for k in np.linspace(rows / 10, rows, 10).astype(int) if errors[k] <= allowed[k]]
    return float(below[max(fine)]) if fine else math.inf


def with_reference(scores: np.ndarray, wrong: np.ndarray, target: float, reference: np.ndarray, seed: int) -> float:
    """The rule with reference scores, without the sentence that says why not."""
    return RowsPlanner(Wanted(confidence=CONFIDENCE), scores, wrong, reference).searched(target).threshold


def no_reference(scores: np.ndarray, wrong: np.ndarray, target: float, reference: np.ndarray, seed: int) -> float:
    """The rule without reference scores: a few rows are set aside."""
    wanted = Wanted(kind="risk", target=target, confidence=CONFIDENCE, seed=seed)
    return rows_planner(Labelled({"confidence": scores}, wrong), wanted).searched(target).threshold


def one_start(scores: np.ndarray, wrong: np.ndarray, target: float, reference: np.ndarray, seed: int) -> float:
    """Ours with the last start alone, at half of the rows: valid too, and what the others are for."""
    least = needed_share(len(scores), len(reference), target, 1 - CONFIDENCE, 0)
    at = upper_quantile(reference, max(STARTS[-1][0], min(least, 1.0)))
    planner = RowsPlanner(Wanted(confidence=CONFIDENCE), scores, wrong, reference)
    begin = int(np.searchsorted(planner.counts, (scores > at).sum()))
    plan = Plan(planner.below[planner.counts], [(begin, 1 - CONFIDENCE)] if least <= 1 else [])
    return planner.rule(plan, target, search(plan, planner.test(plan, target))).threshold


METHODS: dict[str, Method] = {
    "ours, reference": with_reference,
    "ours, no reference": no_reference,
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
    for repetition in range(repetitions):
        model, truth = world.draw(2 * rows, rng)
        scores, wrong = model.max(axis=1), model.argmax(axis=1) != labels_of(truth, rng)
        for name, method in METHODS.items():
            risk, share = world.at(method(scores[:rows], wrong[:rows], target, scores[rows:], repetition))
            broken[name] += risk > target
            coverage[name] += share
    return {name: (broken[name] / repetitions, coverage[name] / repetitions) for name in METHODS}


def allowance(repetitions: int) -> str:
    error = math.sqrt((1 - CONFIDENCE) * CONFIDENCE / repetitions)
    return f"Allowed: broken in at most {1 - CONFIDENCE:.3f} (Monte Carlo standard error {error:.3f}).\n"


def risk_table(repetitions: int) -> None:
    title(f"Selective risk: promise broken / mean coverage ({repetitions} repetitions, confidence {CONFIDENCE})")
    print(allowance(repetitions))
    head("world", "rows", "target", "starts", "best coverage", *METHODS)
    for world, rows, target in product(WORLDS, (100, 200, 500, 2000), (0.02, 0.05, 0.10)):
        found = risk_outcomes(world, rows, target, repetitions, seed=rows + int(1000 * target))
        starts = len(plan_starts(np.arange(rows) / rows, rows, target, 1 - CONFIDENCE))
        line(world.name, rows, target, starts, f"{world.best(target):.3f}", *map(slashed, found.values()))


def per_class_outcomes(
    world: World, rows: int, target: float, repetitions: int, *, reference: bool, only: str | None
) -> tuple[float, float, float]:
    """How often the promise of any class is broken, the true coverage, and the share of classes with a promise."""
    rng = np.random.default_rng(rows)
    names = tuple(str(column) for column in range(CLASSES))
    broken, coverage, made = 0, 0.0, 0.0
    for repetition in range(repetitions):
        model, truth = world.draw(2 * rows, rng)
        scores, predicted = model.max(axis=1), model.argmax(axis=1)
        wrong = predicted != labels_of(truth, rng)
        rule = decide(
            Labelled({"confidence": scores[:rows]}, wrong[:rows], kind=predicted[:rows]),
            Wanted(kind="risk", target=target, confidence=CONFIDENCE, classes=names, only=only, seed=repetition),
            reference=Labelled({"confidence": scores[rows:]}, kind=predicted[rows:]) if reference else None,
        ).rule
        true = [world.at(part.threshold, column) for column, part in enumerate(rule.per_kind or ())]
        asked = [part.asked for part in rule.per_kind or ()]
        broken += any(risk > target for (risk, _), one in zip(true, asked, strict=True) if one)
        coverage += sum(share for _, share in true)
        made += sum(part.promised for part in rule.per_kind or ()) / sum(asked)
    return broken / repetitions, coverage / repetitions, made / repetitions


def per_class_table(repetitions: int) -> None:
    title(f"Risk of each class: any broken / coverage / promises made ({repetitions} repetitions)")
    print(allowance(repetitions))
    head("world", "rows", "target", "three classes", "three, no reference", "one class only")
    for world, rows, target in product(WORLDS, (500, 2000), (0.05, 0.10)):
        found = [
            per_class_outcomes(world, rows, target, repetitions, reference=reference, only=only)
            for reference, only in ((True, None), (False, None), (True, "0"))
        ]
        line(world.name, rows, target, *map(slashed, found))


@torch.inference_mode()
def pool_of(model_dir: Path, data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    """The margin of each sentence of the pool, (rows,), from a plain pass of the model, and whether it is wrong.

    The margin top 1 - top 2 of the logits is fitted on no label; with two classes it orders rows as the softmax does.
    """
    rows = [row for split in ("calibration", "test", "test-original") for row in load("sst2", split, data_dir).examples]
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForSequenceClassification.from_pretrained(model_dir).eval()
    logits = np.empty((len(rows), model.config.num_labels))
    order = sorted(range(len(rows)), key=lambda row: len(rows[row].text))
    for first in range(0, len(order), 64):
        batch = order[first : first + 64]
        encoded = tokenizer([rows[row].text for row in batch], padding=True, truncation=True, return_tensors="pt")
        logits[batch] = model(**encoded).logits.numpy()
    ranked = np.sort(logits, axis=1)
    return ranked[:, -1] - ranked[:, -2], logits.argmax(axis=1) != np.array([row.label for row in rows])


def two_thirds(scores: np.ndarray, wrong: np.ndarray, target: float, reference: np.ndarray, seed: int) -> float:
    """Where a third of the rows fits a calibrator: the others decide, and the scores of that third give the starts."""
    fitting = fitting_rows(len(scores), seed)
    return with_reference(scores[~fitting], wrong[~fitting], target, scores[fitting], seed)


POOL_METHODS: dict[str, Method] = {
    "all rows, reference": with_reference,
    "all rows, no reference": no_reference,
    "two thirds of the rows": two_thirds,
}


def pool_outcomes(
    margins: np.ndarray, wrong: np.ndarray, rows: int, target: float, repetitions: int, *, replacement: bool
) -> list[tuple[float, float, float]]:
    """For each method the coverage, the share of repetitions that abstain on all, and that exceed the pool's risk.

    With replacement the pool is the population, and both samples are independent draws of it: the theorem applies as it
    stands. Without, the reference is the rest of the pool, and the promise is kept more often than it states, as the
    labelled rows are themselves part of the truth.
    """
    rng = np.random.default_rng(rows)
    found = np.zeros((len(POOL_METHODS), 3))
    for repetition in range(repetitions):
        places = len(margins)
        drawn = rng.integers(0, places, places) if replacement else rng.permutation(places)
        labelled, others = drawn[:rows], drawn[rows:]
        for place, method in enumerate(POOL_METHODS.values()):
            threshold = method(margins[labelled], wrong[labelled], target, margins[others], repetition)
            answered = margins > threshold
            found[place] += answered.mean(), threshold == math.inf, answered.any() and wrong[answered].mean() > target
    return [tuple(row) for row in (found / repetitions).tolist()]


def pool_table(repetitions: int, models: Path, data: Path) -> None:
    title(f"A real pool: coverage / abstains on all / promise broken ({repetitions} repetitions)")
    print(allowance(repetitions))
    head("model", "drawn", "rows", "target", "knowing the truth", *POOL_METHODS, left=2)
    for directory in sorted(path.parent for path in models.glob("sst2-*/model.safetensors")):
        margins, wrong = pool_of(directory, data)
        for replacement, rows, target in product((True, False), (200, 400, 872), (0.03, 0.05, 0.10)):
            found = pool_outcomes(margins, wrong, rows, target, repetitions, replacement=replacement)
            how, best = "with replacement" if replacement else "without", best_share(margins, wrong, target)
            line(directory.name, how, rows, target, f"{best:.3f}", *map(slashed, found))


def conformal_outcomes(
    world: World, rows: int, coverage: float, repetitions: int, seed: int
) -> tuple[float, float, float]:
    """Mean true coverage, its standard error over repetitions, and the mean size of the sets."""
    rng = np.random.default_rng(seed)
    covered, sizes = [], []
    for _ in range(repetitions):
        model, truth = world.draw(rows + 500, rng)
        rng.random(rows + 500)  # as when the table was made
        fitted = label_sets(model[:rows], labels_of(truth[:rows], rng), coverage)
        sets = fitted.sets(model[rows:])
        covered.append((sets * truth[rows:]).sum(axis=1).mean())
        sizes.append(sets.sum(axis=1).mean())
    return float(np.mean(covered)), float(np.std(covered, ddof=1) / math.sqrt(repetitions)), float(np.mean(sizes))


def conformal_table(repetitions: int) -> None:
    title(f"Conformal label sets: coverage ± standard error ({repetitions} repetitions) and mean size")
    head("world", "rows", "promised", "coverage", "size")
    for world, rows, coverage in product(WORLDS[:2], (50, 200, 500, 2000), (0.9, 0.95)):
        mean, error, size = conformal_outcomes(world, rows, coverage, repetitions, seed=rows)
        line(world.name, rows, coverage, f"{mean:.4f} ± {error:.4f}", f"{size:.2f}")


def representations(rows: int, units: int, rng: np.random.Generator) -> np.ndarray:
    """Correlated, heavy-tailed vectors (rows, units): a falling spectrum, Student's t with 5 degrees."""
    spectrum = 1.0 / np.sqrt(1 + np.arange(units))
    tails = np.sqrt(5.0 / rng.chisquare(5, rows))
    return rng.standard_normal((rows, units)) * spectrum * tails[:, None]


def alarm_rate(
    rows: int, checked: int, units: int, repetitions: int, *, shift: float = 0.0, seed: int = 0
) -> tuple[float, float]:
    """The share of repetitions with an alarm, and of rows out of scope; each unit's mean moves by `shift` σ.

    The scope is that of the calibration rows alone, with two classes.
    """
    rng = np.random.default_rng(seed)
    world, alarms, outside = WORLDS[0], 0, 0.0
    for _ in range(repetitions):
        scores = world.draw(rows + checked, rng)[0].max(axis=1)
        x = representations(rows + checked, units, rng)
        x[rows:] += shift / np.sqrt(1 + np.arange(units))
        scope = fit_scope(None, x[:rows], x[:rows, :2])
        p = scope.p_values(x[rows:], x[rows:, :2])
        report = summarise(scores[:rows]).check(scores[rows:], p)
        alarms += bool(report.shifted)
        outside += report.out_of_scope or 0.0
    return alarms / repetitions, outside / repetitions


def false_alarm_table(repetitions: int) -> None:
    title("Shift check: false alarms at the stated rate 0.01")
    columns = ["calibration rows", "new rows", "repetitions", "false alarms ± s.e.", "rows out of scope"]
    head("units", *columns, left=0)
    for units, rows, checked in product((32, 384), (50, 200, 500, 2000), (50, 500, 2000)):
        count = repetitions if units * rows < 100_000 else 2 * repetitions // 5  # the dear ones
        rate, outside = alarm_rate(rows, checked, units, count, seed=rows + checked)
        error = math.sqrt(rate * (1 - rate) / count)
        line(units, rows, checked, count, f"{rate:.4f} ± {error:.4f}", f"{outside:.4f}")


def power_table(repetitions: int) -> None:
    title(f"Shift check: alarms when each unit's mean moves ({repetitions} repetitions, 384 units)")
    shifts = (0.1, 0.2, 0.3, 0.5)
    head("calibration rows", "new rows", *(f"{shift} σ" for shift in shifts), left=0)
    for rows, checked in ((200, 50), (200, 500), (500, 50), (500, 500), (2000, 500)):
        rates = [alarm_rate(rows, checked, 384, repetitions, shift=shift)[0] for shift in shifts]
        line(rows, checked, *(f"{rate:.2f}" for rate in rates))


TABLES: dict[str, Callable[[int], None]] = {
    "risk": risk_table,
    "per-class": per_class_table,
    "conformal": conformal_table,
    "false-alarm": false_alarm_table,
    "power": lambda repetitions: power_table(max(repetitions // 10, 50)),
}


def main() -> None:
    parser = parser_of(__doc__, repetitions=1000)
    parser.add_argument("--only", default=",".join(TABLES), help=f"tables, by comma: {', '.join(TABLES)}, pool")
    parser.add_argument("--models", type=Path, help="directory with the fine-tuned models sst2-*, for the table pool")
    parser.add_argument("--data", type=Path, help="directory with the data of the tasks, for the table pool")
    options = parser.parse_args()
    for name in options.only.split(","):
        if name != "pool":
            TABLES[name](options.repetitions)
        elif options.models is None or options.data is None:
            parser.error("the table pool needs --models and --data")
        else:
            pool_table(options.repetitions, options.models, options.data)


if __name__ == "__main__":
    main()
