"""Do the promises hold? Simulated worlds in which the truth is known, and resamples of a real pool.

    python benchmarks/promises.py [--repetitions 1000] [--only risk,per-class,…]
    python benchmarks/promises.py --only names,needed --models DIR --data DIR --cache DIR   # requirements-mapie.txt

Prints Markdown tables: how often the promised selective risk is exceeded, for all answers and for each class, the
coverage of conformal label sets, the false-alarm rate of the shift check, and its power. With texts as the unit, from
100 repetitions: how often each test of E[wrong] < r·E[answers] succeeds at the level 0.05 on texts that all have
answers, and the share of answers that a rule reports, beside the best possible for one who knows the truth.

The pool are the 2,693 labelled sentences of SST-2's dev and test sets, scored by each model DIR/sst2-*: labelled rows
and unlabelled reference texts are drawn from it again and again, and its own risk is the truth.
"""

import math
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path

import numpy as np
from scipy.special import expit, logit, softmax
from scipy.stats import binom

from harness import best_share, head, line, only, parser_of, slashed, title
from uatlite.classifier.runtime import run_tokens
from uatlite.methods.sampling import BASE
from uatlite.model.load import load_checkpoint
from uatlite.model.tokens import tokenize
from uatlite.text.tasks import load
from uatlite.trust.all_texts import REVIEW_SHARE, ErrorsPlanner, reviews_rule
from uatlite.trust.bets import CLUMPING, Game, won
from uatlite.trust.binomial import allowed_errors, plan_starts
from uatlite.trust.distribution import label_sets
from uatlite.trust.planners import RowsPlanner, TextScores, TextsPlanner, most_answers
from uatlite.trust.promise import Labelled, decide, rows_planner
from uatlite.trust.rule import Wanted
from uatlite.trust.scope import fit_scope
from uatlite.trust.shift import summarise

CONFIDENCE = 0.95
LEVEL = TARGET = 0.05
CLASSES = 3
HUGE, HUGE_TEXTS = 400_000, 100_000
MOST_CONTINUED = 30_000
"""Rows up to which a sample without a promise is continued."""
TRUTH = 987_654_321
"""The seed of the huge samples."""


def means(repetitions: int, trial: Callable[[int], Sequence[float]]) -> list[float]:
    """What a trial gives, on average over the repetitions."""
    return np.mean([trial(repetition) for repetition in range(repetitions)], axis=0).tolist()


