"""The recipe: the paper's numbers, and what is refused."""

import pytest

from uatlite.errors import ConfigurationError
from uatlite.lab.train.recipe import CHANGES, DEMO, RECIPES, Recipe, recipe_for
from uatlite.text.schema import catalogue


def test_the_defaults_are_the_papers() -> None:
    assert RECIPES["paper"] == Recipe(
        learning_rate=2e-5, warmup_steps=500, batch_size=16, epochs=3, weight_decay=0.01, clip=1.0
    )


def test_steps_count_the_last_short_batch() -> None:
    assert Recipe(batch_size=16, epochs=3).steps(33) == 9
    assert DEMO.steps(DEMO.batch_size) == DEMO.epochs


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0},
        {"warmup_steps": -1},
        {"batch_size": 0},
        {"epochs": 0},
        {"weight_decay": -0.1},
        {"clip": 0},
        {"patience": 0},
        {"max_length": 2},
    ],
)
def test_settings_outside_what_is_allowed_are_named(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=rf"Recipe\({name}=.*is not allowed"):
        Recipe(**wrong)  # type: ignore[arg-type]


def test_an_unknown_precision_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match="precision='fp16' is not one of: fp32, bf16"):
        Recipe(precision="fp16")


def test_a_task_changes_its_recipe_and_no_other() -> None:
    assert recipe_for("few-rows") == recipe_for("few-rows", "rotten-tomatoes") == RECIPES["few-rows"]
    assert recipe_for("few-rows", "sst2").epochs == 1 < RECIPES["few-rows"].epochs
    assert recipe_for("few-rows", "sst2").max_length == RECIPES["few-rows"].max_length
    assert recipe_for("paper", "sst2") == RECIPES["paper"]
    with pytest.raises(ConfigurationError, match="not one of: paper, demo, few-rows"):
        recipe_for("few")


def test_the_changes_are_for_tasks_that_there_are() -> None:
    assert {task for changes in CHANGES.values() for task in changes} <= set(catalogue())
