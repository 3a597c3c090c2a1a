"""An evaluation of several answers a text: its figures against slow references, and the files that a report reads."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedModel, pipeline

from by_hand import slow_ece
from uatlite import UncertaintyLabeler, UncertaintyTagger
from uatlite.errors import ConfigurationError, DataError, StoreError
from uatlite.lab.evaluate.answer_runs import AnswerRuns, GivenProduct, compute_elsewhere
from uatlite.lab.evaluate.evaluate import evaluate
from uatlite.lab.evaluate.models import sets_of
from uatlite.lab.evaluate.outcomes import OUTCOMES, GoldRows, best_coverage
from uatlite.lab.evaluate.plan import Plan, SetChoice, parse_contenders, parse_metrics
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.store import Store
from uatlite.lab.report.evaluation import ANSWERS, open_evaluation, read_results
from uatlite.lab.report.evaluation_page import build_report
from uatlite.lab.report.results import findings, promise_lines, write_results
from uatlite.metrics.intervals import Resampling
from uatlite.predictive import sigmoid
from uatlite.text.labels import label_matrix
from uatlite.text.tasks import load, task_from_file

TAGS = {0: "O", 1: "B-person", 2: "I-person", 3: "B-place", 4: "I-place"}
LABELS = ("anger", "joy", "fear", "relief")
HOW = Resampling(resamples=60)


@dataclass(frozen=True)
class Evaluated:
    """The results, and where they come from."""

    results: Results
    source: GivenProduct
    store: Store


def evaluated(product: UncertaintyTagger | UncertaintyLabeler, plan: Plan, home: Path) -> Evaluated:
    source, store = GivenProduct(product, "tiny", plan), Store(home)
    return Evaluated(evaluate(source, plan, store), source, store)


@pytest.fixture(scope="module")
def tagger(tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer) -> UncertaintyTagger:
    model = tiny("bert", tokens=True, num_labels=5, id2label=TAGS)
    model.classifier.weight.data *= 5  # sure of what it says, and of no entity more often than not
    model.classifier.bias.data[0] += 5.0
    return UncertaintyTagger(model, tokenizer, "base")


@pytest.fixture(scope="module")
def entities(tagger: UncertaintyTagger, made_texts: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 texts; an entity that is found is gold as often as it says, and the types of the file are in capitals."""
    generator, rows = np.random.default_rng(0), []
    for text, found in zip(texts := made_texts(400), tagger.predict(texts).entities, strict=True):
        kept = [one for one in found if generator.random() < one.confidence]
        gold = [{"start": one.start, "end": one.end, "label": one.label.upper()} for one in kept]
        if generator.random() < 0.1 and not found:
            gold = [{"start": 0, "end": len(text.split()[0]), "label": "ANIMAL"}]
        rows.append(json.dumps({"text": text, "entities": gold}))
    path = tmp_path_factory.mktemp("entities") / "rows.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def of_entities(tagger: UncertaintyTagger, entities: Path, tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    contenders = parse_contenders("base,base+answers", several=True)
    plan = Plan(contenders, SetChoice(task_from_file(entities)), target=0.3, resampling=HOW)
    return evaluated(tagger, plan, tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("method", ["base", "distilled", "analytic"])
def test_the_cost_is_that_of_the_learned_method(
    method: str, tagger: UncertaintyTagger, entities: Path, tmp_path: Path
) -> None:
    task = task_from_file(entities)
    plan = Plan(parse_contenders(f"{method}+answers", several=True), SetChoice(task), resampling=HOW)
    about = evaluated(tagger, plan, tmp_path).results.methods[f"{method}+answers"]
    fitting = GoldRows.of(load(task, "calibration"), tagger.class_names)
    own = UncertaintyTagger(tagger.model, tagger.tokenizer, method).calibrate(fitting.texts, fitting.gold)
    assert about["cost"] == own.calibration_.settings.method.cost


@pytest.fixture(scope="module")
def labeler(tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer) -> UncertaintyLabeler:
    many = {"problem_type": "multi_label_classification", "id2label": dict(enumerate(LABELS)), "num_labels": 4}
    return UncertaintyLabeler(tiny("bert", **many), tokenizer, "base")


@pytest.fixture(scope="module")
def of_labels(
    labeler: UncertaintyLabeler, made_texts: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Evaluated, GoldRows]:
    texts = made_texts(400)
    chances = sigmoid(2.5 * labeler.predict(texts).logits - 0.5)
    gold = np.random.default_rng(0).random((400, 1)) < chances
    path = tmp_path_factory.mktemp("labels") / "rows.jsonl"
    rows = [
        {"text": text, "labels": [LABELS[i] for i in np.flatnonzero(row)]}
        for text, row in zip(texts, gold, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = task_from_file(path)
    contenders = parse_contenders("base,analytic+answers", several=True)
    plan = Plan(contenders, SetChoice(task), target=0.2, resampling=HOW)
    return evaluated(labeler, plan, path.parent / "store"), GoldRows.of(load(task, "test"), labeler.class_names)


def test_the_usual_confidence_of_an_entity_is_the_pipeline_s_score(
    of_entities: Evaluated, tagger: UncertaintyTagger, entities: Path
) -> None:
    rows = load(task_from_file(entities), "test").examples
    usual = pipeline("token-classification", tagger.model, tokenizer=tagger.tokenizer, aggregation_strategy="first")
    found = [(entity, row) for row in rows for entity in usual(str(row.text))]
    base = of_entities.results.answers["rows/test"]["base"]
    assert base.confidence == pytest.approx([float(entity["score"]) for entity, _ in found], abs=1e-5)
    right = [
        any((e["start"], e["end"], e["entity_group"].upper()) == tuple(span) for span in row.entities)
        for e, row in found
    ]
    assert base.right.tolist() == right
    scores = of_entities.results.sets[0].scores["base"]
    assert scores["answer_ece"].mean == pytest.approx(slow_ece(base.confidence, base.right), abs=1e-6)
    gold = sum(span.label != "ANIMAL" for row in rows for span in row.entities)
    assert scores["recall"].mean == pytest.approx(sum(right) / gold)
    assert scores["f1"].mean == pytest.approx(2 * sum(right) / (gold + len(found)))


def test_calibrated_entities_are_better_and_paired(of_entities: Evaluated) -> None:
    results = of_entities.results
    assert (results.kind, results.contenders) == ("entities", ("base", "base+answers"))
    ours, base = (results.sets[0].scores[name] for name in ("base+answers", "base"))
    for metric in ("answer_nll", "answer_ece"):
        apart = ours[metric].differences["base"]
        assert apart.point == pytest.approx(ours[metric].mean - base[metric].mean)
        assert apart.high < 0
    assert ours["f1"].mean == base["f1"].mean
    assert "gold answers are of kinds that the model does not know" in results.sets[0].alignment


def test_the_promise_is_checked_on_the_test_texts(
    of_entities: Evaluated, tagger: UncertaintyTagger, entities: Path
) -> None:
    (check,) = of_entities.results.promises
    task = task_from_file(entities)
    fitting, test = (GoldRows.of(load(task, split), tagger.class_names) for split in ("calibration", "test"))
    own = UncertaintyTagger(tagger.model, tagger.tokenizer, "base")
    pred = own.calibrate(fitting.texts, fitting.gold, target_risk=0.3).predict(test.texts, check_shift=False)
    reported = [(e, set(gold)) for es, gold in zip(pred.reported, test.gold, strict=True) for e in es]
    wrong = sum((e.start, e.end, e.label) not in gold for e, gold in reported)
    assert (check.reported, check.wrong, check.promised) == (len(reported), wrong, True)
    assert check.risk == pytest.approx(wrong / len(reported))
    assert check.coverage == pytest.approx(len(reported) / sum(map(len, pred.entities)))
    assert check.risk_interval[0] <= check.risk <= check.risk_interval[1]
    assert check.rule == own.calibration_.rule.describe()


def test_labels_are_scored_and_promised(of_labels: tuple[Evaluated, GoldRows], labeler: UncertaintyLabeler) -> None:
    found, test = of_labels
    base = found.results.answers["rows/test"]["base"]
    expected = labeler.predict(test.texts).probabilities
    assert base.confidence == pytest.approx(expected.ravel(), abs=1e-6)
    gold = label_matrix(test.gold, LABELS)
    assert base.right.tolist() == gold.ravel().tolist()
    scores = found.results.sets[0].scores["base"]
    chosen = np.where(gold, expected, 1 - expected)
    assert scores["label_nll"].mean == pytest.approx(-np.log(chosen).mean(), rel=1e-5)
    by_label = [slow_ece(expected[:, label], gold[:, label]) for label in range(4)]
    assert scores["label_ece"].mean == pytest.approx(np.mean(by_label), abs=1e-5)
    (check,) = found.results.promises
    assert (check.contender, check.covered, check.promised) == ("analytic+answers", "gold labels", True)
    assert check.coverage == pytest.approx((check.reported - check.wrong) / gold.sum())


@pytest.mark.parametrize("gold", [False, True])
def test_the_best_coverage_is_that_of_the_best_threshold(gold: bool) -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        size = int(generator.integers(1, 30))
        scores = generator.integers(0, 6, size).astype(float)
        right = generator.random(size) < scores / 6
        best = 0.0
        for threshold in sorted({*scores, -1.0}):
            above = scores > threshold
            if above.any() and (~right[above]).mean() <= 0.3:
                whole = right.sum() if gold else size
                part = (above & right).sum() if gold else above.sum()
                best = max(best, part / whole if whole else 0.0)
        counted = right if gold else np.ones(size, dtype=bool)
        assert best_coverage(scores, right, counted, 0.3) == pytest.approx(best)


def test_results_and_answers_go_to_files_and_back_and_to_a_page(
    of_entities: Evaluated, of_labels: tuple[Evaluated, GoldRows], tmp_path: Path
) -> None:
    for evaluation in (of_entities, of_labels[0]):
        home = tmp_path / evaluation.results.kind
        home.mkdir()
        write_results(evaluation.results, home)
        results = read_results(home / "results.json")
        assert results == Results.from_dict(json.loads(json.dumps(evaluation.results.to_dict())))
        assert results.promises == evaluation.results.promises
        again = open_evaluation(home)
        for name, outcome in evaluation.results.answers["rows/test"].items():
            assert again.outcomes("rows/test")[name].confidence.tolist() == outcome.confidence.tolist()
            assert again.outcomes("rows/test")[name].right.tolist() == outcome.right.tolist()
        html = build_report(home, home).read_text()
        noun = results.kind
        assert f"most confident {noun} are answered" in html
        assert f"{results.promises[0].risk:.1%}" in html
        assert results.promises[0].rule in html.replace("&gt;", ">")
        assert "Not known: a rule takes calibration rows" not in html
        for sentence in findings(results, None):
            assert sentence.replace("'", "&#39;").replace(">", "&gt;") in html
        assert promise_lines(results)[0] in (home / "results.md").read_text()
        assert len(list((home / "figures").glob("*.svg"))) == 3 + 2 + 2
    with pytest.raises(ConfigurationError, match="--method base is for one answer a text"):
        build_report(home, home, contender="base")
    (home / ANSWERS).unlink()
    with pytest.raises(StoreError, match="run `uatlite evaluate` again"):
        build_report(home, home)


def test_what_cannot_be_evaluated_is_said(entities: Path, tagger: UncertaintyTagger) -> None:
    test = SetChoice(task_from_file(entities))
    with pytest.raises(ConfigurationError, match=r"distilled\+answers"):
        Plan(parse_contenders("distilled", several=True), test)
    dataset = load(test.task, "test")
    with pytest.raises(DataError, match="none of its labels"):
        GoldRows.of(dataset, ("gene", "cell"))


def test_nothing_is_said_twice_and_a_killed_run_goes_on(
    of_entities: Evaluated, of_labels: tuple[Evaluated, GoldRows], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that finds all pieces runs no model; where some are missing, their texts alone are read again."""
    for first, product in ((of_entities, UncertaintyTagger), (of_labels[0], UncertaintyLabeler)):
        read: list[int] = []
        predict = product.predict

        def counted(self: Any, texts: Any, *, predict: Any = predict, read: list[int] = read, **options: Any) -> Any:
            read.append(len(texts))
            return predict(self, texts, **options)

        with monkeypatch.context() as patched:
            for does in ("predict", "calibrate"):
                patched.setattr(product, does, lambda *_, **__: pytest.fail("a model ran again"))
            again = evaluate(first.source, first.source.plan, first.store)
        assert again.to_dict() == first.results.to_dict()
        lost = {path: dict(np.load(path)) for path in first.store.directory.glob("answers=*/piece-00001.npz")}
        for path in lost:
            path.write_bytes(path.read_bytes()[:40])
        with monkeypatch.context() as patched:
            patched.setattr(product, "predict", counted)
            patched.setattr(product, "calibrate", lambda *_, **given: pytest.fail("it was calibrated again"))
            evaluate(first.source, first.source.plan, first.store)
        assert read == [16] * len(lost)
        for path, before in lost.items():
            after = dict(np.load(path))
            for name in before.keys() - {"seconds"}:
                np.testing.assert_array_equal(after[name], before[name])


def test_another_machine_stores_the_same(of_entities: Evaluated, tmp_path: Path) -> None:
    runs = AnswerRuns(of_entities.source, of_entities.store)
    for cell in sets_of(of_entities.source.plan):
        (job,) = runs.jobs(replace(cell, contender=of_entities.source.plan.contenders[1]))
        compute_elsewhere(lambda: of_entities.source, tmp_path, job)
        there = AnswerRuns(of_entities.source, Store(tmp_path))
        theirs = there.run(job)
        for name, values in vars(replace(runs.run(job), seconds=theirs.seconds)).items():
            np.testing.assert_array_equal(getattr(theirs, name), values)
        assert there.ready(job).calibration_.rules == runs.ready(job).calibration_.rules


def test_metrics_and_perturbations_can_be_asked_for(
    labeler: UncertaintyLabeler, of_labels: tuple[Evaluated, GoldRows], tmp_path: Path
) -> None:
    plan = replace(of_labels[0].source.plan, metrics=("label_ece",), perturbations=("swap",))
    first, swapped = evaluated(labeler, plan, tmp_path).results.sets
    assert (first.name, swapped.name) == ("rows/test", "rows+swap/test")
    assert list(swapped.scores["base"]) == ["label_ece"]
    assert first.scores["base"]["label_ece"] == of_labels[0].results.sets[0].scores["base"]["label_ece"]
    with pytest.raises(ConfigurationError, match="metric='accuracy'"):
        replace(plan, metrics=("accuracy",))


def test_every_metric_of_a_kind_can_be_asked_for(of_entities: Evaluated, of_labels: tuple[Evaluated, GoldRows]) -> None:
    for first in (of_entities, of_labels[0]):
        source, kind = first.source, first.results.kind
        plan = replace(source.plan, metrics=parse_metrics("all", kind))
        results = evaluate(GivenProduct(source.product, source.name, plan), plan, first.store)
        assert tuple(results.sets[0].scores["base"]) == OUTCOMES[kind].every
