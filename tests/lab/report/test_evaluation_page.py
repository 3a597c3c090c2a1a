"""What the report of an evaluation shows, and everything behind it on the disk."""

import json
import re
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import pytest

from uatlite.errors import DataError, ModelError, StoreError
from uatlite.lab.report import evaluation_page as build
from uatlite.lab.report.evaluation import abstain, as_line, name_of_row, open_evaluation
from uatlite.lab.report.figures import _environment
from uatlite.lab.report.results import verdict_sentences, verdict_tables, write_results
from uatlite.metrics.intervals import SCALES
from uatlite.model.load import Checkpoint
from uatlite.text.examples import content_key
from uatlite.values import Choices, Example, Word, WordAttribution


def test_every_table_and_figure_is_there(page, opened):
    html = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;bad&lt;/b&gt;" in html
    # the verdict and its differences, two sets, the shift, the rule, two menus, how it was made
    assert html.count("<table>") == 9
    figures = 2 * (3 + 2 + 5) + 1
    assert html.count('<svg class="figure"') == html.count("<desc") == figures
    files = [path.suffix for path in (page.parent / "figures").iterdir()]
    assert files.count(".svg") == files.count(".png") == files.count(".csv") == figures
    # the scores and their intervals
    score = opened.results.sets[1].scores["uat+ts"]["nll"]
    cell = rf"{score.mean:.3f}<small>{score.low:.3f}–{score.high:.3f}</small>"
    assert re.search(cell, html)


def test_the_verdict_is_that_of_the_results_and_stands_once(page, opened, rows_of):
    html, (headline, *others) = unescape(page.read_text(encoding="utf-8")), verdict_sentences(opened.results)
    assert html.count(headline) == 1
    assert f"<p>{' '.join(others)}</p>" in html
    assert rows_of(page, "What to use at each cost") == list(verdict_tables(opened.results)[0].lines())


def test_the_page_says_when_and_how_it_was_made_of_how_many_rows(evaluation, opened, tmp_path):
    results = replace(opened.results, date="2026-11-19", command="uatlite evaluate 'my model' --task toy -o out")
    write_results(results, tmp_path)
    (tmp_path / "store").symlink_to(evaluation / "store")
    (tmp_path / "texts.jsonl").write_text("")
    html = build.report(tmp_path).read_text(encoding="utf-8")
    assert "<span>toy/test: 300 rows</span> <span>toy-shifted/test: 200 rows</span> <span>2026-11-19</span>" in html
    assert f"<code>{results.command}</code>" in unescape(html)
    assert html.count("300 rows: ") == html.count("200 rows: ") == 1


def test_a_line_says_what_each_metric_is_and_which_way_is_better(page):
    html = page.read_text(encoding="utf-8")
    said = dict(re.findall("<dt>(.*?):</dt> <dd>(.*?)</dd>", html))
    assert list(said) == ["Accuracy", "ECE", "NLL", "Brier", "AURC", "Cov@0.9", "ΔECE", "Robustness"]
    assert said["Cov@0.9"] == "the share of rows with a confidence above 0.9; neither direction is better by itself."
    assert [sentence.split("; ")[-1].split()[0] for sentence in said.values()] == [
        "higher", "lower", "lower", "lower", "lower", "neither", "neither", "lower"
    ]  # fmt: skip
    known = _environment().get_template("metrics.html.j2").module.MEANINGS
    assert {scale.heading.partition("@")[0] for scale in SCALES.values()} == set(known)


def test_a_contender_that_calibrate_cannot_make_shows_no_rule(evaluation, opened, tmp_path):
    names = tuple(name.replace("base+ts", "base+isotonic") for name in opened.results.contenders)
    text = json.dumps(opened.results.to_dict()).replace("base+ts", "base+isotonic")
    (tmp_path / "results.json").write_text(text)
    (tmp_path / "store").symlink_to(evaluation / "store")
    (tmp_path / "texts.jsonl").write_text("")
    html = build.report(tmp_path, method="base+isotonic").read_text(encoding="utf-8")
    assert "No rule is shown for base+isotonic: <code>uatlite calibrate</code> makes none with isotonic" in html
    assert f"It can make {', '.join(name for name in names if 'isotonic' not in name)}: <code>" in html
    assert "The rule on each set" not in html


