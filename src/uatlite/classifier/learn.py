"""What a method learns from calibration texts: each method runs over them once, and a budget chooses among methods."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.calibrate import Basis, CalibrationOptions, Learned, boundary_of, split
from uatlite.classifier.run import run
from uatlite.classifier.runtime import Outputs, Runtime
from uatlite.classifier.settings import Settings
from uatlite.errors import ConfigurationError
from uatlite.methods.adaptive import ADAPTIVE
from uatlite.methods.cascade import SECONDS, Cascade, Labels, Second, Stages
from uatlite.methods.distilled import DISTILLED
from uatlite.methods.method import TAUGHT, CalibrationRows, Method, Tuned
from uatlite.methods.one_pass import BASE
from uatlite.metrics.selective import aurc
from uatlite.predictive import PassLogits
from uatlite.trust.auto import stratified_folds
from uatlite.trust.gaussians import ScopeFit
from uatlite.values import Floats, Text

REFERENCE_BLOCK = 2048
"""Reference texts that are read at once: what is kept of them does not grow with their number."""
Report = Callable[[int], None]
"""Called with the number of texts that a pass has read."""


@dataclass(eq=False)
class CalibrationTexts:
    """Labelled texts, and unlabelled ones of the same task, with what methods say about them."""

    runtime: Runtime
    settings: Settings
    texts: list[Text]
    labels: NDArray[np.int64]
    """(texts,)"""
    reference: Sequence[Text] = ()
    report: Report | None = None
    _runs: dict[tuple[str, str], Outputs] = field(default_factory=dict)

    def learn(self, options: CalibrationOptions, tolerance: float, budget: float | None) -> Learned:
        """The method with what it learns from these texts, and what it says about them."""
        method = self.settings.method
        basis: Basis = "texts" if method.tunable else "nothing"
        if budget is not None or method.learns_from_labels:
            basis = "labels"
        fitting, _ = split(self.labels, options, options.calibrator_of(method), basis)
        tuned = Tuned(method, "")
        if budget is not None or method.tunable:
            some = [text for text, chosen in zip(self.texts, fitting, strict=True) if chosen]

            def run_once(asked: Method) -> Outputs:
                return self._run(asked, "calibration").take(fitting)

            def run_again(asked: Method) -> Outputs:
                return self._run_over(asked, some)

            def run_some(asked: Method, places: NDArray[np.int64]) -> Outputs:
                return self._run_over(asked, [some[place] for place in places.tolist()])

            rows = CalibrationRows(
                self.labels[fitting],
                run_once if budget is None else run_again,  # a budget times the runs
                tolerance,
                boundary_of(options),
                (lambda asked: self._run(asked, "reference")) if self.reference else None,
                run_some=run_some,
            )
            tuned = method.tuned(rows) if budget is None else choose(budget, rows, seed=options.seed)
        settings = replace(self.settings, method=tuned.method.seeded(self.settings.seed))
        plain = self._run(BASE, "calibration")
        return Learned(
            settings=settings,
            outputs=self._outputs(settings.method, plain, tuned.outputs, fitting),
            plain=plain,
            reference=self._read_reference(settings) if self.reference else None,
            spending=(tuned.reason,) if tuned.reason else (),
            basis=basis,
        )

    def _outputs(
        self, method: Method, plain: Outputs, learned_from: PassLogits | None, fitting: NDArray[np.bool_]
    ) -> PassLogits:
        """What the method says about all rows; those that it learned from as if it had not."""
        if method.to_dict() == BASE.to_dict():
            return plain
        if learned_from is None:
            return self._run(method, "calibration")
        said = method.read_from(plain)
        if said is None:
            return self._run(method, "calibration")
        variance = said.given_variance
        if variance is None or learned_from.given_variance is None:
            return said
        own = variance.copy()
        own[fitting] = learned_from.given_variance
        return replace(said, given_variance=own)

    def _run(self, method: Method, which: str) -> Outputs:
        """What a method says about the calibration texts, or about some of the reference texts; run once."""
        key = which, repr(method.to_dict())
        if key not in self._runs:
            self._runs[key] = self._run_over(method, self.texts if which == "calibration" else self._some_reference())
        return self._runs[key]

    def _run_over(self, method: Method, texts: list[Text]) -> Outputs:
        settings = replace(self.settings, method=method.seeded(self.settings.seed))
        outputs = run(self.runtime, texts, settings)
        self._tell(len(texts))
        return outputs

    def _some_reference(self) -> list[Text]:
        order = np.random.default_rng(0).permutation(len(self.reference))[:TAUGHT]
        return [self.reference[place] for place in np.sort(order).tolist()]

    def _read_reference(self, settings: Settings) -> ScopeFit | None:
        """What the scope keeps of the reference texts, block by block; None where the model shows no representation."""
        fit: ScopeFit | None = None
        for start in range(0, len(self.reference), REFERENCE_BLOCK):
            texts = list(self.reference[start : start + REFERENCE_BLOCK])
            outputs = run(self.runtime, texts, settings)
            self._tell(len(texts))
            if outputs.representations is None:
                return None
            logits = outputs.mean_logits
            fit = fit or ScopeFit(outputs.representations.shape[1], logits.shape[1])
            fit.add(outputs.representations, logits.argmax(axis=1))
        return fit

    def _tell(self, texts: int) -> None:
        if self.report is not None:
            self.report(texts)


STAGES = ("analytic", "fast", "adaptive")
"""What is tried, on every text and as the second stage of a cascade."""
BUDGET_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75)
"""Of the rows that a cascade sends on."""
FOLDS = 3
ROUNDS = 3
"""Times that each method is timed, taking turns."""


@dataclass(frozen=True, eq=False)
class MethodCandidate:
    """A method, what it costs and how it did on rows that it was not fitted on."""

    method: Method
    label: str
    cost: float
    losses: Floats
    """(rows,): -log p of each row's label"""
    aurc: float


