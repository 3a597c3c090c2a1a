"""An evaluation on the disk whose logits are drawn here, so that no model is needed and their faults are known.

`base` is twice as sure as it may be, the sampled methods are nearly calibrated, and under shift all are worse.
"""

import math
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedModel

from reference import compare, made_provenance, made_score
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.explanation import Explanation
from uatlite.codec import dump
from uatlite.lab.evaluate.baseline_calibrators import EvaluatedCalibrator
from uatlite.lab.evaluate.comparison import Score
from uatlite.lab.evaluate.outcomes import DIRECTIONS, Outcome, fit_calibrator, outcome_of
from uatlite.lab.evaluate.plan import Contender, parse_contenders
from uatlite.lab.evaluate.results import Results, SetScores
from uatlite.lab.evaluate.store import Piece, Provenance, Store
from uatlite.lab.evaluate.store import StoredPredictions as Predictions
from uatlite.lab.report import evaluation_page as build
from uatlite.lab.report.evaluation import Evaluation, open_evaluation
from uatlite.lab.report.evaluation_page import EXPLANATIONS as EXPLAINED_FILE
from uatlite.lab.report.evaluation_page import ExplainedText, write_explanations
from uatlite.lab.report.results import write_results
from uatlite.methods.registry import method_to_dict
from uatlite.metrics.intervals import Interval, Resampling, metric_estimates, shift_estimates
from uatlite.predictive import PassLogits
from uatlite.trust.distribution import MarginBand
from uatlite.values import Example, Word, WordAttribution

CONTENDERS = parse_contenders("base,ts,mc,uat,uat+ts")
METRICS = ("accuracy", "ece", "nll", "brier", "aurc", "coverage@0.9")
SETS = (("toy", "test", 300), ("toy-shifted", "test", 200))
LABELS = ("negative", "positive")
HOW = Resampling(resamples=50)


def write_run(store: Store, contender: Contender, task: str, split: str, rows: int) -> Predictions:
    """A finished run: margins of a model that is right about four times in five."""
    method = contender.method
    generator = np.random.default_rng([rows, len(split), ord(method.name[0])])
    shifted = 0.45 if "shifted" in task else 1.0
    labels = generator.integers(2, size=rows)
    signal = (2 * labels - 1) * shifted * 1.1 + generator.normal(size=rows) * 1.2
    sure = 4.0 if method.name == "base" else 2.2
    passes = generator.normal(sure * signal, 0.4 if method.stochastic else 0.0, size=(method.passes, rows))
    logits = np.stack([-passes / 2, passes / 2], axis=2).astype(np.float32)
    read = None
    if method.name == "base":  # four units; every fiftieth row is far from the others
        far = np.where(np.arange(rows) % 50 == 7, 9.0, 0.0)[:, None]
        read = (generator.normal(size=(rows, 4)) + signal[:, None] + far).astype(np.float32)
    run = store.begin(provenance(contender, task, split, rows))
    for number, places in enumerate(run.plan(range(rows))):
        ids = tuple(f"{task}-{split}-{place}" for place in places)
        own = None if read is None else read[places]
        run.write(number, Piece(places, ids, labels[places], PassLogits(logits[:, places], None, own), 0.1))
    run.finish()
    return run.read()


def provenance(contender: Contender, task: str, split: str, rows: int) -> Provenance:
    method = contender.method
    recipe = {"model": "0" * 64, "data": f"{task}/{split}", "task": task, "split": split}
    recipe |= {"method": method_to_dict(method), "seed": 0 if method.stochastic else None}
    return made_provenance(rows, LABELS, recipe=recipe, method=method.name, passes=method.passes)


def write_evaluation(directory: Path) -> Path:
    """results.json, store and explanations.json, as `uatlite evaluate` and the demo write them."""
    store, calibrators, calibration_runs = Store(directory / "store"), {}, {}
    for contender in CONTENDERS:
        rows = write_run(store, contender, "toy", "calibration", 400)
        calibration_runs[contender.method.name] = (rows.provenance.recipe.key,)
        calibrators[contender.name] = fit_calibrator(contender.calibrator, rows) if contender.calibrated else None
    sets: list[SetScores] = []
    first: dict[str, Outcome] = {}
    for task, split, count in SETS:
        runs = {c.method.name: write_run(store, c, task, split, count) for c in CONTENDERS}
        said = {c.name: outcome_of(runs[c.method.name], calibrators[c.name]) for c in CONTENDERS}
        first = first or said
        metrics = {name: [metric_estimates(outcome.rows, METRICS)] for name, outcome in said.items()}
        shifts = {name: [shift_estimates(first[name].rows, outcome.rows)] for name, outcome in said.items()}
        about = runs["base"].provenance
        sets.append(
            SetScores(
                about.set_name, about.source, about.alignment, count, 0, about.truncated_texts, about.truncated_tokens,
                scores=compare(metrics, DIRECTIONS, (count,), HOW),
                shift=compare(shifts, DIRECTIONS, (SETS[0][2], count), HOW) if sets else {},
                runs={name: (run.provenance.recipe.key,) for name, run in runs.items()},
            )
        )  # fmt: skip
    results = Results(
        model="a/model", model_hash="0" * 64, contenders=tuple(calibrators), metrics=METRICS, resampling=HOW,
        methods={
            c.name: {"method": method_to_dict(c.method), "calibrator": c.calibrator, "cost": c.method.cost, "seeds": 1,
                     "seconds_per_text": 0.01}
            for c in CONTENDERS
        },
        sets=tuple(sets), versions=about.versions, calibration_runs=calibration_runs,
        calibrators={
            name: () if fitted is None else (dump(fitted, kind=EvaluatedCalibrator),)
            for name, fitted in calibrators.items()
        },
    )  # fmt: skip
    write_results(results, directory)
    write_explanations(EXPLANATIONS, directory / EXPLAINED_FILE)
    return directory