# ── rows of one answer ─────────────────────────────────────────────────────────────────────────────────────────────


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

    def labelled(self, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores of drawn rows, their predicted classes, and which of these are wrong, (rows,) each."""
        model, truth = self.draw(rows, rng)
        predicted = model.argmax(axis=1)
        return model.max(axis=1), predicted, predicted != labels_of(truth, rng)

    @cached_property
    def curves(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Scores of a huge sample in falling order, and the true risk of answering down to each: of all rows, and of
        those predicted as each class."""
        model, truth = self.draw(HUGE, np.random.default_rng(TRUTH))
        scores, predicted = model.max(axis=1), model.argmax(axis=1)
        chances = 1.0 - truth[np.arange(HUGE), predicted]
        order = np.argsort(-scores, kind="stable")
        parts = [order, *(order[predicted[order] == column] for column in range(CLASSES))]
        return [(scores[part], chances[part].cumsum() / np.arange(1, len(part) + 1)) for part in parts]

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


@dataclass(frozen=True)
class Sample:
    """Labelled scores, a target of the risk, and reference scores without labels."""

    scores: np.ndarray
    wrong: np.ndarray
    target: float
    reference: np.ndarray
    seed: int

    @property
    def planner(self) -> RowsPlanner:
        return RowsPlanner(Wanted(confidence=CONFIDENCE), self.scores, self.wrong, self.reference)


def plug_in(drawn: Sample) -> float:
    """The usual way: the lowest threshold whose observed risk is at most the target."""
    order = np.argsort(-drawn.scores)
    observed = drawn.wrong[order].cumsum() / np.arange(1, len(order) + 1)
    fine = np.flatnonzero(observed <= drawn.target)
    return math.inf if not len(fine) else float(np.append(drawn.scores[order], -math.inf)[fine[-1] + 1])


def bonferroni(drawn: Sample) -> float:
    """Ten ranks fixed beforehand, each tested at a tenth of the level: valid too, and what we compare with."""
    order, rows = np.argsort(-drawn.scores), len(drawn.scores)
    errors, below = np.concatenate([[0], drawn.wrong[order].cumsum()]), np.append(drawn.scores[order], -math.inf)
    allowed = allowed_errors(np.arange(rows + 1), drawn.target, 1 - (1 - CONFIDENCE) / 10)
    fine = [k for k in np.linspace(rows / 10, rows, 10).astype(int) if errors[k] <= allowed[k]]
    return float(below[max(fine)]) if fine else math.inf


def with_reference(drawn: Sample) -> float:
    """The rule with reference scores, without the sentence that says why not."""
    return drawn.planner.searched(drawn.target).threshold


def no_reference(drawn: Sample) -> float:
    """The rule without reference scores: a few rows are set aside."""
    wanted = Wanted(kind="risk", target=drawn.target, confidence=CONFIDENCE, seed=drawn.seed)
    return rows_planner(Labelled({"confidence": drawn.scores}, drawn.wrong), wanted).searched(drawn.target).threshold


def like_reference(drawn: Sample) -> float:
    """As `calibrate` with a reference."""
    wanted = Wanted(kind="risk", target=drawn.target, confidence=CONFIDENCE, seed=drawn.seed)
    rows = Labelled({"confidence": drawn.scores}, drawn.wrong, unlabelled=Labelled({"confidence": drawn.reference}))
    return rows_planner(rows, wanted).searched(drawn.target).threshold


METHODS: dict[str, Callable[[Sample], float]] = {
    "ours, reference": with_reference,
    "ours, no reference": no_reference,
    "Bonferroni": bonferroni,
    "plug-in": plug_in,
}


def allowance(repetitions: int) -> str:
    error = math.sqrt((1 - CONFIDENCE) * CONFIDENCE / repetitions)
    return f"Allowed: broken in at most {1 - CONFIDENCE:.3f} (Monte Carlo standard error {error:.3f}).\n"


def risk_table(options: Namespace) -> None:
    """For each method the share of repetitions whose true risk exceeds the target, and the mean true coverage."""
    repetitions = options.repetitions
    title(f"Selective risk: promise broken / mean coverage ({repetitions} repetitions, confidence {CONFIDENCE})")
    print(allowance(repetitions))
    head("world", "rows", "target", "starts", "best coverage", *METHODS)
    for world, rows, target in product(WORLDS, (100, 200, 500, 2000), (0.02, 0.05, 0.10)):
        rng = np.random.default_rng(rows + int(1000 * target))

        def trial(seed: int) -> list[tuple[bool, float]]:
            scores, _, wrong = world.labelled(2 * rows, rng)  # noqa: B023
            sample = Sample(scores[:rows], wrong[:rows], target, scores[rows:], seed)  # noqa: B023
            at = [world.at(method(sample)) for method in METHODS.values()]  # noqa: B023
            return [(risk > target, share) for risk, share in at]  # noqa: B023

        starts = len(plan_starts(np.arange(rows) / rows, rows, target, 1 - CONFIDENCE))
        found = means(repetitions, trial)
        line(world.name, rows, target, starts, f"{world.best(target):.3f}", *map(slashed, found))


def per_class_outcomes(
    world: World, rows: int, target: float, repetitions: int, *, reference: bool, only: str | None
) -> list[float]:
    """How often the promise of any class is broken, the true coverage, and the share of classes with a promise."""
    rng = np.random.default_rng(rows)
    names = tuple(str(column) for column in range(CLASSES))

    def trial(seed: int) -> tuple[bool, float, float]:
        scores, predicted, wrong = world.labelled(2 * rows, rng)
        parts = decide(
            Labelled({"confidence": scores[:rows]}, wrong[:rows], kind=predicted[:rows]),
            Wanted(kind="risk", target=target, confidence=CONFIDENCE, classes=names, only=only, seed=seed),
            reference=Labelled({"confidence": scores[rows:]}, kind=predicted[rows:]) if reference else None,
        ).rule.per_kind
        true = [world.at(part.threshold, column) for column, part in enumerate(parts)]
        broken = any(risk > target and part.asked for (risk, _), part in zip(true, parts, strict=True))
        made = sum(part.promised for part in parts) / sum(part.asked for part in parts)
        return broken, sum(share for _, share in true), made

    return means(repetitions, trial)


def per_class_table(options: Namespace) -> None:
    title(f"Risk of each class: any broken / coverage / promises made ({options.repetitions} repetitions)")
    print(allowance(options.repetitions))
    head("world", "rows", "target", "three classes", "three, no reference", "one class only")
    for world, rows, target in product(WORLDS, (500, 2000), (0.05, 0.10)):
        found = [
            per_class_outcomes(world, rows, target, options.repetitions, reference=reference, only=only)
            for reference, only in ((True, None), (False, None), (True, "0"))
        ]
        line(world.name, rows, target, *map(slashed, found))


SENTENCES = ("calibration", "test", "test-original")
"""The splits of SST-2 that are its pool."""


def pool_of(directory: Path, data: Path, task: str, splits: Sequence[str], most: int | None) -> list[np.ndarray]:
    """The margin of each text of the pool, (rows,), from a plain pass of the model, and whether it is wrong.

    The margin top 1 - top 2 of the logits is fitted on no label; with two classes it orders rows as the softmax does.
    """
    rows = [row for split in splits for row in load(task, split, data, limit=most).in_scope().examples]
    checkpoint = load_checkpoint(directory)
    tokens = tokenize(checkpoint.tokenizer, [row.text for row in rows], 160)
    logits = run_tokens(checkpoint.model, BASE, tokens).mean_logits
    ranked = np.sort(logits, axis=1)
    return [ranked[:, -1] - ranked[:, -2], logits.argmax(axis=1) != np.array([row.label for row in rows])]


POOLS = {
    "sst2": ("sst2-0", "sst2", SENTENCES, None),
    "mnli": ("mnli-0", "mnli", ("calibration", "test"), 600),
    "imdb, model of sst2": ("sst2-0", "imdb", ("test",), 600),
    "clinc150": ("clinc150-0", "clinc150", ("calibration", "test"), None),
}
"""Pool -> its model, task and splits, and the most texts of a split."""


def pools(options: Namespace, names: Sequence[str] = tuple(POOLS)) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The name of each pool whose model is there, and what `pool_of` says; kept in --cache."""
    for name, (model, task, splits, most) in ((name, POOLS[name]) for name in names):
        path = options.cache / f"{task}-by-{model}.npz"
        if not path.exists() and (options.models / model / "model.safetensors").exists():
            margins, wrong = pool_of(options.models / model, options.data, task, splits, most)
            np.savez(path, margins=margins, wrong=wrong)
        if path.exists():
            yield name, *np.load(path).values()


def needed_outcomes(
    margins: np.ndarray, wrong: np.ndarray, rows: int, target: float, repetitions: int
) -> list[tuple[float, float, float]]:
    """Of each sample without a promise: the ends of the range, and the number of rows with which the promise is there.

    A sample is drawn with replacement and continued, 10 % of its rows at a time.
    """
    rng, found = np.random.default_rng(rows), []

    def planner(drawn: np.ndarray, seed: int) -> RowsPlanner:
        return rows_planner(Labelled({"margin": margins[drawn]}, wrong[drawn]), Wanted(score="margin", seed=seed))

    for seed in range(repetitions):
        drawn = rng.integers(0, len(margins), MOST_CONTINUED)
        sizes = [round(rows * 1.1**step) for step in range(100) if rows * 1.1**step <= MOST_CONTINUED]
        met = next((size for size in sizes if planner(drawn[:size], seed).searched(target).promised), math.inf)
        if met > rows:
            needed = replace(planner(drawn[:rows], seed), among=(rows, 0)).needed(target)
            found.append((needed.low or math.inf, needed.high or math.inf, met))
    return found


def needed_table(options: Namespace) -> None:
    title(f"The rows that a promise would take: {options.repetitions} samples, continued until the promise is there")
    columns = ["no promise yet", "promise at", "low end", "high end", "before the range", "within", "after it", "open"]
    head("model", "rows", "target", *columns)
    for name, margins, wrong in pools(options, ["sst2"]):
        for rows, target in product((200, 400, 872), (0.02, 0.03, 0.05)):
            if found := needed_outcomes(margins, wrong, rows, target, options.repetitions):
                low, high, met = np.array(found).T
                medians = (f"{np.median(values):,.0f}" for values in (met, low, high))
                shares = (met < low, (met >= low) & (met <= high), met > high, np.isinf(high))
                line(name, rows, target, len(met), *medians, *(f"{share.mean():.2f}" for share in shares))


def mapie(drawn: Sample, of_all: bool) -> float:
    """The lowest threshold of MAPIE's risk control, of a hundred on the margins as numbers from 0.5 to 1: precision by
    its default (a fixed sequence begins where few are answered, and finds nothing); of all texts a risk of our own."""
    from mapie.risk_control import BinaryClassificationController, BinaryRisk, precision

    def odds(margins: np.ndarray) -> np.ndarray:
        return np.column_stack([1 - expit(margins / 2), expit(margins / 2)])

    errors = BinaryRisk(lambda y, said: (said == 1) & (y == 0), lambda y, said: np.ones(len(y), bool), False)
    asked = (errors, drawn.target, precision) if of_all else (precision, 1 - drawn.target, "auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing is controlled
        controller = BinaryClassificationController(
            odds,
            asked[0],
            asked[1],
            CONFIDENCE,
            asked[2],
            np.linspace(0.99, 0.5, 100),
            fwer_method="fixed_sequence" if of_all else "bonferroni_holm",
        ).calibrate(drawn.scores, (~drawn.wrong).astype(int))
    valid = controller.valid_predict_params
    return 2 * float(logit(np.min(valid))) if len(valid) else math.inf


NAMED: dict[str, tuple[Callable[[Sample], float], bool]] = {
    "answers": (no_reference, False),
    "answers, reference": (like_reference, False),
    "answers, MAPIE": (partial(mapie, of_all=False), False),
    "all texts": (
        lambda drawn: ErrorsPlanner(Wanted(), drawn.scores, drawn.wrong).searched(drawn.target).threshold,
        True,
    ),
    "all texts, MAPIE": (partial(mapie, of_all=True), True),
}
"""Promise and method -> its threshold, and whether it is about all texts."""


def named_trial(margins: np.ndarray, wrong: np.ndarray, rows: int, rng: np.random.Generator, seed: int) -> np.ndarray:
    """Coverage, whether nothing is answered (or the bound of a review), whether broken: (promises, 3)."""
    size = len(margins)
    drawn = rng.integers(0, size, rows + 1800)
    sample = Sample(margins[drawn[:rows]], wrong[drawn[:rows]], TARGET, margins[drawn[rows:]], seed)
    outcomes = []
    for method, of_all in NAMED.values():
        answered = margins > method(sample)
        errors = wrong[answered].sum() / (size if of_all else max(answered.sum(), 1))
        outcomes.append((answered.mean(), not answered.any(), errors > TARGET))
    asked = Wanted(kind="coverage", target=1 - REVIEW_SHARE, confidence=CONFIDENCE)
    review = reviews_rule(sample.scores, sample.wrong, rows, asked)
    answered = margins > review.threshold
    outcomes.append((answered.mean(), review.risk_bound, wrong[answered].mean() > review.risk_bound))
    return np.array(outcomes, dtype=float)


def named_table(options: Namespace) -> None:
    """Each promise on real pools, drawn with replacement, beside the best for one who knows the truth."""
    title(f"Three promises: coverage / answers nothing / broken, target {TARGET} ({options.repetitions} repetitions)")
    print(allowance(options.repetitions))
    head("pool", "wrong", "rows", "best, answers", "best, all", *NAMED, "a fifth to review: coverage / bound / broken")
    for (name, margins, wrong), rows in product(pools(options), (100, 200, 400, 872)):
        trial = partial(named_trial, margins, wrong, rows, np.random.default_rng(rows))
        of_all = (np.cumsum(wrong[np.argsort(-margins, kind="stable")]) <= TARGET * len(wrong)).mean()
        best = f"{best_share(margins, wrong, TARGET):.3f}", f"{of_all:.3f}"
        line(name, f"{wrong.mean():.3f}", rows, *best, *map(slashed, means(options.repetitions, trial)))


def conformal_table(options: Namespace) -> None:
    """Mean true coverage, its standard error over repetitions, and the mean size of the sets."""
    title(f"Conformal label sets: coverage ± standard error ({options.repetitions} repetitions) and mean size")
    head("world", "rows", "promised", "coverage", "size")
    for world, rows, coverage in product(WORLDS[:2], (50, 200, 500, 2000), (0.9, 0.95)):
        rng, found = np.random.default_rng(rows), []
        for _ in range(options.repetitions):
            model, truth = world.draw(rows + 500, rng)
            rng.random(rows + 500)  # as when the table was made
            sets = label_sets(model[:rows], labels_of(truth[:rows], rng), coverage).sets(model[rows:])
            found.append(((sets * truth[rows:]).sum(axis=1).mean(), sets.sum(axis=1).mean()))
        mean, size = np.mean(found, axis=0)
        error = np.std(found, axis=0, ddof=1)[0] / math.sqrt(options.repetitions)
        line(world.name, rows, coverage, f"{mean:.4f} ± {error:.4f}", f"{size:.2f}")


# ── the shift check ────────────────────────────────────────────────────────────────────────────────────────────────


def representations(rows: int, units: int, rng: np.random.Generator) -> np.ndarray:
    """Correlated, heavy-tailed vectors (rows, units): a falling spectrum, Student's t with 5 degrees."""
    spectrum = 1.0 / np.sqrt(1 + np.arange(units))
    tails = np.sqrt(5.0 / rng.chisquare(5, rows))
    return rng.standard_normal((rows, units)) * spectrum * tails[:, None]


def alarm_rate(
    rows: int, checked: int, units: int, repetitions: int, *, shift: float = 0.0, seed: int = 0
) -> list[float]:
    """The share of repetitions with an alarm, and of rows out of scope; each unit's mean moves by `shift` σ.

    The scope is that of the calibration rows alone, with two classes.
    """
    rng = np.random.default_rng(seed)

    def trial(_: int) -> tuple[bool, float]:
        scores = WORLDS[0].draw(rows + checked, rng)[0].max(axis=1)
        x = representations(rows + checked, units, rng)
        x[rows:] += shift / np.sqrt(1 + np.arange(units))
        scope = fit_scope(None, x[:rows], x[:rows, :2])
        report = summarise(scores[:rows]).check(scores[rows:], scope.p_values(x[rows:], x[rows:, :2]))
        return bool(report.shifted), report.out_of_scope or 0.0

    return means(repetitions, trial)


def false_alarm_table(options: Namespace) -> None:
    title("Shift check: false alarms at the stated rate 0.01")
    columns = ["calibration rows", "new rows", "repetitions", "false alarms ± s.e.", "rows out of scope"]
    head("units", *columns, left=0)
    for units, rows, checked in product((32, 384), (50, 200, 500, 2000), (50, 500, 2000)):
        count = options.repetitions if units * rows < 100_000 else 2 * options.repetitions // 5  # the dear ones
        rate, outside = alarm_rate(rows, checked, units, count, seed=rows + checked)
        error = math.sqrt(rate * (1 - rate) / count)
        line(units, rows, checked, count, f"{rate:.4f} ± {error:.4f}", f"{outside:.4f}")


def power_table(options: Namespace) -> None:
    repetitions, shifts = max(options.repetitions // 10, 50), (0.1, 0.2, 0.3, 0.5)
    title(f"Shift check: alarms when each unit's mean moves ({repetitions} repetitions, 384 units)")
    head("calibration rows", "new rows", *(f"{shift} σ" for shift in shifts), left=0)
    for rows, checked in ((200, 50), (200, 500), (500, 50), (500, 500), (2000, 500)):
        rates = [alarm_rate(rows, checked, 384, repetitions, shift=shift)[0] for shift in shifts]
        line(rows, checked, *(f"{rate:.2f}" for rate in rates))


# ── texts of several answers ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Counted:
    """Answers of texts and how many are wrong, (texts, samples) each, the target, and the most answers of a text."""

    counts: np.ndarray
    errors: np.ndarray
    target: float
    most: int
    rng: np.random.Generator

    @property
    def losses(self) -> np.ndarray:
        """Negative on average where the risk is below the target."""
        return self.errors - self.target * self.counts


Test = Callable[[Counted], np.ndarray]
"""Whether each sample rejects, (samples,)."""
STAKES = np.concatenate([np.geomspace(0.005, 0.1, 8), np.linspace(0.15, 0.99, 15)])
"""Shares of the largest stake that a mixture bets."""


def ours(drawn: Counted) -> np.ndarray:
    """The bet that copies the exact test."""
    mean = drawn.counts.mean()
    clump = 1 + CLUMPING * max(np.square(drawn.counts).mean() / mean - 1, 0)
    game = Game(drawn.most * (1 - drawn.target), drawn.most * drawn.target, mean, clump)
    return won(drawn.counts, drawn.errors, drawn.target, np.full((drawn.counts.shape[1], 1), LEVEL), game)[:, 0]


def mixture(drawn: Counted) -> np.ndarray:
    """The mean of bets with constant stakes (a universal portfolio), at the best moment."""
    shares = STAKES[:, None, None] / (drawn.most * (1 - drawn.target)) * drawn.losses
    return np.exp(np.log1p(-shares).cumsum(axis=1)).mean(axis=0).max(axis=0) >= 1 / LEVEL


def hoeffding_bentkus(drawn: Counted) -> np.ndarray:
    """The p-value of Bates et al. (2021) for the mean of target + (errors - target·counts)/most, which is in [0, 1]."""
    target, texts = drawn.target, len(drawn.counts)
    mean = (target + drawn.losses / drawn.most).mean(axis=0)
    low = np.clip(mean, 1e-12, target)
    chernoff = np.exp(-texts * (low * np.log(low / target) + (1 - low) * np.log((1 - low) / (1 - target))))
    return np.minimum(chernoff, np.e * binom.cdf(np.ceil(texts * mean), texts, target)) <= LEVEL


TESTS: dict[str, Test] = {
    "ours": ours,
    "mixed bets": mixture,
    "Hoeffding–Bentkus": hoeffding_bentkus,
}


def tests_table(options: Namespace) -> None:
    """Texts have 1 to `most` answers; the errors are those of a whole text with probability `together`."""
    head("texts", "most", "together", "target", "true risk", *TESTS, left=0)
    risks = ((0.05, 0.015), (0.1, 0.05), (0.2, 0.13), (0.1, 0.1))
    for texts, most, together, (target, risk) in product((150, 400), (2, 4), (0.0, 0.5), risks):
        rng, shape = np.random.default_rng(0), (texts, 10 * options.texts_repetitions)
        counts = np.minimum(rng.geometric(0.6, shape), most)
        whole = rng.random(shape) < together
        errors = np.where(whole, counts * (rng.random(shape) < risk), rng.binomial(counts, risk))
        drawn = Counted(counts.astype(float), errors.astype(float), target, most, rng)
        line(texts, most, f"{together:g}", target, risk, *(f"{test(drawn).mean():.3f}" for test in TESTS.values()))


@dataclass(frozen=True)
class TextsWorld:
    """Answers that are right with the probability of their score, Beta(4, 1).

    `mean` answers a text; with `tail` one text in twenty has most of them. An error is one of the whole text with
    probability `together`. A share `trap` of the texts has the surest answers of all, and all are wrong.
    """

    name: str
    mean: float = 1.0
    together: float = 0.0
    tail: bool = False
    trap: float = 0.0

    def draw(self, texts: int, rng: np.random.Generator) -> tuple[TextScores, np.ndarray]:
        """The answers of some texts, and which are wrong."""
        few = np.where(rng.random(texts) < 0.05, 12.0, 0.45) if self.tail else np.full(texts, self.mean)
        text = np.repeat(np.arange(texts), rng.poisson(few))
        scores = rng.beta(4, 1, len(text))
        luck = np.where(rng.random(len(text)) < self.together, rng.random(texts)[text], rng.random(len(text)))
        trapped = (rng.random(texts) < self.trap)[text]
        return TextScores(np.where(trapped, 0.9999, scores), text, texts), (luck > scores) | trapped

    @cached_property
    def truth(self) -> tuple[TextScores, np.ndarray]:
        return self.draw(HUGE_TEXTS, np.random.default_rng(TRUTH))

    def at(self, threshold: float, most: int) -> tuple[float, float]:
        """The true risk and the share of answers reported."""
        answers, wrong = self.truth
        reported = answers.shown(threshold, most)
        shown = reported.sum()
        return float((reported & wrong).sum() / shown if shown else 0.0), float(shown / len(answers.scores))

    def trial(self, texts: int, target: float, most: int | None, seed: int) -> tuple[float, bool, bool]:
        """The share reported, whether nothing is promised, and whether the promise is broken."""
        rng = np.random.default_rng(seed)
        (sample, wrong), (others, _) = self.draw(texts, rng), self.draw(1000, rng)
        labelled, most = replace(sample, wrong=wrong), most or most_answers(others)
        wanted = Wanted(kind="precision", target=target, confidence=CONFIDENCE, seed=seed)
        rule = TextsPlanner(wanted, labelled, others, most).searched(target)
        risk, share = self.at(rule.threshold, rule.most)
        return share, not rule.promised, risk > target


TEXTS_WORLDS = (
    TextsWorld("independent, 0.5 a text", mean=0.5),
    TextsWorld("independent"),
    TextsWorld("half together, 2 a text", mean=2.0, together=0.5),
    TextsWorld("half together, most in few texts", tail=True, together=0.5),
    TextsWorld("surely wrong in 2 % of texts", trap=0.02),
)


def coverage_table(options: Namespace) -> None:
    """Mean share reported / how often nothing is promised / how often the promise is broken."""
    head("world", "texts", "target", "knowing the truth", "promise", "with one answer a text")
    for world, texts, target in product(TEXTS_WORLDS, (500, 1000), (0.05, 0.1, 0.2)):
        found = [means(options.texts_repetitions, partial(world.trial, texts, target, most)) for most in (None, 1)]
        answers, wrong = world.truth
        cells = [f"{share:.3f} / {nothing:.2f} / {broken:.3f}" for share, nothing, broken in found]
        line(world.name, texts, target, f"{best_share(answers.scores, wrong, target):.3f}", *cells)


TABLES: dict[str, Callable[[Namespace], None]] = {
    "risk": risk_table,
    "per-class": per_class_table,
    "conformal": conformal_table,
    "false-alarm": false_alarm_table,
    "power": power_table,
    "tests": tests_table,
    "coverage": coverage_table,
    "needed": needed_table,
    "names": named_table,
}


def main() -> None:
    parser = parser_of(__doc__, repetitions=1000, texts_repetitions=100)
    parser.add_argument("--models", type=Path, help="directory with the fine-tuned models TASK-0, for tables of pools")
    parser.add_argument("--data", type=Path, help="directory with the data of the tasks, for tables of pools")
    parser.add_argument("--cache", type=Path, help="keeps the margins of the table names")
    usual = [name for name in TABLES if name not in ("needed", "names")]
    only(parser, TABLES, lambda options: options, usual=usual)


if __name__ == "__main__":
    main()
