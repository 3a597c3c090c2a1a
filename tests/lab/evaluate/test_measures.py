"""Measures of an evaluation: texts out of scope against a direct computation, the others against the bootstrap."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from uatlite.errors import ConfigurationError, DataError
from uatlite.lab.evaluate import predict
from uatlite.lab.evaluate.evaluate import evaluate
from uatlite.lab.evaluate.models import GivenModels, outside_texts
from uatlite.lab.evaluate.outcomes import outcome_of
from uatlite.lab.evaluate.plan import Plan, SetChoice, choose_out_of_scope, parse_contenders
from uatlite.lab.evaluate.results import OutOfScope, Results
from uatlite.lab.evaluate.runs import Model
from uatlite.lab.evaluate.scope import Mixture
from uatlite.lab.evaluate.store import Store
from uatlite.lab.report.results import markdown, records, tables_of
from uatlite.metrics.intervals import Resampling, detection_estimates, intervals, metric_estimates, shift_estimates
from uatlite.model.load import Checkpoint
from uatlite.text.schema import Layout, Split, Task
from uatlite.text.tasks import load, task_from_file
from uatlite.trust.scope import ScopeFit, chance_in_scope, fit_scope
from uatlite.values import Dataset

LABELS = ("negative", "neutral", "positive")
TASK = Task(
    name="made",
    title="made",
    labels=(*LABELS, "oos"),
    layout=Layout(),
    splits={split: Split((split,)) for split in ("train", "calibration", "test")},
    out_of_scope="oos",
)
FEW = Resampling(resamples=50)


def write(path: Path, data: Dataset, outside: int = 0) -> Path:
    """The rows as a JSONL file; the last `outside` ones, of few words, are labelled oos."""
    lines = [{"text": example.text, "label": LABELS[example.label or 0]} for example in data.examples]
    rng = random.Random(9)
    lines += [
        {"text": " ".join(rng.choices(["w0", "w1"], k=rng.randint(5, 15))), "label": "oos"} for _ in range(outside)
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


@pytest.fixture(scope="module")
def data_dir(dataset: Callable[..., Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    write(directory / "train.jsonl", dataset(90, seed=1), outside=5)
    write(directory / "calibration.jsonl", dataset(70, seed=2), outside=4)
    write(directory / "test.jsonl", dataset(60, seed=3), outside=25)
    return directory


@pytest.fixture
def plan(data_dir: Path) -> Plan:
    test = SetChoice(TASK)
    methods = parse_contenders("base,ts,uat:samples=2")
    return Plan(methods, test, out_of_scope=test, seeds=2, data_dir=data_dir, metrics=("nll", "aurc"), resampling=FEW)


@pytest.fixture(scope="module")
def strange_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty texts in the column `question`, and nothing else."""
    rng = random.Random(4)
    rows = [{"question": " ".join(rng.choices(["w2", "w3"], k=rng.randint(5, 15)))} for _ in range(30)]
    path = tmp_path_factory.mktemp("strange") / "questions.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def found(results: Results) -> OutOfScope:
    assert results.out_of_scope is not None
    return results.out_of_scope