EXPLANATIONS = (
    ExplainedText(
        "toy-test-1", "positive", "negative", 0.61,
        (WordAttribution(Word("not", (1,), False), 0.08, 0.1, 0.2, 0.21),
         WordAttribution(Word("<b>bad</b>", (2, 3), False), 0.15, 0.25, 0.5, 0.71),
         WordAttribution(Word("&", (4,), False), 0.05, 0.05, 0.1, None)),
        MarginBand(0.45, 0.3, (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975), (0.46, 0.51, 0.56, 0.61, 0.66, 0.7, 0.74)),
    ),
)  # fmt: skip


@pytest.fixture(scope="session")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the evaluation; no test may change it."""
    return write_evaluation(tmp_path_factory.mktemp("evaluation"))


@pytest.fixture(scope="session")
def opened(evaluation: Path) -> Evaluation:
    """The evaluation, read back."""
    return open_evaluation(evaluation)


@pytest.fixture(scope="session")
def page(evaluation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of it, with a text for every second row; drawing takes seconds, so it is drawn once."""
    known = {
        f"toy-test-{place}": Example(f"toy-test-{place}", ("a <premise>", "so"), None) for place in range(0, 300, 2)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluation, "examples", lambda evaluation, data_dir: known)
        return build.build_report(evaluation, tmp_path_factory.mktemp("report"), title="A & B <report>")


@pytest.fixture(scope="session")
def rows_of() -> Callable[[Path, str], list[list[str]]]:
    """`rows_of(page, caption)`: the text of every cell of the table whose caption begins so, without its headings."""

    def read(page: Path, caption: str) -> list[list[str]]:
        table = page.read_text(encoding="utf-8").split(f"<caption>{caption}")[1].split("</table>")[0]
        rows = table.split("<tbody>")[1].split("<tr>")[1:]
        cells = [re.findall("<t[hd].*?</t[hd]>", row, re.DOTALL) for row in rows]
        return [[" ".join(unescape(re.sub("<[^>]*>", " ", cell)).split()) for cell in row] for row in cells]

    return read


NARROW = ("accuracy", "ece", "nll", "brier", "aurc")
UAT = "uat:gate=k+ts"


def make_score(
    value: float, *, seeds: int = 1, best: bool = False, differences: dict[str, Interval] | None = None
) -> Score:
    """A score with the mean `value`."""
    values = tuple(value + 0.01 * (seed - (seeds - 1) / 2) for seed in range(seeds))
    return made_score(values, value - 0.05, value + 0.05, differences or {}, best)


@pytest.fixture
def results() -> Results:
    """Two contenders on two sets; the second beats the first on both."""
    metrics = (*NARROW, "coverage@0.9", "accuracy@0.9")
    above, below = {UAT: Interval(0.25, 0.2, 0.3)}, {"base": Interval(-0.25, -0.3, -0.2)}
    base = {name: make_score(0.5, differences=above) for name in metrics} | {
        "accuracy@0.9": made_score((math.nan,), math.nan, math.nan)
    }
    uat = {name: make_score(0.25, seeds=3, best=name == "nll", differences=below) for name in metrics}
    shift = {name: {"delta_ece": make_score(0.02), "robustness_score": make_score(0.3)} for name in ("base", UAT)}
    both = {"base": base, UAT: uat}
    sets = (
        SetScores("sst2/test", "dev.jsonl", "labels in the model's order", 436, 0, 0, 0, both),
        SetScores("imdb/test", "test.jsonl", "columns reordered", 1_000, 3, 12, 3_400, both, shift),
    )
    return Results(
        model="my-model", model_hash="abc", contenders=("base", UAT), metrics=metrics, resampling=Resampling(),
        methods={"base": {"cost": 1.0, "seeds": 1}, UAT: {"cost": 10.0, "seeds": 3}}, sets=sets,
        calibrators={"base": (), UAT: ({"is": "Temperature"},) * 3}, versions={"uatlite": "0.1.0"},
    )  # fmt: skip


HOSTILE = "<script>alert(1)</script>"
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*MARKS, *"<>/()1", "script", "alert", *"&$", "film", "so", "long", "un", "##bear", "##able"]
TEXT = ("so $ long $ film & unbearable", HOSTILE)


@pytest.fixture(scope="session")
def explainer(tiny: Callable[..., PreTrainedModel]) -> Callable[..., UncertaintyClassifier]:
    """`explainer(method="analytic")`: a tiny classifier with hostile class names and words of its own."""
    tokenizer = BertTokenizer(vocab={word: place for place, word in enumerate(WORDS)})
    names = {0: "<b>bad</b>", 1: "<b>fair</b>", 2: "<b>good</b> & $x$"}

    def make(method: str = "analytic") -> UncertaintyClassifier:
        return UncertaintyClassifier(tiny("bert", id2label=names, rate=0.1), tokenizer, method)

    return make


@pytest.fixture(scope="session")
def explanation(explainer: Callable[..., UncertaintyClassifier]) -> Explanation:
    """A pair, with attention."""
    return explainer().explain(TEXT)
