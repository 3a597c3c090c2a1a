"""Measures of an evaluation: texts out of scope against a direct computation, the others against the bootstrap."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from by_hand import slow_aurc
from uatlite.lab.evaluate import runs as running
from uatlite.lab.evaluate.evaluate import evaluate
from uatlite.lab.evaluate.outcomes import outcome_of
from uatlite.lab.evaluate.plan import SetChoice, choose_out_of_scope, parse_contenders
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.scope import Mixture
from uatlite.lab.evaluate.store import Store
from uatlite.lab.report.results import markdown, records, tables_of
from uatlite.metrics.intervals import Resampling, detection_estimates, intervals, metric_estimates, shift_estimates
from uatlite.text.schema import Split
from uatlite.text.tasks import load
from uatlite.trust.scope import ScopeFit, chance_in_scope, fit_scope

FEW = Resampling(resamples=50)


@pytest.fixture(scope="module")
def evaluated(mixed_plan, checkpoint, tmp_path_factory):
    """The results of the plan, and their store."""
    store = Store(tmp_path_factory.mktemp("store"))
    return evaluate(checkpoint, mixed_plan, store), store


def read(checkpoint, texts):
    """Logits and representations, text by text: the first token after the last layer, and the mean that it reads."""
    logits, representations = [], []
    for text in texts:
        with torch.no_grad():
            output = checkpoint.model(**checkpoint.tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        before, after = output.hidden_states[-2:]
        logits.append(output.logits[0].numpy())
        representations.append(torch.cat([after[0, 0], before[0].mean(dim=0)]).numpy())
    return np.array(logits, dtype=float), np.array(representations, dtype=float)


def texts_of(data, *, outside):
    return [str(example.text) for example in data.examples if (example.label == data.out_of_scope) == outside]


def test_every_number_is_that_of_a_direct_computation(mixed_plan, checkpoint, evaluated):
    one, task = evaluated[0].out_of_scope, mixed_plan.test.task
    sets = {split: load(task, split, mixed_plan.data_dir) for split in task.splits}
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


def test_each_contender_has_its_seeds_intervals_and_paired_differences(evaluated):
    results, one = evaluated[0], evaluated[0].out_of_scope
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


def test_results_go_to_json_and_back_and_into_every_table(evaluated):
    results = evaluated[0]
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


def test_nothing_is_predicted_twice(mixed_plan, checkpoint, evaluated, monkeypatch):
    """Not even the teacher, the plain pass that a read-out reads, and that of the scope; also in another process."""
    learned, store = parse_contenders("distilled:of=uat,samples=2+its"), evaluated[1]
    plan = replace(mixed_plan, contenders=(*mixed_plan.contenders, *learned))
    first = evaluate(checkpoint, plan, store)
    monkeypatch.setattr(running, "run_tokens", lambda *_: pytest.fail("a model ran again"))
    stamps = {path: path.stat().st_mtime_ns for path in store.directory.rglob("*.parquet")}
    assert set(first.out_of_scope.runs["base"]) < {run.provenance.recipe.key for run in store.runs()}
    again = evaluate(checkpoint, plan, Store(store.directory))
    assert json.dumps(again.to_dict()) == json.dumps(first.to_dict())
    assert {path: path.stat().st_mtime_ns for path in store.directory.rglob("*.parquet")} == stamps
    assert again.out_of_scope == first.out_of_scope


def test_a_file_needs_no_label(mixed_plan, checkpoint, strange_file, tmp_path):
    chosen = choose_out_of_scope(str(strange_file), text="question", text_pair=None)
    results = evaluate(checkpoint, replace(mixed_plan, out_of_scope=chosen), Store(tmp_path))
    one = results.out_of_scope
    assert (one.name, one.rows, one.in_scope_rows) == ("questions.jsonl/out-of-scope", 30, 60)
    assert one.source == str(strange_file)


ALONE = "scope: by 70 calibration rows alone, as no training texts of the task were found"


@pytest.mark.parametrize(
    ("splits", "limit", "note"),
    [
        (("train", "calibration", "test"), None, ALONE),
        (("calibration", "test"), None, ALONE),
        (("calibration", "test"), 20, "no scope: 20 rows are too few to know what is in scope"),
        (("test",), None, "no scope: made has no calibration split"),
    ],
)
def test_what_the_scope_is_by_or_why_there_is_none_is_said(mixed_plan, checkpoint, tmp_path, splits, limit, note):
    """Without training texts, whose file is absent here, the calibration rows serve."""
    task = mixed_plan.test.task
    there = {"train": Split(("absent",)), "calibration": task.splits["calibration"], "test": task.splits["test"]}
    test = SetChoice(replace(task, splits={name: there[name] for name in splits}))
    plan = replace(mixed_plan, contenders=parse_contenders("base"), test=test, out_of_scope=test, limit=limit)
    one = evaluate(checkpoint, plan, Store(tmp_path)).out_of_scope
    assert one.note.startswith(note)
    assert list(one.detection) == ["base", "scope"][: 1 + (note == ALONE)]
    assert ("scope_aurc" in one.mixture["base"]) == (note == ALONE)
    assert "confidence_aurc" in one.mixture["base"]


def test_a_text_answered_by_out_of_scope_is_no_error(evaluated):
    """A model with such a class: its answer is right, and the doubt is the probability of the class."""
    results, store = evaluated
    keys = (results.sets[0].runs["base"][0], results.out_of_scope.runs["base"][0])
    runs = {run.provenance.recipe.key: run.read() for run in store.runs()}
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


def test_shift_and_detection_are_their_bootstraps(mixed_plan, checkpoint, tmp_path):
    chosen = replace(mixed_plan, out_of_scope=None, perturbations=("swap",), contenders=parse_contenders("base"))
    results = evaluate(checkpoint, chosen, Store(tmp_path))
    assert "out_of_scope" not in results.to_dict()
    assert Results.from_dict(results.to_dict()).out_of_scope is None
    first, second = results.sets
    stored = {run.provenance.recipe.key: run.read() for run in Store(tmp_path).runs()}
    before, after = (outcome_of(stored[one.runs["base"][0]], None) for one in (first, second))
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
