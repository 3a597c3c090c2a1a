"""What can be compared on what: spellings of contenders, plans that are refused, sets and metrics by name."""

from dataclasses import replace

import pytest

from uatlite.errors import ConfigurationError, DataError
from uatlite.lab.evaluate.models import outside_texts
from uatlite.lab.evaluate.plan import (
    Plan,
    SetChoice,
    as_sets,
    choose_out_of_scope,
    choose_set,
    parse_contender,
    parse_contenders,
    parse_metrics,
    suggestion,
)
from uatlite.metrics.intervals import METRICS
from uatlite.text.tasks import task_from_file


@pytest.mark.parametrize(
    ("spelt", "method", "calibrator", "canonical"),
    [
        ("base", "base", "none", "base"),
        ("ts", "base", "temperature", "base+ts"),
        ("isotonic", "base", "isotonic", "base+isotonic"),
        ("uat+ts", "uat", "temperature", "uat+ts"),
        ("mc+temperature", "mc-uniform", "temperature", "mc-uniform+ts"),
        ("uat:gate=k,penalty=1.0+platt", "uat:penalty=1.0,gate=k", "platt", "uat:penalty=1.0,gate=k+platt"),
        ("uat:uncertainty=cv+ln", "uat:uncertainty=cv+ln", "none", "uat:uncertainty=cv+ln"),
        ("uat:uncertainty=cv+ln+ts", "uat:uncertainty=cv+ln", "temperature", "uat:uncertainty=cv+ln+ts"),
        ("analytic+its", "analytic", "input-temperature", "analytic+its"),
        ("uat+none", "uat", "none", "uat"),
    ],
)
def test_a_contender_is_a_method_and_a_calibrator(spelt, method, calibrator, canonical):
    contender = parse_contender(spelt)
    assert (contender.method.name, contender.calibrator, contender.name) == (method, calibrator, canonical)
    assert parse_contender(canonical) == contender


def test_a_list_keeps_the_commas_of_settings_and_drops_repetitions():
    named = parse_contenders("base, ts,uat:gate=k,penalty=1.0+ts,mc,mc-uniform")
    assert [contender.name for contender in named] == ["base", "base+ts", "uat:penalty=1.0,gate=k+ts", "mc-uniform"]
    named = parse_contenders("base, uat:samples=2,gate=k+answers", several=True)
    assert [contender.name for contender in named] == ["base", "uat:samples=2,gate=k+answers"]


@pytest.mark.parametrize(
    ("spelt", "several", "message"),
    [
        ("uat+tz", False, r"There is no calibrator 'tz' \(in 'uat\+tz'\).*Did you mean 'ts'"),
        ("uta+ts", False, "There is no method 'uta'.*Did you mean 'uat'"),
        ("base+its", False, "needs the margin's variance.*base runs one pass"),
        ("uat:samples=1+its", False, "needs the margin's variance"),
        (" , ", False, "names no method"),
        ("base+ts", True, r"'ts' is for one class a text.*base\+answers"),
    ],
)
def test_misspellings_are_explained(spelt, several, message):
    with pytest.raises(ConfigurationError, match=message):
        parse_contenders(spelt, several)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 0}, "seeds=0 is not 1 or more"),
        ({"limit": 0}, "limit=0 is not 1 or more"),
        ({"perturbations": ("swop",)}, "perturbation='swop'.*Did you mean 'swap'"),
        ({"metrics": ("nlll",)}, "metric='nlll'.*Did you mean 'nll'"),
        ({"contenders": ()}, "needs a method"),
        ({"out_of_scope": SetChoice(as_sets(["mnli"])[0].task)}, "mnli has pairs of texts, and made has single texts"),
    ],
)
def test_a_plan_is_checked_before_anything_runs(mixed_plan, changes, message):
    with pytest.raises(ConfigurationError, match=message):
        Plan(**{"contenders": parse_contenders("base"), "test": mixed_plan.test, **changes})