def choose(budget: float, rows: CalibrationRows, *, seed: int = 0) -> Tuned:
    """The method for texts like these rows that costs at most `budget` deterministic passes."""
    if not budget >= 1:
        raise ConfigurationError(f"budget={budget!r} is below 1, the cost of one deterministic pass; 2.0 is usual.")
    methods, outputs, costs = _measure(rows)
    folds = stratified_folds(rows.labels, FOLDS, seed)
    distilled = DISTILLED.tuned(rows)
    every = list(_candidates(methods, outputs, costs, rows.labels, folds, budget, distilled))
    best = min(every, key=lambda one: float(one.losses.mean()))
    level = (one for one in every if _level(one, best))
    chosen = min(level, key=lambda one: (one.cost, float(one.losses.mean())))
    reason = _explain(chosen, best, every, budget, len(rows.labels))
    return Tuned(chosen.method, reason, distilled.outputs if chosen.method is distilled.method else None)


def _measure(rows: CalibrationRows) -> tuple[dict[str, Second], dict[str, PassLogits], dict[str, float]]:
    """The second stages (adaptive sampling tuned), what they and 'base' say about the rows, and what they cost."""
    whole = rows.run(ADAPTIVE.whole)
    adaptive, _ = ADAPTIVE.learned(whole, rows)
    methods: dict[str, Second] = {**{name: SECONDS[name] for name in STAGES}, "adaptive": adaptive}
    timed: dict[str, list[float]] = {name: [] for name in ("base", *methods)}
    outputs: dict[str, PassLogits] = {}
    for _ in range(ROUNDS):
        for name in timed:
            begun = time.perf_counter()
            outputs[name] = rows.run(BASE if name == "base" else methods[name])
            timed[name].append(time.perf_counter() - begun)
    ratios = {name: [own / base for own, base in zip(timed[name], timed["base"], strict=True)] for name in methods}
    costs = {name: statistics.median(rounds) for name, rounds in ratios.items()}
    return methods, outputs | {"adaptive": adaptive.cut(whole)}, costs


def _candidates(
    methods: dict[str, Second],
    outputs: dict[str, PassLogits],
    costs: dict[str, float],
    labels: Labels,
    folds: Labels,
    budget: float,
    distilled: Tuned,
) -> Iterator[MethodCandidate]:
    """Within the budget: 'base', 'distilled', each second stage on every text, and each cascade at each share."""
    base = Stages.of(outputs["base"], outputs["base"])
    probabilities = _held_out(base, labels, folds, 0.0)
    yield MethodCandidate(BASE, "base", 1.0, _losses(probabilities, labels), aurc(probabilities, labels))
    if distilled.outputs is not None and distilled.method.passes == 1:
        read = Stages.of(outputs["base"], distilled.outputs)
        probabilities = _held_out(read, labels, folds, 1.0)
        losses, ranking = _losses(probabilities, labels), aurc(probabilities, labels)
        yield MethodCandidate(distilled.method, "distilled", 1.0, losses, ranking)
    for name, method in methods.items():
        stages = Stages.of(outputs["base"], outputs[name])
        for share in (*BUDGET_SHARES, 1.0):
            cost = costs[name] if share == 1.0 else 1 + share * costs[name]
            if cost > budget:
                continue
            probabilities = _held_out(stages, labels, folds, share)
            losses, ranking = _losses(probabilities, labels), aurc(probabilities, labels)
            if share == 1.0:
                yield MethodCandidate(method, name, cost, losses, ranking)
                continue
            cascade = Cascade(method, stages.fit(labels, share))
            yield MethodCandidate(cascade, f"cascade with {name} for {share:.0%}", cost, losses, ranking)


def _held_out(stages: Stages, labels: Labels, folds: Labels, share: float) -> Floats:
    """Probabilities (rows, classes) of each row by scales and a threshold that were fitted on the other folds."""
    found = np.empty_like(stages.first)
    for fold in range(FOLDS):
        out = folds == fold
        escalation = stages.take(~out).fit(labels[~out], share)
        found[out] = stages.take(out).mixture(escalation)
    return found


def _losses(probabilities: Floats, labels: Labels) -> Floats:
    chances = probabilities[np.arange(len(labels)), labels]
    return np.asarray(-np.log(np.maximum(chances, np.finfo(np.float64).tiny)))


def _level(one: MethodCandidate, best: MethodCandidate) -> bool:
    """Whether the NLL is within one standard error of the best one's, row by row."""
    excess = one.losses - best.losses
    return bool(excess.mean() <= excess.std(ddof=1) / np.sqrt(len(excess)))


def _explain(
    chosen: MethodCandidate, best: MethodCandidate, every: list[MethodCandidate], budget: float, rows: int
) -> str:
    what = f"Budget {budget:g}: {chosen.label}, at {chosen.cost:.2f} deterministic passes"
    figures = f"held-out NLL {chosen.losses.mean():.4f}, AURC {chosen.aurc:.4f} over {FOLDS} folds of {rows} rows"
    base = next(one for one in every if one.label == "base")
    if chosen is best:
        why = f"the lowest NLL of the {len(every)} settings within the budget"
    else:
        other = f"{best.label} ({best.losses.mean():.4f} at {best.cost:.2f})"
        why = f"the cheapest within one standard error of the best, {other}"
    compared = "" if chosen is base else f"; base alone {base.losses.mean():.4f}, {base.aurc:.4f}"
    return f"{what}: {why} ({figures}{compared})."
