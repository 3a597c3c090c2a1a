"""Training of methods: resumed to the bit, nothing trained twice, and what cannot be is refused."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from uatlite.errors import ConfigurationError
from uatlite.lab.train.fine_tune import fine_tune, steps
from uatlite.lab.train.methods import (
    METHOD_TRAININGS,
    SnapshotTraining,
    SngpTraining,
    SwagTraining,
    VariationalTraining,
    parse_training,
)
from uatlite.lab.train.recipe import CHECKPOINTS, PLAIN, RECORD
from uatlite.model.load import load_checkpoint
from uatlite.model.weights import FILE, flat_parameters

ENSEMBLE, SWAG, SNAPSHOT = map(
    parse_training, ("ensemble:members=3", "swag:rank=2,collections=3", "snapshot:members=3")
)


def tensors(directory):
    return load_file(directory / "model.safetensors") | load_file(directory / FILE)


RESUMED = {
    "base": ("train", PLAIN),
    "by length": ("train", PLAIN),
    "entities": ("tagged", PLAIN),
    "labels": ("labelled", PLAIN),
    "swag": ("train", SWAG),
    "snapshot": ("train", SNAPSHOT),
    "sngp": ("train", SngpTraining(features=32)),
    "vi-last-layer": ("train", VariationalTraining()),
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_resumed_run_ends_with_the_weights_of_a_whole_one(case, job, tmp_path, request, stop_after, same_weights):
    rows, training = RESUMED[case]
    recipe = replace(job.recipe, group_by_length=case == "by length")
    job = replace(job, train=request.getfixturevalue(rows), recipe=recipe, checkpoint_steps=4)
    fine_tune(replace(job, checkpoint_steps=None), tmp_path / "whole", training)
    broken = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        fine_tune(job, broken, training, advance=stop_after(9))
    assert not (broken / RECORD).exists()
    assert not (broken / "model.safetensors").exists()
    seen = []
    fine_tune(job, broken, training, resume=True, advance=seen.append)
    assert seen == [9, 1, 1, 1]
    assert same_weights(broken, tmp_path / "whole")


def test_finished_members_are_not_trained_again_and_the_base_is_the_first(job, tmp_path, stop_after, same_weights):
    fine_tune(job, tmp_path / "base")
    fine_tune(job, tmp_path / "whole", ENSEMBLE)
    with pytest.raises(KeyboardInterrupt):
        fine_tune(job, tmp_path / "broken", ENSEMBLE, advance=stop_after(27))  # in the third member
    seen = []
    record = fine_tune(job, tmp_path / "broken", ENSEMBLE, resume=True, advance=seen.append)
    assert seen == [12, 12, *[1] * 12]
    assert record.steps == steps(ENSEMBLE, job) == 36
    assert not (tmp_path / "broken" / CHECKPOINTS).exists()
    fine_tune(job, tmp_path / "based", ENSEMBLE, bases=[tmp_path / "base"])
    assert same_weights(tmp_path / "whole", tmp_path / "broken")
    assert same_weights(tmp_path / "whole", tmp_path / "based")
    first, base = (load_checkpoint(tmp_path / name, device="cpu").model for name in ("whole", "base"))
    assert torch.equal(flat_parameters(first), flat_parameters(base))
    again = []
    assert fine_tune(job, tmp_path / "whole", ENSEMBLE, resume=True, advance=again.append).steps == 36
    assert again == [36]


def test_an_ensemble_of_given_fine_tunings_trains_only_the_others(job, tmp_path):
    homes = [tmp_path / f"seed-{seed}" for seed in (0, 5, 1000)]
    for seed, home in zip((0, 5, 1000), homes, strict=True):
        fine_tune(replace(job, seed=seed), home)
    seen = []
    record = fine_tune(job, tmp_path / "given", ENSEMBLE, bases=homes, advance=seen.append)
    assert not seen
    assert steps(ENSEMBLE, job, 3) == 0
    assert record.steps == 36
    assert record.run.method == "ensemble:members=3 of seeds 0, 5, 1000"
    members = [flat_parameters(load_checkpoint(home, device="cpu").model) for home in homes]
    assert torch.equal(tensors(tmp_path / "given")["members"], torch.stack(members[1:]))
    fine_tune(job, tmp_path / "two", ENSEMBLE, bases=homes[:2], advance=seen.append)
    assert sum(seen) == steps(ENSEMBLE, job, 2) == 12  # the third one, of seed 2000
    with pytest.raises(ConfigurationError, match="4 fine-tunings are given with --base, and ensemble:members=3"):
        fine_tune(job, tmp_path / "c", ENSEMBLE, bases=[*homes, homes[0]])
    with pytest.raises(ConfigurationError, match="has the seed 5 of another"):
        fine_tune(job, tmp_path / "d", ENSEMBLE, bases=[homes[0], homes[1], homes[1]])


def test_laplace_takes_the_base_or_trains_it(job, tmp_path, same_weights):
    pytest.importorskip("laplace")
    fine_tune(job, tmp_path / "base")
    seen = []
    laplace = METHOD_TRAININGS["laplace"]
    fine_tune(job, tmp_path / "given", laplace, bases=[tmp_path / "base"], advance=seen.append)
    assert not seen
    assert steps(laplace, job, 1) == 0
    fine_tune(job, tmp_path / "own", laplace)
    assert same_weights(tmp_path / "given", tmp_path / "own")


def test_a_base_of_another_run_or_for_another_method_is_refused(job, tmp_path):
    fine_tune(job, tmp_path / "base")
    with pytest.raises(ConfigurationError, match="does not hold the plain fine-tuning"):
        fine_tune(replace(job, seed=1), tmp_path / "a", ENSEMBLE, bases=[tmp_path / "base"])
    with pytest.raises(ConfigurationError, match="swag is trained from the backbone and cannot begin with"):
        fine_tune(job, tmp_path / "b", SWAG, bases=[tmp_path / "base"])
    with pytest.raises(ConfigurationError, match="a run of 6 steps leaves 1 to collect"):
        fine_tune(replace(job, recipe=replace(job.recipe, epochs=1)), tmp_path / "c", replace(SWAG, start=0.9))


def test_swag_comes_down_to_its_rate_and_stays_there():
    training = SwagTraining(start=0.5, rate=0.25)
    rates = [training.schedule(step, 10, 100) for step in range(101)]
    assert rates[5] == 0.5
    assert rates[10] == 1.0
    assert rates[30] == pytest.approx(0.625)
    assert set(rates[50:]) == {0.25}
    assert training.steps(100) == set(range(100, 50, -5)) | {52, 58, 62, 68, 72, 78, 82, 88, 92, 98}


def test_snapshots_are_taken_where_the_learning_rate_has_come_down():
    training = SnapshotTraining(members=4)
    ends = training.ends(100)
    assert ends == [25, 50, 75, 100]
    for end in ends[:-1]:
        assert training.schedule(end - 1, 5, 100) < 0.02
        assert training.schedule(end, 5, 100) == 1.0
    assert training.schedule(100, 5, 100) == pytest.approx(0.0, abs=1e-12)
    assert training.schedule(0, 5, 100) == 0.0
    assert all(0 <= training.schedule(step, 60, 100) <= 1 for step in range(101))  # a warm-up of more than a cycle


@pytest.mark.parametrize(
    ("spelt", "message"),
    [
        ("swg", "There is no method 'swg'.*Did you mean 'swag'"),
        ("uat:gate=k", "uat has no training of its own to set; drop gate"),
        ("swag:samples=3", "the training of swag has no setting 'samples'; it has rank"),
        ("swag:rank=x", "rank='x' is not a whole number"),
        ("swag:rank=30", "swag:rank=30 is not allowed: 2 <= rank <= collections"),
        ("ensemble:members=1", "ensemble:members=1 is not allowed"),
        ("snapshot:members=1", "snapshot:members=1 is not allowed"),
        ("sngp:bound=0", r"sngp: bound=0\.0 is not above 0"),
        ("sngp:features=-3", "sngp: features=-3 is not above 0"),
        ("vi-last-layer:prior_scale=0", r"vi-last-layer: prior_scale=0\.0 is not above 0"),
    ],
)
def test_misspelt_trainings_are_explained(spelt, message):
    with pytest.raises(ConfigurationError, match=message):
        parse_training(spelt)


def test_methods_without_a_training_are_trained_plainly():
    assert parse_training("mc") == PLAIN
    assert {key: training.key for key, training in METHOD_TRAININGS.items()} == {key: key for key in METHOD_TRAININGS}
    assert parse_training("swag:rank=5").name == "swag:rank=5"


def test_a_run_is_known_by_every_setting_so_that_a_changed_default_is_another_run():
    assert parse_training("base").identity == "base"
    assert parse_training("sngp").name == "sngp"
    assert parse_training("sngp").identity == (
        "sngp:features=1024,length_scale=1.0,prior_variance=30.0,bound=0.95,encoder=false,head_rate=0.005"
    )
