"""An evaluation on the disk whose logits are drawn here, so that no model is needed and their faults are known.

`base` is twice as sure as it may be, the sampled methods are nearly calibrated, and under shift all are worse.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedModel

from reference import compare, made_score
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.explanation import Explanation
from uatlite.codec import dump
from uatlite.lab.evaluate.baseline_calibrators import EvaluatedCalibrator
from uatlite.lab.evaluate.comparison import Score
from uatlite.lab.evaluate.outcomes import DIRECTIONS, Outcome, fit_calibrator, outcome_of
from uatlite.lab.evaluate.plan import Contender, parse_contenders
from uatlite.lab.evaluate.results import Results, SetScores
from uatlite.lab.evaluate.store import Piece, Provenance, RunRecipe, Store
from uatlite.lab.evaluate.store import StoredPredictions as Predictions
from uatlite.lab.report import evaluation_page as build
from uatlite.lab.report.evaluation import Evaluation, open_evaluation
from uatlite.lab.report.evaluation_page import EXPLANATIONS as EXPLAINED_FILE
from uatlite.lab.report.evaluation_page import ExplainedText, write_explanations
from uatlite.lab.report.results import write_results
from uatlite.methods.registry import method_to_dict
from uatlite.metrics.intervals import Interval, Resampling, metric_estimates, shift_estimates
from uatlite.predictive import PassLogits
from uatlite.trust.calibrators import LogitCalibrator
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
    recipe = RunRecipe(
        model="0" * 64, data=f"{task}/{split}", tokens="t", task=task, split=split, perturbation=None,
        method=method_to_dict(method), seed=0 if method.stochastic else None, columns=((0,), (1,)), uatlite="0.1.0",
    )  # fmt: skip
    return Provenance(
        recipe=recipe, method=method.name, passes=method.passes, model="a/model", source=f"{rows} drawn rows",
        rows=rows, labels=LABELS, model_labels=LABELS, classes=LABELS, alignment="labels in the model's order",
        out_of_scope=None, truncated_texts=3, truncated_tokens=40, versions={"uatlite": "0.1.0", "numpy": "2"},
    )  # fmt: skip


Outcomes = dict[str, Outcome]


def score_set(outcomes: Outcomes) -> dict[str, dict[str, Score]]:
    estimates = {name: [metric_estimates(one.rows, METRICS)] for name, one in outcomes.items()}
    return compare(estimates, DIRECTIONS, (len(outcomes["base"].labels),), HOW)


def score_shift(first: Outcomes, second: Outcomes) -> dict[str, dict[str, Score]]:
    estimates = {name: [shift_estimates(first[name].rows, one.rows)] for name, one in second.items()}
    return compare(estimates, DIRECTIONS, (len(first["base"].labels), len(second["base"].labels)), HOW)


def write_evaluation(directory: Path) -> Path:
    """results.json, store and explanations.json, as `uatlite evaluate` and the demo write them."""
    store = Store(directory / "store")
    fitted: dict[str, list[LogitCalibrator | None]] = {}
    calibration_runs: dict[str, tuple[str, ...]] = {}
    for contender in CONTENDERS:
        rows = write_run(store, contender, "toy", "calibration", 400)
        calibration_runs[contender.method.name] = (rows.provenance.recipe.key,)
        fitted[contender.name] = [fit_calibrator(contender.calibrator, rows) if contender.calibrated else None]
    scored: list[SetScores] = []
    first = None
    for task, split, count in SETS:
        runs = {c.method.name: write_run(store, c, task, split, count) for c in CONTENDERS}
        outcomes = {c.name: outcome_of(runs[c.method.name], fitted[c.name][0]) for c in CONTENDERS}
        first = first or outcomes
        about = runs["base"].provenance
        scored.append(
            SetScores(
                name=about.set_name,
                source=about.source,
                alignment=about.alignment,
                rows=count,
                left_out=0,
                truncated_texts=3,
                truncated_tokens=40,
                scores=score_set(outcomes),
                shift=score_shift(first, outcomes) if scored else {},
                runs={name: (run.provenance.recipe.key,) for name, run in runs.items()},
            )
        )
    results = Results(
        model="a/model", model_hash="0" * 64, contenders=tuple(c.name for c in CONTENDERS),
        methods={
            c.name: {"method": method_to_dict(c.method), "calibrator": c.calibrator, "cost": c.method.cost, "seeds": 1,
                     "seconds_per_text": 0.01}
            for c in CONTENDERS
        },
        metrics=METRICS, resampling=HOW, sets=tuple(scored),
        calibrators={
            name: tuple(dump(one, kind=EvaluatedCalibrator) for one in seeds if one) for name, seeds in fitted.items()
        },
        versions=about.versions, calibration_runs=calibration_runs,
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
    """`rows_of(page, caption)`: the text of every cell below the headings of a table."""

    def read(page: Path, caption: str) -> list[list[str]]:
        table = page.read_text(encoding="utf-8").split(f"<caption>{caption}</caption>")[1].split("</table>")[0]
        rows = table.split("<tbody>")[1].split("<tr>")[1:]
        return [
            [" ".join(re.sub("<[^>]*>", " ", cell).split()) for cell in re.findall("<t[hd].*?</t[hd]>", row, re.S)]
            for row in rows
        ]

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
    sets = (
        SetScores("sst2/test", "dev.jsonl", "labels in the model's order", 436, 0, 0, 0, {"base": base, UAT: uat}),
        SetScores(
            "imdb/test",
            "test.jsonl",
            "columns reordered",
            1_000,
            3,
            12,
            3_400,
            {"base": base, UAT: uat},
            shift,
        ),
    )
    about = {"base": {"cost": 1.0, "seeds": 1}, UAT: {"cost": 10.0, "seeds": 3}}
    return Results(
        model="my-model",
        model_hash="abc",
        contenders=("base", UAT),
        methods=about,
        metrics=metrics,
        resampling=Resampling(),
        sets=sets,
        calibrators={"base": (), UAT: ({"is": "Temperature"},) * 3},
        versions={"uatlite": "0.1.0"},
    )


HOSTILE = "<script>alert(1)</script>"
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    *MARKS,
    *["<", ">", "/", "(", ")", "1", "script", "alert", "&", "$", "film", "so", "long", "un", "##bear", "##able"],
]
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
