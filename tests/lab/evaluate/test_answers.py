"""An evaluation of several answers a text: its figures against slow references, and the files that a report reads."""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from transformers import pipeline

from by_hand import slow_ece
from uatlite import UncertaintyTagger
from uatlite.errors import ConfigurationError, DataError, StoreError
from uatlite.lab.evaluate.answer_runs import AnswerRuns, compute_elsewhere
from uatlite.lab.evaluate.evaluate import evaluate
from uatlite.lab.evaluate.models import GivenModels, sets_of
from uatlite.lab.evaluate.outcomes import OUTCOMES, GoldRows, JudgedAnswers, best_coverage
from uatlite.lab.evaluate.plan import Plan, SetChoice, parse_contenders, parse_metrics
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.store import Store
from uatlite.lab.report.evaluation import open_evaluation, read_results
from uatlite.lab.report.evaluation_page import report
from uatlite.lab.report.results import findings, promise_lines, write_results
from uatlite.metrics.intervals import Resampling
from uatlite.model.load import Checkpoint
from uatlite.predictive import sigmoid
from uatlite.text.labels import label_matrix
from uatlite.text.tasks import load, task_from_file

LABELS = ("anger", "joy", "fear", "relief")
ROWS = 400


@dataclass(frozen=True)
class Evaluated:
    """A plan on a model, and what came of it."""

    product: Any
    plan: Plan
    store: Store
    results: Results

    @classmethod
    def of(cls, product, plan, store):
        return cls(product, plan, store, evaluate(Checkpoint("tiny", product.model, product.tokenizer), plan, store))

    def again(self, plan=None, home=None):
        """The results of another plan, or in another store."""
        return Evaluated.of(self.product, plan or self.plan, Store(home) if home else self.store).results

    def answers(self, name="base"):
        """The stored answers of a contender to the test texts."""
        return JudgedAnswers.read(self.store.answers(self.results.sets[0].runs[name][0])).rows

    def gold(self, split="test"):
        return GoldRows.of(load(self.plan.test.task, split), self.product.class_names)