def read(checkpoint: Checkpoint, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and representations, text by text: the first token after the last layer, and the mean that it reads."""
    logits, representations = [], []
    for text in texts:
        with torch.no_grad():
            output = checkpoint.model(**checkpoint.tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        before, after = output.hidden_states[-2:]
        logits.append(output.logits[0].numpy())
        representations.append(torch.cat([after[0, 0], before[0].mean(dim=0)]).numpy())
    return np.array(logits, dtype=float), np.array(representations, dtype=float)


def slow_aurc(trust: np.ndarray, wrong: np.ndarray) -> float:
    """The mean over k of the error rate among the k most trusted rows; no two are trusted alike."""
    ranked = wrong[np.argsort(-trust)]
    return float(np.mean([ranked[: k + 1].mean() for k in range(len(ranked))]))


def texts_of(data: Dataset, *, outside: bool) -> list[str]:
    return [str(example.text) for example in data.examples if (example.label == data.out_of_scope) == outside]


def test_every_number_is_that_of_a_direct_computation(plan: Plan, checkpoint: Checkpoint, tmp_path: Path) -> None:
    one = found(evaluate(checkpoint, plan, Store(tmp_path)))
    sets = {split: load(TASK, split, plan.data_dir) for split in TASK.splits}
    test = sets["test"]
    inside, outside = texts_of(test, outside=False), texts_of(test, outside=True)
    assert (one.in_scope_rows, one.rows) == (len(inside), len(outside)) == (60, 25)

    reference, calibration = (
        read(checkpoint, texts_of(sets[name], outside=False)) for name in ("train", "calibration")
    )
    fit = ScopeFit(reference[1].shape[1], 3)
    fit.add(reference[1], reference[0].argmax(axis=1))
    scope = fit_scope(fit, calibration[1], calibration[0])
    assert scope.reference_rows == 90
    assert one.note == "scope: by 90 training texts, without their labels, and 70 calibration rows"

    logits, x = read(checkpoint, inside + outside)
    flags = np.repeat([0, 1], [60, 25])
    strange = scope.nonconformity(x, logits)
    assert one.detection["scope"]["auroc"].mean == pytest.approx(roc_auc_score(flags, strange), abs=1e-3)
    assert one.detection["scope"]["aupr"].mean == pytest.approx(average_precision_score(flags, strange), abs=1e-3)

    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    confidence = probabilities.max(axis=1)
    assert one.detection["base"]["auroc"].mean == pytest.approx(roc_auc_score(flags, -confidence), abs=1e-3)
    cut = np.sort(confidence[60:])[-2]  # 24 of the 25 have this confidence or less: at least 95 %
    assert one.detection["base"]["fpr95"].mean == pytest.approx((confidence[:60] <= cut).mean(), abs=0.02)

    labels = [example.label for example in test.examples if example.label != test.out_of_scope]
    wrong = np.append(probabilities[:60].argmax(axis=1) != labels, np.ones(25)).astype(float)
    both = confidence * chance_in_scope(scope.p_values(x, logits))
    for scores, rows in ((one.in_scope["base"], 60), (one.mixture["base"], 85)):
        by_confidence, by_both = slow_aurc(confidence[:rows], wrong[:rows]), slow_aurc(both[:rows], wrong[:rows])
        assert scores["confidence_aurc"].mean == pytest.approx(by_confidence, abs=1e-3)
        assert scores["scope_aurc"].mean == pytest.approx(by_both, abs=1e-3)
        assert abs(by_both - by_confidence) > 0.004
        assert scores["scope_change"].mean == pytest.approx(by_both - by_confidence, abs=2e-3)


def test_each_contender_has_its_seeds_intervals_and_paired_differences(
    plan: Plan, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    results = evaluate(checkpoint, plan, Store(tmp_path))
    one = found(results)
    assert list(one.detection) == ["base", "base+ts", "uat:samples=2", "scope"]
    assert list(one.mixture) == list(one.in_scope) == ["base", "base+ts", "uat:samples=2"]
    assert len(one.mixture["uat:samples=2"]["scope_aurc"].values) == 2
    for table in (one.detection, one.in_scope, one.mixture):
        for scores in table.values():
            assert all(score.low <= score.high for score in scores.values())
    apart = one.detection["scope"]["auroc"].differences["base"]
    assert apart.point == pytest.approx(one.detection["scope"]["auroc"].mean - one.detection["base"]["auroc"].mean)
    # rows out of scope are no part of the other scores, so these agree
    assert one.in_scope["base"]["confidence_aurc"].mean == results.sets[0].scores["base"]["aurc"].mean
    assert [one.name for one in results.sets] == ["made/test"]
    assert one.name == "made/out-of-scope"
    assert results.sets[0].detection == {}  # the same rows are not shown twice


def test_results_go_to_json_and_back_and_into_every_table(plan: Plan, checkpoint: Checkpoint, tmp_path: Path) -> None:
    results = evaluate(checkpoint, plan, Store(tmp_path))
    values = json.loads(json.dumps(results.to_dict()))
    assert Results.from_dict(values).to_dict() == values
    assert [tuple(column.heading for column in table.columns) for table in tables_of(results)[-3:]] == [
        ("AUROC ↑", "AUPR ↑", "FPR95 ↓"),
        ("By confidence ↓", "× in scope ↓", "Change"),
        ("By confidence ↓", "× in scope ↓", "Change"),
    ]
    page = markdown(results)
    assert "made/test: finding 25 texts out of scope" in page
    assert "made/test: AURC of the 60 rows in scope" in page
    last = [record for record in records(results) if record["set"] == "made/test + made/out-of-scope"]
    assert {(record["method"], record["metric"]) for record in last} >= {("scope", "auroc"), ("base", "scope_change")}
    assert all(record["rows"] == 85 for record in last)


def test_results_without_such_texts_are_as_before(plan: Plan, checkpoint: Checkpoint, tmp_path: Path) -> None:
    results = evaluate(checkpoint, replace(plan, out_of_scope=None), Store(tmp_path))
    values = results.to_dict()
    assert "out_of_scope" not in values
    assert Results.from_dict(values).out_of_scope is None


def test_nothing_is_predicted_twice(
    plan: Plan, checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the teacher, the plain pass that a read-out reads, and that of the scope; also in another process."""
    plan = replace(plan, contenders=(*plan.contenders, *parse_contenders("distilled:of=uat,samples=2+its")))
    first = evaluate(checkpoint, plan, Store(tmp_path))
    monkeypatch.setattr(predict, "run_tokens", lambda *_: pytest.fail("a model ran again"))
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert set(found(first).runs["base"]) < {run.provenance.recipe.key for run in Store(tmp_path).runs()}
    again = evaluate(checkpoint, plan, Store(tmp_path))
    assert json.dumps(again.to_dict()) == json.dumps(first.to_dict())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == stamps
    assert found(again) == found(first)


def test_a_file_needs_no_label(plan: Plan, checkpoint: Checkpoint, strange_file: Path, tmp_path: Path) -> None:
    chosen = choose_out_of_scope(str(strange_file), text="question", text_pair=None)
    results = evaluate(checkpoint, replace(plan, out_of_scope=chosen), Store(tmp_path))
    one = found(results)
    assert (one.name, one.rows, one.in_scope_rows) == ("questions/out-of-scope", 30, 60)
    assert one.source == str(strange_file)


def test_only_rows_labelled_out_of_scope_and_at_most_the_limit_are_taken(plan: Plan, strange_file: Path) -> None:
    assert len(outside_texts(plan)) == 25
    assert len(outside_texts(replace(plan, limit=10))) == 10
    assert {example.label for example in outside_texts(plan).examples} == {None}
    plain = replace(TASK, name="other", out_of_scope=None)
    assert len(outside_texts(replace(plan, out_of_scope=SetChoice(plain)))) == 85


def test_without_training_texts_the_calibration_rows_serve_and_it_is_said(
    plan: Plan, checkpoint: Checkpoint, data_dir: Path, tmp_path: Path
) -> None:
    without = replace(TASK, splits={name: split for name, split in TASK.splits.items() if name != "train"})
    source = GivenModels([checkpoint], replace(plan, test=SetChoice(without)))
    assert source.reference(Model("made", "made")) is None
    absent = replace(TASK, splits={**TASK.splits, "train": Split(("absent",))})
    one = found(evaluate(checkpoint, replace(plan, test=SetChoice(absent)), Store(tmp_path)))
    assert one.note == "scope: by 70 calibration rows alone, as no training texts of the task were found"
    assert "scope" in one.detection


@pytest.mark.parametrize(
    ("splits", "limit", "note"),
    [
        (("test",), None, "no scope: made has no calibration split"),
        (("calibration", "test"), 20, "no scope: 20 rows are too few to know what is in scope"),
    ],
)
def test_without_calibration_rows_there_is_no_scope_and_it_is_said(
    plan: Plan, checkpoint: Checkpoint, tmp_path: Path, splits: tuple[str, ...], limit: int | None, note: str
) -> None:
    task = replace(TASK, splits={name: TASK.splits[name] for name in splits})
    chosen = replace(
        plan, contenders=parse_contenders("base"), test=SetChoice(task), out_of_scope=SetChoice(task), limit=limit
    )
    one = found(evaluate(checkpoint, chosen, Store(tmp_path)))
    assert one.note.startswith(note)
    assert list(one.detection) == ["base"]
    assert list(one.mixture["base"]) == ["confidence_aurc"]


def test_a_text_answered_by_out_of_scope_is_no_error(plan: Plan, checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A model with such a class: its answer is right, and the doubt is the probability of the class."""
    results = evaluate(checkpoint, plan, Store(tmp_path))
    keys = (results.sets[0].runs["base"][0], found(results).runs["base"][0])
    runs = {run.provenance.recipe.key: run.read() for run in Store(tmp_path).runs()}
    # the same columns, the second of which is now the out-of-scope class
    test, outside = (
        replace(run, provenance=replace(run.provenance, classes=("negative", "oos", "positive")))
        for run in (runs[key] for key in keys)
    )
    mixed = Mixture.of(test, outside, None)
    logits = outside.logits[0].astype(float)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(mixed.doubt[-25:], probabilities[:, 1], rtol=1e-6)
    np.testing.assert_array_equal(mixed.wrong[-25:], logits.argmax(axis=1) != 1)


def test_a_file_without_the_column_or_without_texts_is_an_error(plan: Plan, strange_file: Path, tmp_path: Path) -> None:
    chosen = choose_out_of_scope(str(strange_file), text="text", text_pair=None)
    with pytest.raises(DataError, match="There is no column 'text'; the columns are: question"):
        outside_texts(replace(plan, out_of_scope=chosen))
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    chosen = choose_out_of_scope(str(empty), text="text", text_pair=None)
    with pytest.raises(DataError, match=r"empty.jsonl holds no text"):
        outside_texts(replace(plan, out_of_scope=chosen))


def test_a_split_without_such_rows_is_an_error(plan: Plan, dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    write(tmp_path / "test.jsonl", dataset(10))
    with pytest.raises(DataError, match="rows labelled oos holds no text"):
        outside_texts(replace(plan, data_dir=tmp_path))


def test_what_cannot_be_out_of_scope_is_an_error_before_any_model_is_loaded(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"clinc15 is neither a file nor a task.*Did you mean 'clinc150'"):
        choose_out_of_scope("clinc15", text="text", text_pair=None)
    assert choose_out_of_scope(None, text="text", text_pair=None) is None
    pairs = choose_out_of_scope("mnli", text="text", text_pair=None)
    with pytest.raises(ConfigurationError, match="mnli has pairs of texts, and made has single texts"):
        replace(plan, out_of_scope=pairs)
    rows = tmp_path / "own.csv"
    rows.write_text("text,label\na,x\nb,y\n")
    own = SetChoice(task_from_file(rows))
    with pytest.raises(ConfigurationError, match="this is the task under test"):
        replace(plan, contenders=parse_contenders("base"), test=own, out_of_scope=own)


def test_shift_and_detection_are_their_bootstraps(plan: Plan, checkpoint: Checkpoint, tmp_path: Path) -> None:
    chosen = replace(plan, out_of_scope=None, perturbations=("swap",), contenders=parse_contenders("base"))
    first, second = evaluate(checkpoint, chosen, Store(tmp_path)).sets
    stored = {run.provenance.recipe.key: run.read() for run in Store(tmp_path).runs()}
    before, after = (outcome_of(stored[one.runs["base"][0]], None) for one in (first, second))
    assert before.doubt is not None
    assert before.out_of_scope is not None
    for scores, bootstrapped in (
        (second.shift["base"], intervals(shift_estimates(before.rows, after.rows), FEW)),
        (first.detection["base"], intervals(detection_estimates(before.doubt, before.out_of_scope), FEW)),
        (first.scores["base"], intervals(metric_estimates(before.rows, ("nll", "aurc")), FEW)),
    ):
        assert set(scores) == set(bootstrapped)
        for name, score in scores.items():
            expected = bootstrapped[name]
            assert (score.mean, score.low, score.high) == (expected.point, expected.low, expected.high)
    assert not first.shift
