"""An evaluation read back from disk without a model: results, predictions, texts; and what a rule would answer.

    DIR/results.json          written by `uatlite evaluate … -o DIR`
        store/                the logits of every pass; of several answers a text what is said, and whether it is right
        texts.jsonl           the texts of the first set

The store has no texts. Those of the first set lie beside it; without that file those of a task are loaded again.

`abstain` tells what a classifier would do that was calibrated on the calibration rows. The rule is that of
`UncertaintyClassifier.calibrate`. All calibration rows in scope decide it, by the margin of the logits, which no label
has fitted. A text is answered if it is in scope and its margin is above the threshold.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from uatlite.codec import dump
from uatlite.codec import load as load_value
from uatlite.errors import DataError, MissingDependency, StoreError, check_choice
from uatlite.lab.evaluate.outcomes import OUTCOMES, JudgedAnswers, Outcome, class_indices, outcome_of
from uatlite.lab.evaluate.plan import Contender, parse_contender
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.store import Store, StoredPredictions, StoredRun
from uatlite.metrics.rows import Rows
from uatlite.predictive import margin
from uatlite.text.examples import content_key
from uatlite.text.schema import catalogue
from uatlite.text.tasks import load
from uatlite.trust.calibrators import CALIBRATORS, LogitCalibrator
from uatlite.trust.promise import Labelled, decide
from uatlite.trust.rule import RAW_SCORE, Menu, Rule, Wanted
from uatlite.trust.scope import CALIBRATION_ROWS, Scope, fit_scope, in_scope
from uatlite.values import Example, Marks, Text, strings

RESULTS, STORE, TEXTS = "results.json", "store", "texts.jsonl"
_BASE = "base"
"""The method that runs the plain pass."""
TARGET_RISK = 0.1


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results and the stored predictions behind them. Rows are those of the first seed."""

    results: Results
    home: Path
    """the directory that they are in"""
    runs: Mapping[str, StoredRun] = field(default_factory=dict)
    """key -> run; of one answer a text"""
    _loaded: dict[str, StoredPredictions] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def contenders(self) -> tuple[Contender, ...]:
        return tuple(parse_contender(name, self.results.several) for name in self.results.contenders)

    def ruled(self, contender: str | None = None) -> Contender:
        """The contender of this name; without one, that which the verdict recommends."""
        names, verdict = self.results.contenders, self.results.verdict
        if contender is None:
            contender = names[0] if verdict is None else verdict.recommended
        check_choice("contender", contender, names)
        return self.contenders[names.index(contender)]

    def calibrator(self, contender: str) -> LogitCalibrator | None:
        """The fitted calibrator of a contender; None for one without."""
        return next(iter(self.results.calibrators[contender]), None)

    def outcomes(self, set_name: str) -> dict[str, Outcome]:
        """What every contender says about a scored set, beside the gold answers."""
        if (scored := OUTCOMES[self.results.kind].answers) is not None:
            runs, store = self._runs(set_name), Store(self.home / STORE)
            return {name: JudgedAnswers.read(store.answers(runs[name][0])).outcome(scored.pairs) for name in runs}
        return {
            contender.name: outcome_of(
                self.predictions(contender.method.name, set_name), self.calibrator(contender.name)
            )
            for contender in self.contenders
        }

    def predictions(self, method: str, set_name: str) -> StoredPredictions:
        """The stored predictions of a method on a scored set."""
        return self._read(self._runs(set_name)[method][0])

    def _runs(self, set_name: str) -> Mapping[str, tuple[str, ...]]:
        return next(scores.runs for scores in self.results.sets if scores.name == set_name)

    def calibration_rows(self, method: str) -> StoredPredictions | None:
        """The stored predictions of a method on the calibration rows; None where nothing was fitted."""
        keys = self.results.calibration_runs.get(method)
        return self._read(keys[0]) if keys else None

    def labelled(self, rows: StoredPredictions) -> StoredPredictions:
        """The rows with a gold label that the model knows, and what the head reads of them.

        It is read by the method itself, or by the plain pass over the same rows; none where neither is stored.
        """
        recipe = rows.provenance.recipe
        for key, run in self.runs.items() if rows.passes.representations is None else ():
            plain = run.provenance.recipe
            if run.provenance.method == _BASE and (plain.model, plain.data) == (recipe.model, recipe.data):
                passes = replace(rows.passes, representations=self._read(key).passes.representations)
                rows = replace(rows, passes=passes)
                break
        return rows.take(np.flatnonzero(class_indices(rows) >= 0))

    def examples(self, data_dir: str | Path | None = None) -> dict[str, Example]:
        """The examples of the first set by id: from the file beside the results, or those of a task that is found."""
        if (self.home / TEXTS).is_file():
            with (self.home / TEXTS).open(encoding="utf-8") as file:
                read = [load_value(Example, json.loads(line), advice="evaluate again.") for line in file]
            return {example.id: example for example in read}
        first = self.results.sets[0]
        recipe = self.predictions(next(iter(first.runs)), first.name).provenance.recipe
        if recipe.task not in catalogue() or recipe.perturbation is not None:
            return {}
        try:
            return {example.id: example for example in load(recipe.task, recipe.split, data_dir).examples}
        except (DataError, MissingDependency):
            return {}

    def _read(self, key: str) -> StoredPredictions:
        if key not in self.runs:
            raise StoreError(f"run {key} is in {RESULTS} but not in the store; run `uatlite evaluate` again.")
        if key not in self._loaded:
            self._loaded[key] = self.runs[key].read()
        return self._loaded[key]


