"""The demo on a toy task: every step leaves its result, a second run repeats none, and the classifier can be used."""

import json
import textwrap
from dataclasses import replace

import pytest
from transformers import BertTokenizer

from reference import Recorded
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.lab import demo as run
from uatlite.lab.demo import REVIEWS, SENTENCES
from uatlite.lab.demo import DemoSettings as Settings
from uatlite.lab.evaluate.plan import parse_contenders
from uatlite.lab.report import evaluation_page as explaining
from uatlite.lab.report.evaluation import abstain, open_evaluation
from uatlite.lab.report.evaluation_page import EXPLAINED, read_explanations
from uatlite.lab.train.recipe import Recipe
from uatlite.model.load import load_checkpoint
from uatlite.text.schema import Layout, Split, Task, find_task
from uatlite.text.tasks import load

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "good", "bad", "not"]


def toy_task(path, name, rows, noise):
    """Sentences that say good or bad; every `noise`-th is labelled wrongly."""
    with path.open("w", encoding="utf-8") as file:
        for place in range(rows):
            said = place % 2
            filler = " ".join("abcdefghij"[(place * step) % 10] for step in range(1, 2 + place % 5))
            label = 1 - said if place % noise == 0 else said
            row = {"id": f"{name}{place}", "text": f"{filler} {('bad', 'good')[said]}", "label": label}
            file.write(json.dumps(row) + "\n")
    return Task(
        name=name,
        title="toy",
        labels=("negative", "positive"),
        layout=Layout(codes=("negative", "positive")),
        path=path,
        splits={"train": Split(share=(0, 30)), "calibration": Split(share=(30, 70)), "test": Split(share=(70, 100))},
    )


@pytest.fixture(scope="module")
def settings(tiny, tmp_path_factory):
    directory = tmp_path_factory.mktemp("toy")
    tiny("bert").base_model.save_pretrained(directory / "backbone")
    BertTokenizer(vocab={word: place for place, word in enumerate(WORDS)}).save_pretrained(directory / "backbone")
    return Settings(
        backbone=str(directory / "backbone"),
        task=toy_task(directory / "toy.jsonl", "toy", rows=240, noise=9),
        shift=toy_task(directory / "odd.jsonl", "odd", rows=100, noise=3),
        recipe=Recipe(learning_rate=3e-3, warmup_steps=2, batch_size=8, epochs=4),
        methods="base,ts,uat,uat+ts",
        contender="uat+ts",
        max_length=16,
        target_risk=0.25,
    )


@pytest.fixture(scope="module")
def first(settings, tmp_path_factory):
    directory, display = tmp_path_factory.mktemp("demo") / "out", Recorded()
    return run.run_demo(directory, display, settings), display, directory


def test_every_step_is_taken_and_shown(first, settings):
    done, display, directory = first
    steps = settings.recipe.steps(len(load(settings.task, "train")))
    assert list(display.stages)[:3] == ["fine-tuning", "predicting", "scoring"]
    assert list(display.stages)[-1] == "drawing the report"
    assert display.stages["fine-tuning"] == [steps, steps]
    assert [one.name for one in done.results.sets] == ["toy/test", "odd/test"]
    assert len(done.findings) == 3
    assert sum(len(textwrap.wrap(sentence, 80)) for sentence in done.findings) <= 7  # and two paths: ten lines
    # everything is where it says
    assert done.report == directory / "report.html"
    assert "toy/test" in done.report.read_text(encoding="utf-8")
    assert (directory / "results.csv").is_file()
    assert len(read_explanations(directory / "explanations.json")) <= EXPLAINED
    classifier = UncertaintyClassifier.from_pretrained(done.classifier)
    assert set(classifier.predict(["a good b", "bad"], check_shift=False).labels) <= {"negative", "positive"}


def test_the_saved_classifier_has_the_threshold_that_the_report_shows(first, settings, tmp_path):
    _, display, directory = first
    settings = replace(settings, target_risk=0.4)  # which so few rows can promise
    run.calibrate(load_checkpoint(directory / "model"), "base+ts", tmp_path, settings, display)
    classifier = UncertaintyClassifier.from_pretrained(tmp_path)
    saved = classifier.calibration_
    assert saved.rule.promised
    shown = abstain(open_evaluation(directory), "base+ts", target=settings.target_risk, scope=saved.scope)
    assert (saved.rule.texts, saved.rule.errors) == (shown.rule.texts, shown.rule.errors)
    assert saved.rule.threshold == pytest.approx(shown.rule.threshold, rel=1e-6)
    test = load(settings.task, "test")
    abstained = classifier.predict(test.texts, check_shift=False).abstain
    ids = {example.id for example, left in zip(test.examples, abstained, strict=True) if left}
    assert {row.id for row in shown.sets[0].abstained} == ids


def test_a_second_run_repeats_no_step(first, settings, monkeypatch):
    done, _, directory = first
    for place, step in ((run, "fine_tune"), (explaining, "explain"), (UncertaintyClassifier, "calibrate")):
        monkeypatch.setattr(place, step, lambda *_, **__: pytest.fail("a step was repeated"))
    monkeypatch.setattr("uatlite.lab.evaluate.runs.StoreJob.compute", lambda *_: pytest.fail("rows predicted again"))
    display = Recorded()
    again = run.run_demo(directory, display, settings)
    assert list(display.stages) == ["predicting", "scoring", "drawing the report"]
    assert again.results.to_dict() == done.results.to_dict()
    assert again.findings == done.findings


def test_the_real_demo_takes_parts_of_the_splits():
    for whole, part in ((find_task("rotten-tomatoes"), SENTENCES), (find_task("movie-reviews-imdb"), REVIEWS)):
        for name, split in whole.splits.items():
            low, high = part.splits[name].share
            assert split.share[0] <= low < high <= split.share[1]  # and those of the whole task do not overlap
    assert [contender.name for contender in parse_contenders(Settings().methods)][:2] == ["base", "base+ts"]
