"""An evaluation read back from disk without a model: results, stored predictions, and the texts of a task.

    DIR/results.json          written by `uatlite evaluate … -o DIR`
        store/                the logits of every pass; of several answers a text instead
        answers.safetensors   of the first seed: the confidence of every answer, and whether it is right

        texts.jsonl           the texts of the first set

The store has no texts. Those of the first set lie beside it; without that file those of a task are loaded again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from uatlite.codec import dump
from uatlite.codec import load as load_value
from uatlite.errors import DataError, MissingDependency, StoreError
from uatlite.lab.evaluate.baseline_calibrators import EvaluatedCalibrator
from uatlite.lab.evaluate.outcomes import OUTCOMES, AnswerOutcome, AnswerScores, Outcome, outcome_of
from uatlite.lab.evaluate.plan import Contender, parse_contender
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.store import Provenance, Store, StoredPredictions, StoredRun
from uatlite.text.examples import content_key
from uatlite.text.schema import catalogue
from uatlite.text.tasks import load
from uatlite.text.write import atomic_file
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.values import Example, Text, strings

RESULTS, STORE, TEXTS, ANSWERS = "results.json", "store", "texts.jsonl", "answers.safetensors"
_BASE = "base"
"""The method that runs the plain pass."""
_ANSWER_FIELDS = ("confidence", "right", "text")
Outcomes = Mapping[str, Outcome | AnswerOutcome]
"""contender -> what it says about a set, beside the gold answers"""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results and the stored predictions behind them. Rows are those of the first seed."""

    results: Results
    runs: Mapping[str, StoredRun] = field(default_factory=dict)
    """key -> run; of one answer a text"""
    answers: Mapping[tuple[str, str], AnswerOutcome] = field(default_factory=dict)
    """(set, contender) -> its answers; of several answers a text"""
    texts: Path | None = None
    """the file with the texts of the first set; None where there is none"""
    _loaded: dict[str, StoredPredictions] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def contenders(self) -> tuple[Contender, ...]:
        several = has_several(self.results)
        return tuple(parse_contender(name, several) for name in self.results.contenders)

    @cached_property
    def calibrators(self) -> dict[str, LogitCalibrator | None]:
        """The fitted calibrator of each contender; None for a contender without one."""
        return {
            name: load_value(EvaluatedCalibrator, seeds[0], advice="evaluate again.") if seeds else None
            for name, seeds in self.results.calibrators.items()
        }

    def outcomes(self, set_name: str) -> Outcomes:
        """What every contender says about a scored set."""
        if has_several(self.results):
            return {name: self.answers[set_name, name] for name in self.results.contenders}
        return {
            contender.name: outcome_of(
                self.predictions(contender.method.name, set_name), self.calibrators[contender.name]
            )
            for contender in self.contenders
        }

    def predictions(self, method: str, set_name: str) -> StoredPredictions:
        """The stored predictions of a method on a scored set."""
        scores = next(scores for scores in self.results.sets if scores.name == set_name)
        return self._read(scores.runs[method][0])

    def calibration_rows(self, method: str) -> StoredPredictions | None:
        """The stored predictions of a method on the calibration rows; None where nothing was fitted."""
        keys = self.results.calibration_runs.get(method)
        return self._read(keys[0]) if keys else None

    def with_representations(self, rows: StoredPredictions) -> StoredPredictions:
        """The rows with what the head reads of them: by the method itself, or by the plain pass over the same rows.

        They have none where neither is stored.
        """
        recipe = rows.provenance.recipe
        for key, run in self.runs.items() if rows.passes.representations is None else ():
            plain = run.provenance.recipe
            if run.provenance.method == _BASE and (plain.model, plain.data) == (recipe.model, recipe.data):
                read = self._read(key).passes.representations
                return replace(rows, passes=replace(rows.passes, representations=read))
        return rows

    def examples(self, data_dir: str | Path | None = None) -> dict[str, Example]:
        """The examples of the first set by id, from the file beside the results or the task; empty without both."""
        if self.texts is not None:
            return read_texts(self.texts)
        first = self.results.sets[0]
        return examples_of(self.predictions(next(iter(first.runs)), first.name).provenance, data_dir)

    def _read(self, key: str) -> StoredPredictions:
        if key not in self.runs:
            raise StoreError(f"run {key} is in {RESULTS} but not in the store; run `uatlite evaluate` again.")
        if key not in self._loaded:
            self._loaded[key] = self.runs[key].read()
        return self._loaded[key]