def open_evaluation(path: str | Path) -> Evaluation:
    """The evaluation in a directory that `uatlite evaluate` wrote; the path of its store works too."""
    home = Path(path)
    if home.name == STORE and (home.parent / RESULTS).is_file():
        home = home.parent
    if not (home / RESULTS).is_file():
        raise StoreError(f"{path} holds no {RESULTS}; give the directory that `uatlite evaluate … -o DIR` wrote.")
    results = read_results(home / RESULTS)
    if results.several:
        return Evaluation(results, home)
    complete = {run.provenance.recipe.key: run for run in Store(home / STORE).runs() if run.complete}
    return Evaluation(results, home, complete)


def read_results(path: str | Path) -> Results:
    """The results of a `results.json`."""
    try:
        return Results.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, StoreError, ValueError, AttributeError, TypeError) as error:
        raise StoreError(f"{path} is not a results file ({error!r}); run `uatlite evaluate` again.") from error


def text_line(example: Example) -> str:
    """A text as a line of the file of texts."""
    state = {"id": example.id, "label": example.label, "text": dump(example.text, kind=Text)}
    return json.dumps(state, ensure_ascii=False) + "\n"


def as_line(example: Example) -> str:
    """A text on one line; the parts of a pair or a question follow each other."""
    return " ⏵ ".join(" ".join(string.split()) for string in strings(example.text))


def name_of_row(example: Example) -> str | None:
    """The id of a row; None for a row without one, which is called by a hash of its words."""
    return None if example.id.partition("#")[0] == content_key(example.text)[:16] else example.id


# ── what a rule would answer ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class AbstainedRow:
    """A row that the rule does not answer."""

    id: str
    predicted: str
    gold: str
    confidence: float
    out_of_scope: bool


@dataclass(frozen=True, eq=False)
class RuledSet:
    """Counts of answers and errors on one set under the rule."""

    name: str
    rows: int
    answered: int
    wrong: int
    """wrong answers"""
    wrong_without: int
    """wrong answers without the rule, with every row answered"""
    out_of_scope: int
    """rows that are not answered because they are out of scope"""
    abstained: tuple[AbstainedRow, ...]
    """the smallest margin first"""


@dataclass(frozen=True, eq=False)
class Abstention:
    """A contender's rule and its outcome."""

    contender: str
    rule: Rule
    scope: Scope | None
    """None where the rows are too few, or where the store does not have what the scope reads"""
    sets: tuple[RuledSet, ...]
    menu: Menu | None
    """the risks that the same rows can promise; None where they are too few"""


def abstain(
    evaluation: Evaluation, contender: str | None = None, *, target: float = TARGET_RISK, scope: Scope | None = None
) -> Abstention | None:
    """The rule for a target risk and its outcome on every set.

    None where the store has no calibration rows, and for a baseline calibrator: `uatlite calibrate` takes none of them.

    Without a name the contender is the one that the verdict recommends: the test rows chose it, so the calibration rows
    decide the promise alone. `scope` is that of a calibrated classifier; without it the calibration rows give one.
    """
    asked = evaluation.ruled(contender)
    stored = evaluation.calibration_rows(asked.method.name)
    if stored is None or asked.calibrator not in CALIBRATORS:
        return None
    stored, calibrator = evaluation.labelled(stored), evaluation.calibrator(asked.name)
    scope, inside = _scope(stored, scope)
    decision = decide(
        Labelled({RAW_SCORE: margin(stored.passes.mean_logits)}, outcome_of(stored, calibrator).rows.correct == 0),
        Wanted(kind="risk", target=target, score=RAW_SCORE),
        inside=inside,
        menu=True,
    )
    rule = decision.rule
    assert rule is not None
    sets = []
    for scores in evaluation.results.sets:
        rows = evaluation.labelled(evaluation.predictions(asked.method.name, scores.name))
        sets.append(_ruled(scores.name, rows, outcome_of(rows, calibrator).rows, rule, scope))
    return Abstention(asked.name, rule, scope, tuple(sets), decision.menu)


def _scope(stored: StoredPredictions, given: Scope | None) -> tuple[Scope | None, Marks | None]:
    """The scope by these calibration rows, or the given one; and which of the rows are inside, None for all."""
    passes = stored.passes
    if passes.representations is None or len(stored.ids) < CALIBRATION_ROWS:
        return None, None
    if given is not None:
        return given, in_scope(given.nonconformity(passes.representations, passes.mean_logits), given.false_alarm)
    scope = fit_scope(None, passes.representations, passes.mean_logits)
    return scope, scope.inside


def _ruled(name: str, stored: StoredPredictions, rows: Rows, rule: Rule, scope: Scope | None) -> RuledSet:
    """The outcome of a rule on the stored rows of a set."""
    passes, classes = stored.passes, stored.provenance.classes
    margins = margin(passes.mean_logits)
    outside = np.zeros(len(stored.ids), dtype=np.bool_)
    if scope is not None and passes.representations is not None:
        outside = scope.out_of_scope(scope.p_values(passes.representations, passes.mean_logits))
    answers, wrong = rule.reports(margins) & ~outside, rows.correct == 0
    abstained = tuple(
        AbstainedRow(
            id=stored.ids[i],
            predicted=classes[rows.predicted[i]],
            gold=classes[rows.labels[i]],
            confidence=float(rows.confidence[i]),
            out_of_scope=bool(outside[i]),
        )
        for i in np.argsort(margins, kind="stable")
        if not answers[i]
    )
    return RuledSet(
        name=name,
        rows=len(wrong),
        answered=int(answers.sum()),
        wrong=int((answers & wrong).sum()),
        wrong_without=int(wrong.sum()),
        out_of_scope=int(outside.sum()),
        abstained=abstained,
    )
