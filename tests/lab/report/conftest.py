"""An evaluation on the disk whose logits are drawn here, so that no model is needed and their faults are known.

`base` is twice as sure as it may be, the sampled methods are nearly calibrated, and under shift all are worse.
"""

import json
import math
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from transformers import BertTokenizer

from reference import made_score
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.codec import dump
from uatlite.lab.evaluate.evaluate import evaluate
from uatlite.lab.evaluate.plan import Plan, SetChoice, parse_contenders
from uatlite.lab.evaluate.results import Results, SetScores
from uatlite.lab.evaluate.runs import StoreJob
from uatlite.lab.evaluate.store import Piece, Store
from uatlite.lab.report import evaluation_page as build
from uatlite.lab.report.evaluation import Evaluation, open_evaluation
from uatlite.lab.report.evaluation_page import EXPLANATIONS as EXPLAINED_FILE
from uatlite.lab.report.evaluation_page import ExplainedText
from uatlite.lab.report.results import write_results
from uatlite.metrics.intervals import Interval, Resampling
from uatlite.model.load import Checkpoint
from uatlite.predictive import PassLogits
from uatlite.text.schema import Layout, Split, Task
from uatlite.trust.calibrators import Temperature
from uatlite.trust.distribution import Band
from uatlite.values import Example, Word, WordAttribution

LABELS = ("negative", "positive")
FILES = {"calibration": 400, "test": 300, "shifted": 200}
METRICS = ("accuracy", "ece", "nll", "brier", "aurc", "coverage@0.9")


def drawn(job, rows):
    """What a job says of some rows: margins of a model that is right about four times in five."""
    dataset, method = job.prepared.dataset, job.method
    count, labels = len(dataset), np.array(dataset.gold)
    generator = np.random.default_rng([count, ord(method.name[0])])
    shifted = 0.45 if "shifted" in dataset.name else 1.0
    signal = (2 * labels - 1) * shifted * 1.1 + np.random.default_rng([count, 1]).normal(size=count) * 1.2
    sure = 4.0 if method.name == "base" else 2.2
    passes = generator.normal(sure * signal, 0.4 if method.stochastic else 0.0, size=(method.passes, count))
    read = None
    if method.name == "base":  # four units; every fiftieth row is far from the others, and farther in smaller sets
        far = np.where(np.arange(count) % 50 == 7, 3600 / count, 0.0)[:, None]
        read = (generator.normal(size=(count, 4)) + signal[:, None] + far).astype(np.float32)
    said = PassLogits(np.stack([-passes / 2, passes / 2], axis=2).astype(np.float32), None, read).take(np.array(rows))
    return Piece(np.array(rows), tuple(dataset.ids[row] for row in rows), labels[list(rows)], said, 0.1)


EXPLANATIONS = (
    ExplainedText(
        "toy-test-1", "positive", "negative", 0.61,
        (WordAttribution(Word("not", (1,), False), 0.08, 0.1, 0.2, 0.21),
         WordAttribution(Word("<b>bad</b>", (2, 3), False), 0.15, 0.25, 0.5, 0.71),
         WordAttribution(Word("&", (4,), False), 0.05, 0.05, 0.1, None)),
        Band(0.45, 0.3, (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975), (0.46, 0.51, 0.56, 0.61, 0.66, 0.7, 0.74)),
    ),
)  # fmt: skip


@pytest.fixture(scope="session")
def evaluation(tiny, tokenizer, tmp_path_factory):
    """A directory as `uatlite evaluate` and the demo write it, without the texts; no test may change it."""
    directory = tmp_path_factory.mktemp("evaluation")
    model = tiny("bert", id2label=dict(enumerate(LABELS)), num_labels=2)
    for name, count in FILES.items():
        labels = np.random.default_rng(count).integers(2, size=count)
        lines = [{"id": f"toy-{name}-{i}", "text": f"a{i % 50}", "label": LABELS[k]} for i, k in enumerate(labels)]
        (directory / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    splits = {name: Split((name,)) for name in ("calibration", "test")}
    toy, shifted = (
        SetChoice(Task(name, name, LABELS, of, Layout()))
        for name, of in (("toy", splits), ("toy-shifted", {"test": Split(("shifted",))}))
    )
    contenders, how = parse_contenders("base,ts,mc,uat,uat+ts"), Resampling(resamples=50)
    plan = Plan(contenders, toy, (shifted,), data_dir=directory, metrics=METRICS, resampling=how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreJob, "compute", drawn)
        results = evaluate(Checkpoint("a/model", model, tokenizer), plan, Store(directory / "store"))
    write_results(replace(results, texts=()), directory)
    (directory / EXPLAINED_FILE).write_text(json.dumps(dump(EXPLANATIONS)))
    return directory


@pytest.fixture(scope="session")
def opened(evaluation):
    """The evaluation, read back."""
    return open_evaluation(evaluation)


@pytest.fixture(scope="session")
def page(evaluation, tmp_path_factory):
    """The report of it, with a text for every second row; drawing takes seconds, so it is drawn once."""
    known = {
        f"toy-test-{place}": Example(f"toy-test-{place}", ("a <premise>", "so"), None) for place in range(0, 300, 2)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluation, "examples", lambda evaluation, data_dir: known)
        return build.report(evaluation, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def rows_of():
    """`rows_of(page, caption)`: the text of every cell of the table whose caption begins so, without its headings."""

    def read(page, caption):
        table = page.read_text(encoding="utf-8").split(f"<caption>{caption}")[1].split("</table>")[0]
        rows = table.split("<tbody>")[1].split("<tr>")[1:]
        cells = [re.findall("<t[hd].*?</t[hd]>", row, re.DOTALL) for row in rows]
        return [[" ".join(unescape(re.sub("<[^>]*>", " ", cell)).split()) for cell in row] for row in cells]

    return read


NARROW = ("accuracy", "ece", "nll", "brier", "aurc")
UAT = "uat:gate=k+ts"


def make_score(value, *, seeds=1, best=False, differences=None):
    """A score with the mean `value`."""
    values = tuple(value + 0.01 * (seed - (seeds - 1) / 2) for seed in range(seeds))
    return made_score(values, value - 0.05, value + 0.05, differences or {}, best)


@pytest.fixture
def results():
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
        calibrators={"base": (), UAT: (Temperature(2, 1.5),) * 3}, versions={"uatlite": "0.1.0"},
    )  # fmt: skip


HOSTILE = "<script>alert(1)</script>"
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*MARKS, *"<>/()1", "script", "alert", *"&$", "film", "so", "long", "un", "##bear", "##able"]
TEXT = ("so $ long $ film & unbearable", HOSTILE)


@pytest.fixture(scope="session")
def explainer(tiny):
    """`explainer(method="analytic")`: a tiny classifier with hostile class names and words of its own."""
    tokenizer = BertTokenizer(vocab={word: place for place, word in enumerate(WORDS)})
    names = {0: "<b>bad</b>", 1: "<b>fair</b>", 2: "<b>good</b> & $x$"}

    def make(method="analytic"):
        return UncertaintyClassifier(tiny("bert", id2label=names, rate=0.1), tokenizer, method)

    return make


@pytest.fixture(scope="session")
def explanation(explainer):
    """A pair, with attention."""
    return explainer().explain(TEXT)
