"""The page of a watch: it answers the four questions, shows the texts, escapes them, and needs no other file."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from by_hand import calibration_of
from uatlite.lab.report.watch_page import moment_of, timeline_figure, write_watch
from uatlite.scoring.watch import Watch
from uatlite.trust.scope import Scope
from uatlite.trust.shift import Usual, summarise

ROWS = 200
NORMAL = np.sort(np.random.default_rng(0).normal(size=ROWS))


@pytest.fixture
def watch(tmp_path):
    usual = Usual(0.8, {"a": 0.5, "b": 0.5}, answered=0.9)
    found = calibration_of(summarise(NORMAL, score="logit-margin", usual=usual), Scope(0.01, 0, NORMAL))
    return Watch(found, tmp_path / "watch.json", time="at")


def write(directory, hour, number, *, moved=0.0, label="ab"):
    """Scored rows of an hour; with `moved` they are stranger, and refused."""
    rng = np.random.default_rng(hour)
    strange, margins = rng.normal(moved, 1, size=number), rng.normal(size=number)
    p = (1 + ROWS - np.searchsorted(NORMAL, strange, side="left")) / (1 + ROWS)
    directory.mkdir(exist_ok=True)
    rows = [
        {
            "id": place, "text": f"<b>row {hour}-{place}</b>", "label": label[place % len(label)], "confidence": 0.8,
            "logit_margin": float(margins[place]), "scope": float(p[place]), "abstain": moved > 0,
            "out_of_scope": bool(p[place] <= 0.01), "at": f"2026-11-17T{hour:02d}:30:00Z",
        }
        for place in range(number)
    ]  # fmt: skip
    (directory / f"{hour:02d}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_it_says_what_changed_since_when_and_how_bad(watch, tmp_path):
    scored = tmp_path / "scored"
    for hour in range(4):
        write(scored, hour, 150)
    write(scored, 4, 120, moved=2.5, label="b")
    state = watch.look(str(scored))
    lines = timeline_figure(watch, state, ()).csv.splitlines()
    assert lines[0].startswith("hour,rows,log10_evidence,answered,answered_low,answered_high,out_of_scope")
    assert len(lines) == 1 + 5
    assert abs(state.alarm.change - 600) < 60
    assert state.alarm.raised == "2026-11-17T04"
    written = write_watch(watch, state, str(scored), tmp_path / "page" / "watch.html", classifier="my-classifier")
    html = written.read_text(encoding="utf-8")
    rows = dict(re.findall(r'<tr><th scope="row">(.*?)</th>\s*<td class="">(.*?)</td>', html))
    assert rows["What changed"].startswith("Many texts are")
    assert f"About row {state.alarm.change + 1}, " in rows["Since when"]
    assert re.search(r"Answered \d+\.\d%, before 100\.0%\.", rows["What moved"])
    strangest, around = (part.split("</ul>")[0] for part in html.split('<ul class="texts">')[1:])
    assert strangest.count("<li>") == 20
    assert strangest.count("<p>&lt;b&gt;row 4-") >= 15
    listed = [f"row {number}" for number in range(state.alarm.change - 4, state.alarm.change + 6)]
    assert re.findall(r'class="tags"><span>(.*?)</span>', around) == listed
    labels = html.split("those that moved most first</caption>")[1].split("</table>")[0]
    assert re.findall(r'<th scope="row">(.*?)</th>', labels) == ["a", "b"]
    assert "<b>row" not in html
    assert "uatlite recheck my-classifier to_label.jsonl" in html
    assert "--acknowledge --new-normal" in html
    assert "src=" not in html


def test_without_times_there_is_a_point_a_file(watch, tmp_path):
    untimed, scored = replace(watch, time=None), tmp_path / "scored"
    write(scored, 1, 150)
    write(scored, 2, 120, moved=1.5)
    state = untimed.look(str(scored))
    figure = timeline_figure(untimed, state, ())
    assert (figure.title, [line.split(",")[:2] for line in figure.csv.splitlines()]) == (
        "File by file", [["file", "rows"], ["01.jsonl", "150"], ["02.jsonl", "120"]]
    )  # fmt: skip
    assert ">02.jsonl<" in figure.svg or "02.jsonl" in figure.svg
    html = write_watch(untimed, state, str(scored), tmp_path / "watch.html").read_text(encoding="utf-8")
    files = html.split("Each file by itself; shares with 95 % intervals</caption>")[1].split("</table>")[0]
    assert re.findall(r'<th scope="row">(.*?)</th>', files) == ["01.jsonl", "02.jsonl"]
    report = state.report(untimed.calibration)
    assert f'<h1 class="{report.level}">' in html
    assert f'<td class="{report.level}">{report.describe()}</td>' in html


def test_without_a_change_it_is_short(watch, tmp_path):
    write(tmp_path / "scored", 1, 150)
    state = watch.look(str(tmp_path / "scored"))
    html = write_watch(watch, state, str(tmp_path / "scored"), tmp_path / "watch.html").read_text(encoding="utf-8")
    assert "No change was found" in html
    assert "Texts to look at" not in html
    assert "At calibration" in html
    (tmp_path / "empty").mkdir()
    none = Watch(watch.calibration, tmp_path / "none.json", time="at")
    nothing = write_watch(none, none.look(str(tmp_path / "empty")), str(tmp_path / "empty"), tmp_path / "none.html")
    assert "0 rows watched" in nothing.read_text(encoding="utf-8")
    assert [moment_of(hour).hour for hour in ("2026-11-17", "2026-11-17T05")] == [0, 5]


def test_the_files_of_the_change_may_be_gone(watch, tmp_path):
    scored = tmp_path / "scored"
    write(scored, 1, 150, moved=1.5)
    state = watch.look(str(scored))
    (scored / "01.jsonl").unlink()
    html = write_watch(watch, state, str(scored), tmp_path / "watch.html").read_text(encoding="utf-8")
    assert "The files of these rows are gone" in html
