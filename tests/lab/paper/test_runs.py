"""What a run computes: with `--learned-only` and `--tasks` only a part of it, and on workers what it computes here."""

import csv
import json
import shutil
from dataclasses import replace

import pytest

from reference import Recorded
from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate import cells as module
from uatlite.lab.evaluate.store import Store
from uatlite.lab.paper.write import PAGE, reproducer, write_reproduction
from uatlite.lab.train.recipe import read_finished

TABLE = ["main"]


def test_a_plan_says_what_a_run_does(settings, tmp_path):
    names, chosen = ["negation", "rescaling"], replace(settings, tasks=("sst2", "mnli"))
    said, *more = reproducer(tmp_path, chosen, Recorded()).plan(names)
    assert not list(tmp_path.iterdir())
    write_reproduction(names, tmp_path, chosen, Recorded())
    records = [read_finished(path) for path in (tmp_path / "models").iterdir()]
    runs = [run.provenance for run in Store(tmp_path / "store").runs()]
    steps, sequences = sum(record.steps for record in records), sum(run.rows * run.passes for run in runs)
    assert said == f"{len(records)} models in {steps:,} steps; {sequences:,} forward sequences."
    assert "GB on disk, and 0.0 hours on one device" in more[0]
    assert all(" s a step, " in line for line in more[1:])
    assert len(more) == 1 + len({record.run.train for record in records})


def test_a_plan_names_the_backbones_of_which_it_could_measure_nothing(settings, tmp_path):
    chosen = replace(settings, backbone="no/such-backbone")
    said, _, missing = reproducer(tmp_path, chosen, Recorded()).plan(["negation"])
    assert "1 models in" in said
    assert missing.startswith("no/such-backbone on mnli: not in the hours and on disk, because no step was measured")


@pytest.mark.parametrize("learned", [False, True])
def test_an_unlearned_task_costs_the_plain_model_alone(learned, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MARGIN", -1.0 if learned else 2.0)
    display = Recorded()
    chosen = replace(settings, learned_only=True)
    (table,) = write_reproduction(TABLE, tmp_path, chosen, display)
    trained = {path.name.split("-")[1] for path in (tmp_path / "models").iterdir()}
    assert trained == ({"base", "ensemble", "sngp", "vi"} if learned else {"base"})
    plain = len(list((tmp_path / "models").glob("sst2-base-*")))
    assert plain == (5 if learned else 1)  # members of an ensemble are not trained for a task that is not learned
    assert display.work == pytest.approx(display.total)
    general = table.grids[0]
    assert general.cells["base+ts", "sst2"].measurement is not None
    uat = general.cells["uat", "sst2"]
    if learned:
        assert uat.measurement is not None
        assert not table.reasons
        return
    assert uat.measurement is None
    assert uat.reason is not None
    assert "not computed: " in uat.reason
    assert "on sst2 has an accuracy of" in uat.reason
    assert {verdict.outcome for verdict in table.verdicts} == {"not learned"}


def test_only_models_of_the_tasks_asked_for_are_trained(settings, tmp_path):
    chosen = replace(settings, tasks=("sst2",))
    (table,) = write_reproduction(["gates"], tmp_path, chosen, Recorded())
    assert {path.name.split("-")[0] for path in (tmp_path / "models").iterdir()} == {"sst2"}
    (reason,) = {reason for reason in table.reasons if reason.startswith("models of mnli")}
    assert reason == "models of mnli are left out: only those of sst2 are asked for (--tasks)"
    (grid,) = table.grids
    cells = {column.key: grid.cells["q", column.key] for column in grid.panel.columns}
    assert {key.split("-")[0] for key, cell in cells.items() if cell.measurement is not None} == {"sst2"}


def test_a_figure_shows_the_fullest_panel(settings, tmp_path):
    (table,) = write_reproduction(["penalty-forms"], tmp_path, replace(settings, tasks=("mnli",)), Recorded())
    squad, mnli = table.grids
    assert (squad.filled, mnli.filled) == (0, len(mnli.cells))
    with (tmp_path / "figures" / "penalty-forms.csv").open(encoding="utf-8") as file:
        drawn = {(one["row"], one["column"]): float(one["mean"]) for one in csv.DictReader(file)}
    measured = mnli.cells["linear", "nll"].measurement
    assert measured is not None
    assert drawn["Linear", "NLL ↓"] == measured.mean
    assert ": On MNLI, not in the paper" in (tmp_path / PAGE).read_text(encoding="utf-8")


def test_a_panel_without_a_number_and_a_question_that_was_not_run_are_left_out(settings, tmp_path):
    (table,) = write_reproduction(["penalty-forms"], tmp_path, replace(settings, tasks=("squad2",)), Recorded())
    assert [grid.blank for grid in table.grids] == [False, True]
    for name in (PAGE, "tables/penalty-forms.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "The three forms yield similar performance" in text
        assert "On MNLI, not in the paper" not in text
        assert "We ask" not in text
    cells = (tmp_path / "tables" / "penalty-forms.csv").read_text("utf-8").splitlines()
    assert len(cells) == 1 + 32  # the files for programs have every cell


def test_an_unknown_task_is_refused(settings):
    with pytest.raises(ConfigurationError, match=r"task='sst3' is not one of: .*Did you mean 'sst2'"):
        replace(settings, tasks=("sst3",))


def test_tables_made_on_workers_are_those_made_here(settings, whole, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed, so reproducing on a cluster is NOT tested")
    from uatlite.scoring.on_ray import Cluster, connected

    display, computed, trained = Recorded(), [], []

    class Counted(Cluster):
        def run(self, tasks, advance):
            super().run(tasks, computed.append)
            trained.extend(list((tmp_path / "models").glob("*/uatlite-training.json")))  # before this process trains

    monkeypatch.setenv("RAY_worker_niceness", "0")
    others = shutil.ignore_patterns("sst2-*")  # one model is enough to train there
    shutil.copytree(whole.directory / "models", tmp_path / "models", ignore=others)
    names = ["characters", "rescaling"]  # the second has embeddings that are scaled here
    cluster = Counted(workers=1)
    with connected(cluster):
        write_reproduction(names, tmp_path, settings, display, cluster)
    assert "sst2" in {path.parent.name.split("-")[0] for path in trained}
    assert sum(computed) > 0
    assert display.work == pytest.approx(display.total)
    for name in names:
        ours, theirs = (
            json.loads((directory / "tables" / f"{name}.json").read_text(encoding="utf-8"))
            for directory in (whole.directory, tmp_path)
        )
        assert ours["cells"] == theirs["cells"]