def evaluated(product, gold, texts, home, **plan):
    """An evaluation on texts, with gold by what the model says about each."""
    said = product.predict(texts)
    answers = said.entities if isinstance(product, UncertaintyTagger) else said.logits
    rows = [{"text": text, **gold(text, of_text)} for text, of_text in zip(texts, answers, strict=True)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chosen = Plan(test=SetChoice(task_from_file(home / "rows.jsonl")), resampling=Resampling(60), **plan)
    return Evaluated.of(product, chosen, Store(home / "store"))


@pytest.fixture(scope="module")
def of_entities(product_of, made_texts, tmp_path_factory):
    """An entity that is found is gold as often as it says, and the types of the file are in capitals."""
    tagger, generator = product_of("entities", "base"), np.random.default_rng(0)

    def gold(text, said):
        kept = [entity for entity in said if generator.random() < entity.confidence]
        rows = [{"start": entity.start, "end": entity.end, "label": entity.label.upper()} for entity in kept]
        if generator.random() < 0.1 and not said:
            rows = [{"start": 0, "end": len(text.split()[0]), "label": "ANIMAL"}]
        return {"entities": rows}

    contenders = parse_contenders("base,base+answers", several=True)
    return evaluated(
        tagger, gold, made_texts(ROWS), tmp_path_factory.mktemp("entities"), contenders=contenders, target=0.3
    )


@pytest.fixture(scope="module")
def of_labels(product_of, made_texts, tmp_path_factory):
    drawn = iter(np.random.default_rng(0).random(ROWS))

    def gold(text, said):
        return {"labels": [LABELS[i] for i in np.flatnonzero(next(drawn) < sigmoid(2.5 * said - 0.5))]}

    contenders = parse_contenders("base,analytic+answers", several=True)
    home, labeler = tmp_path_factory.mktemp("labels"), product_of("labels", "base")
    return evaluated(labeler, gold, made_texts(ROWS), home, contenders=contenders, target=0.2)


@pytest.fixture(scope="module", params=["entities", "labels"])
def of_kind(request):
    """What both kinds can do."""
    return request.getfixturevalue(f"of_{request.param}")


# ── figures ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["base", "distilled", "analytic"])
def test_the_cost_is_that_of_the_learned_method(method, of_entities, tmp_path):
    contenders, tagger = parse_contenders(f"{method}+answers", several=True), of_entities.product
    about = of_entities.again(replace(of_entities.plan, contenders=contenders), tmp_path).methods[f"{method}+answers"]
    fitting = of_entities.gold("calibration")
    alone = UncertaintyTagger(tagger.model, tagger.tokenizer, method).calibrate(fitting.texts, fitting.gold)
    assert about["cost"] == alone.calibration_.settings.method.cost


def test_the_usual_confidence_of_an_entity_is_the_pipeline_s_score(of_entities):
    rows, tagger = load(of_entities.plan.test.task, "test").examples, of_entities.product
    usual = pipeline("token-classification", tagger.model, tokenizer=tagger.tokenizer, aggregation_strategy="first")
    found = [(entity, row) for row in rows for entity in usual(str(row.text))]
    base = of_entities.answers()
    assert base.confidence == pytest.approx([float(entity["score"]) for entity, _ in found], abs=1e-5)
    right = [
        any((e["start"], e["end"], e["entity_group"].upper()) == tuple(span) for span in row.entities)
        for e, row in found
    ]
    assert base.labels.tolist() == right
    scores = of_entities.results.sets[0].scores["base"]
    assert scores["answer_ece"].mean == pytest.approx(slow_ece(base.confidence, base.labels), abs=1e-6)
    gold = sum(span.label != "ANIMAL" for row in rows for span in row.entities)
    assert scores["recall"].mean == pytest.approx(sum(right) / gold)
    assert scores["f1"].mean == pytest.approx(2 * sum(right) / (gold + len(found)))


def test_calibrated_entities_are_better_and_paired(of_entities):
    results = of_entities.results
    assert (results.kind, results.contenders) == ("entities", ("base", "base+answers"))
    ours, base = (results.sets[0].scores[name] for name in ("base+answers", "base"))
    for metric in ("answer_nll", "answer_ece"):
        apart = ours[metric].differences["base"]
        assert apart.point == pytest.approx(ours[metric].mean - base[metric].mean)
        assert apart.high < 0
    assert ours["f1"].mean == base["f1"].mean
    assert "gold answers are of kinds that the model does not know" in results.sets[0].alignment


def test_the_promise_is_checked_on_the_test_texts(of_entities):
    (check,) = of_entities.results.promises
    fitting, test, tagger = of_entities.gold("calibration"), of_entities.gold(), of_entities.product
    alone = UncertaintyTagger(tagger.model, tagger.tokenizer, "base")
    pred = alone.calibrate(fitting.texts, fitting.gold, target_risk=0.3).predict(test.texts, check_shift=False)
    reported = [(e, set(gold)) for es, gold in zip(pred.reported, test.gold, strict=True) for e in es]
    wrong = sum((e.start, e.end, e.label) not in gold for e, gold in reported)
    assert (check.reported, check.wrong, check.promised) == (len(reported), wrong, True)
    assert check.risk == pytest.approx(wrong / len(reported))
    assert check.coverage == pytest.approx(len(reported) / sum(map(len, pred.entities)))
    assert check.risk_interval[0] <= check.risk <= check.risk_interval[1]
    assert check.rule == alone.calibration_.rule.describe()


def test_labels_are_scored_and_promised(of_labels):
    test, base = of_labels.gold(), of_labels.answers()
    expected = of_labels.product.predict(test.texts).probabilities
    assert base.confidence == pytest.approx(expected.ravel(), abs=1e-6)
    gold = label_matrix(test.gold, LABELS)
    assert base.labels.tolist() == gold.ravel().tolist()
    scores = of_labels.results.sets[0].scores["base"]
    chosen = np.where(gold, expected, 1 - expected)
    assert scores["label_nll"].mean == pytest.approx(-np.log(chosen).mean(), rel=1e-5)
    by_label = [slow_ece(expected[:, label], gold[:, label]) for label in range(4)]
    assert scores["label_ece"].mean == pytest.approx(np.mean(by_label), abs=1e-5)
    (check,) = of_labels.results.promises
    assert (check.contender, check.covered, check.promised) == ("analytic+answers", "gold labels", True)
    assert check.coverage == pytest.approx((check.reported - check.wrong) / gold.sum())


@pytest.mark.parametrize("gold", [False, True])
def test_the_best_coverage_is_that_of_the_best_threshold(gold):
    generator = np.random.default_rng(0)
    for _ in range(20):
        size = int(generator.integers(1, 30))
        scores = generator.integers(0, 6, size).astype(float)
        right = generator.random(size) < scores / 6
        counted = right if gold else np.ones(size, dtype=bool)
        best = 0.0
        for threshold in sorted({*scores, -1.0}):
            above = scores > threshold
            if above.any() and (~right[above]).mean() <= 0.3 and counted.any():
                best = max(best, (above & counted).sum() / counted.sum())
        assert best_coverage(scores, right, counted, 0.3) == pytest.approx(best)


# ── what every kind can do ─────────────────────────────────────────────────────────────────────────────────────────


def test_results_and_answers_go_to_files_and_back_and_to_a_page(of_kind, tmp_path):
    results = of_kind.results
    write_results(results, tmp_path)
    (tmp_path / "store").symlink_to(of_kind.store.directory)
    assert read_results(tmp_path / "results.json") == Results.from_dict(json.loads(json.dumps(results.to_dict())))
    assert read_results(tmp_path / "results.json").promises == results.promises
    again = open_evaluation(tmp_path).outcomes("rows.jsonl/test")
    for name in results.contenders:
        assert again[name].applies.confidence.tolist() == of_kind.answers(name).confidence.tolist()
        assert again[name].applies.labels.tolist() == of_kind.answers(name).labels.tolist()
    html = report(tmp_path, tmp_path).read_text()
    assert f"most confident {results.kind} are answered" in html
    assert f"{results.promises[0].risk:.1%}" in html
    assert results.promises[0].rule in html.replace("&gt;", ">")
    assert "Not known: a rule takes calibration rows" not in html
    for sentence in findings(results, None):
        assert sentence.replace("'", "&#39;").replace(">", "&gt;") in html
    assert promise_lines(results)[0] in (tmp_path / "results.md").read_text()
    assert len(list((tmp_path / "figures").glob("*.svg"))) == 3 + 2 + 2
    with pytest.raises(ConfigurationError, match="--method base is for one answer a text"):
        report(tmp_path, tmp_path, method="base")
    (tmp_path / "store").unlink()
    with pytest.raises(StoreError, match="run `uatlite evaluate` again"):
        report(tmp_path, tmp_path)


def test_what_cannot_be_evaluated_is_said(of_kind):
    test = of_kind.plan.test
    with pytest.raises(ConfigurationError, match=r"distilled\+answers"):
        Plan(parse_contenders("distilled", several=True), test)
    with pytest.raises(ConfigurationError, match="metric='accuracy'"):
        replace(of_kind.plan, metrics=("accuracy",))
    with pytest.raises(DataError, match="none of its labels"):
        GoldRows.of(load(test.task, "test"), ("gene", "cell"))


def test_nothing_is_said_twice_and_a_killed_run_goes_on(of_kind, monkeypatch):
    """Another process that finds all pieces runs no model; where some are missing, their texts alone are read again."""
    product, read = type(of_kind.product), list[int]()
    predict = product.predict
    for does in ("predict", "calibrate"):
        monkeypatch.setattr(product, does, lambda *_, **__: pytest.fail("a model ran again"))
    assert of_kind.again().to_dict() == of_kind.results.to_dict()

    def counted(self, texts, **options):
        read.append(len(texts))
        return predict(self, texts, **options)

    lost = {path: dict(np.load(path)) for path in of_kind.store.directory.glob("answers=*/piece-00001.npz")}
    for path in lost:
        path.write_bytes(path.read_bytes()[:40])
    monkeypatch.setattr(product, "predict", counted)
    of_kind.again()
    assert read == [16] * len(lost)
    for path, before in lost.items():
        after = dict(np.load(path))
        for name in before.keys() - {"seconds"}:
            np.testing.assert_array_equal(after[name], before[name])


def test_another_machine_stores_the_same(of_kind, tmp_path):
    source = GivenModels([Checkpoint("tiny", of_kind.product.model, of_kind.product.tokenizer)], of_kind.plan)
    here, there = AnswerRuns(source, of_kind.store), AnswerRuns(source, Store(tmp_path))
    for cell in sets_of(of_kind.plan):
        (job,) = here.jobs(replace(cell, contender=of_kind.plan.contenders[1]))
        compute_elsewhere(source, tmp_path, job)
        theirs = there.run(job)
        for name, values in vars(replace(here.run(job), seconds=theirs.seconds)).items():
            np.testing.assert_array_equal(getattr(theirs, name), values)
        assert there.ready(job.home).calibration_.rules == here.ready(job.home).calibration_.rules


def test_metrics_and_perturbations_can_be_asked_for(of_kind, tmp_path):
    results, scored = of_kind.results, OUTCOMES[of_kind.results.kind]
    again = of_kind.again(replace(of_kind.plan, metrics=parse_metrics("all", results.kind)))
    assert tuple(again.sets[0].scores["base"]) == scored.every
    plan = replace(of_kind.plan, metrics=(scored.ece,), perturbations=("swap",))
    first, swapped = of_kind.again(plan, tmp_path).sets
    assert (first.name, swapped.name) == ("rows.jsonl/test", "rows.jsonl+swap/test")
    assert list(swapped.scores["base"]) == [scored.ece]
    assert first.scores["base"] == {scored.ece: results.sets[0].scores["base"][scored.ece]}
    alone = of_kind.again(replace(plan, metrics=(scored.every[-1],)), tmp_path)
    assert findings(alone, None)