def test_the_menu_names_every_risk_and_what_it_would_take(page, opened, rows_of):
    abstention = abstain(opened)
    menu = abstention.menu
    for lines, (target, *cells) in zip(
        zip(menu.lines, menu.errors, strict=True), rows_of(page, "The menu of risks"), strict=True
    ):
        assert f"{lines[0].target:.0%}" in target
        for line, answered in zip(lines, cells, strict=True):
            assert (line.needed.describe() if line.rule is None else f"{line.rule.coverage:.1%}") in answered
    for line, (share, bound) in zip(menu.reviews, rows_of(page, "The menu of reviews"), strict=True):
        assert f"{line.target:.0%}" in share
        assert f"{line.rule.risk_bound:.1%}" in bound


def test_an_explained_text_has_its_band(page):
    html = page.read_text(encoding="utf-8")
    assert re.findall(r'class="ring" x="([\d.]+)" width="([\d.]+)"', html) == [
        ("46.000", "28.000"), ("51.000", "19.000"), ("56.000", "10.000")
    ]  # fmt: skip
    assert "Margin 0.45 ± 0.30 logits: for 95% of its Gaussian between 46.0% and 74.0% sure of positive." in html


def test_texts_are_shown_where_they_are_known_and_ids_elsewhere(page):
    html = page.read_text(encoding="utf-8")
    texts, ids = html.count("<p>a &lt;premise&gt; ⏵ so</p>"), len(re.findall(r"<p>Row toy-test-\d+</p>", html))
    assert texts > 0
    assert ids > 0
    assert texts + ids == build.SHOWN
    assert as_line(Example("x", "two\n words")) == "two words"


def test_texts_of_the_first_set_lie_beside_the_results(page, opened, tmp_path):
    shown = r"<p>a &lt;premise&gt; ⏵ so</p>\n<p class=\"tags\"><span>toy-test-\d+</span>"
    assert re.search(shown, page.read_text(encoding="utf-8"))
    unnamed = content_key("no id")[:16]
    texts = [
        Example("toy-test-1", ("a", "b"), 1),
        Example("toy-test-2", Choices("which?", ("this", "that")), 0),
        Example(f"{unnamed}#2", "no id", None),
    ]
    written = write_results(replace(opened.results, texts=tuple(texts)), tmp_path)
    assert written[-1].name == "texts.jsonl"
    (tmp_path / "store").mkdir()
    examples = open_evaluation(tmp_path).examples()
    assert list(examples.values()) == texts
    assert [name_of_row(example) for example in examples.values()] == ["toy-test-1", "toy-test-2", None]
    assert opened.examples() == {}  # without the file, those of a task that is known


def test_explanations_come_back_and_broken_ones_are_named(evaluation, tmp_path):
    (one,) = build.read_explanations(evaluation / "explanations.json")
    assert one.words[1] == WordAttribution(Word("<b>bad</b>", (2, 3), False), 0.15, 0.25, 0.5, 0.71)
    (tmp_path / "explanations.json").write_text("[{}]")
    with pytest.raises(StoreError, match="delete it and explain again"):
        build.read_explanations(tmp_path / "explanations.json")


def test_explaining_takes_the_texts_and_the_very_model(opened, tmp_path, monkeypatch):
    abstention = abstain(opened, "base", target=0.15)
    opened = replace(opened, home=tmp_path)
    with pytest.raises(DataError, match=r"texts of toy/test were not found.*--data-dir"):
        build.explained_texts(opened, abstention, {}, "model")
    monkeypatch.setattr("uatlite.model.load.load_checkpoint", lambda name, **_: SimpleNamespace(hash="f" * 64))
    with pytest.raises(ModelError, match="model is not the model that was evaluated"):
        build.explained_texts(opened, abstention, {"toy-test-1": Example("toy-test-1", "a")}, "model")


def test_words_of_a_text_are_explained_and_questions_are_left_out(explainer):
    classifier = explainer()
    checkpoint = Checkpoint("tiny", classifier.model, classifier.tokenizer)
    question = Example("question", Choices("so", ("film", "long")), 0)
    examples = [Example("one", "unbearable film", 2), Example("pair", ("film", "so long"), None), question]
    single, pair = build.explain(checkpoint, examples, ("bad", "fair", "good"))
    assert [word.word.text for word in single.words] == ["unbearable", "film"]
    assert [word.word.text for word in pair.words] == ["film", "so", "long"]
    assert (single.gold, pair.gold) == ("good", None)
    assert single.predicted in classifier.class_names
    assert all(word.uncertainty > 0 and word.masked_confidence is not None for word in single.words)
    assert 0 < sum(word.share for word in single.words) < 1  # the special tokens have the rest