def test_rows_that_cannot_be_compared_on_are_refused(rows):
    task = task_from_file(rows)
    with pytest.raises(ConfigurationError, match="fitted and tested on the same rows"):
        Plan(parse_contenders("ts"), SetChoice(task, "calibration"))
    with pytest.raises(ConfigurationError, match="this is the task under test"):
        Plan(parse_contenders("base"), SetChoice(task), out_of_scope=SetChoice(task))


def test_a_method_without_its_own_calibrator_suggests_it(rows):
    def suggested(methods, split="test"):
        return Plan(parse_contenders(methods), SetChoice(task_from_file(rows), split)).suggested

    names = suggested("base,analytic:gate=k,uat,mc+ts,distilled,distilled+its")
    assert names == ("base+ts", "analytic:gate=k+its")
    assert suggestion(names).startswith("Not compared: base+ts, analytic:gate=k+its, methods with their own")
    assert suggested("ts,analytic+ts") == ()
    assert suggested("base", "calibration") == ()  # nothing is left to fit it on


def test_sets_and_metrics_are_chosen_by_name(rows):
    columns = {"text": None, "text_pair": None, "label": None}
    assert choose_set("sst2/test-original", None, **columns).split == "test-original"
    assert choose_set(None, rows, **columns).task.name == rows.name
    for task, data in ((None, None), ("sst2", rows)):
        with pytest.raises(ConfigurationError, match=r"Give either --task .* or --data FILE"):
            choose_set(task, data, **columns)
    for chosen in ({"text": "body"}, {"text_pair": "second"}, {"label": "stars"}):
        with pytest.raises(ConfigurationError, match=r"--(text|text-pair|label) \w+ is about --data FILE"):
            choose_set("sst2", None, **{**columns, **chosen})
    remembered = choose_set(None, rows, remembered={"text": "body", "label": "stars"}).task.layout
    assert (remembered.text, remembered.label) == ("text", "label")  # the file has none of these
    texts = {**columns, "text": "body"}  # of the file out of scope
    assert choose_set("sst2", None, **texts, out_of_scope="others.csv").split == "test"
    with pytest.raises(ConfigurationError, match="split of sst2='tset'"):
        as_sets(["sst2/tset"])
    assert parse_metrics("all") == tuple(METRICS)
    assert parse_metrics("nll, ece,nll") == ("nll", "ece")


# ── texts out of scope ─────────────────────────────────────────────────────────────────────────────────────────────


def test_only_rows_labelled_out_of_scope_and_at_most_the_limit_are_taken(mixed_plan):
    assert len(outside_texts(mixed_plan)) == 25
    assert len(outside_texts(replace(mixed_plan, limit=10))) == 10
    assert {example.label for example in outside_texts(mixed_plan).examples} == {None}
    plain = replace(mixed_plan.test.task, name="other", out_of_scope=None)
    assert len(outside_texts(replace(mixed_plan, out_of_scope=SetChoice(plain)))) == 85


def test_without_texts_out_of_scope_or_their_column_it_is_an_error(mixed_plan, strange_file, tmp_path):
    (tmp_path / "empty.jsonl").write_text('{"text": ""}')
    (tmp_path / "test.jsonl").write_text('{"text": "w1", "label": "neutral"}')
    files = [choose_out_of_scope(str(f), text="text", text_pair=None) for f in (strange_file, tmp_path / "empty.jsonl")]
    for changes, message in (
        ({"out_of_scope": files[0]}, "There is no column 'text'; the columns are: question"),
        ({"out_of_scope": files[1]}, "no text in column 'text'"),
        ({"data_dir": tmp_path}, "rows labelled oos holds no text"),
    ):
        with pytest.raises(DataError, match=message):
            outside_texts(replace(mixed_plan, **changes))


def test_what_is_neither_a_file_nor_a_task_is_an_error():
    with pytest.raises(ConfigurationError, match=r"clinc15 is neither a file nor a task.*Did you mean 'clinc150'"):
        choose_out_of_scope("clinc15", text="text", text_pair=None)
    assert choose_out_of_scope(None, text="text", text_pair=None) is None