def has_several(results: Results) -> bool:
    """Whether a text has several answers: entities, or labels."""
    return isinstance(OUTCOMES[results.kind], AnswerScores)


def home_of(path: str | Path) -> Path:
    """The directory with results and store: `path`, or its parent where `path` is the store."""
    path = Path(path)
    return path.parent if path.name == STORE and (path.parent / RESULTS).is_file() else path


def open_evaluation(path: str | Path) -> Evaluation:
    """The evaluation in a directory that `uatlite evaluate` wrote; the path of its store works too."""
    home = home_of(path)
    if not (home / RESULTS).is_file():
        raise StoreError(f"{path} holds no {RESULTS}; give the directory that `uatlite evaluate … -o DIR` wrote.")
    results, texts = read_results(home / RESULTS), home / TEXTS
    if has_several(results):
        return Evaluation(results, answers=read_answers(home / ANSWERS, results))
    complete = {run.provenance.recipe.key: run for run in Store(home / STORE).runs() if run.complete}
    return Evaluation(results, complete, texts=texts if texts.is_file() else None)


def read_results(path: str | Path) -> Results:
    """The results of a `results.json`."""
    path = Path(path)
    try:
        return Results.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); `uatlite evaluate … -o DIR` writes it.") from error
    except (StoreError, ValueError, AttributeError, TypeError) as error:
        raise StoreError(f"{path} is not a results file ({error!r}); run `uatlite evaluate` again.") from error


def text_line(example: Example) -> str:
    """A text as a line of the file of texts."""
    state = {"id": example.id, "label": example.label, "text": dump(example.text, kind=Text)}
    return json.dumps(state, ensure_ascii=False) + "\n"


def read_texts(path: Path) -> dict[str, Example]:
    """The texts of a file by id."""
    with path.open(encoding="utf-8") as file:
        states = list(map(json.loads, file))
    texts = [load_value(Text, state["text"], advice="evaluate again.") for state in states]
    return {state["id"]: Example(state["id"], text, state["label"]) for state, text in zip(states, texts, strict=True)}


def examples_of(provenance: Provenance, data_dir: str | Path | None = None) -> dict[str, Example]:
    """The examples of a stored run of a task by id; empty where the data are not found."""
    recipe = provenance.recipe
    if recipe.task not in catalogue() or recipe.perturbation is not None:
        return {}
    try:
        return {example.id: example for example in load(recipe.task, recipe.split, data_dir).examples}
    except (DataError, MissingDependency):
        return {}


def as_line(example: Example) -> str:
    """A text on one line; the parts of a pair or a question follow each other."""
    return " ⏵ ".join(" ".join(part.split()) for part in strings(example.text))


def name_of_row(example: Example) -> str | None:
    """The id of a row; None for a row without one, which is called by a hash of its words."""
    return None if example.id.partition("#")[0] == content_key(example.text)[:16] else example.id


def _array_name(*names: str) -> str:
    """What the array of a set, a contender and a field is called."""
    return " | ".join(names)


def write_answers(outcomes: Mapping[str, Mapping[str, AnswerOutcome]], directory: Path) -> Path:
    """Write the answers by set and contender."""
    arrays = {
        _array_name(set_name, contender, name): np.ascontiguousarray(getattr(outcome, name))
        for set_name, of_set in outcomes.items()
        for contender, outcome in of_set.items()
        for name in _ANSWER_FIELDS
    }
    with atomic_file(directory / ANSWERS) as file:
        file.write(save(arrays))
    return directory / ANSWERS


def read_answers(path: Path, results: Results) -> dict[tuple[str, str], AnswerOutcome]:
    """The answers that `write_answers` wrote beside results."""
    try:
        arrays = load_file(path)
        return {
            (scores.name, contender): AnswerOutcome(
                **{name: arrays[_array_name(scores.name, contender, name)] for name in _ANSWER_FIELDS},
                texts=scores.rows,
                pairs=results.kind == "labels",
            )
            for scores in results.sets
            for contender in results.contenders
        }
    except (OSError, KeyError, SafetensorError) as error:
        raise StoreError(f"{path} cannot be read ({error}); run `uatlite evaluate` again.") from error
