"""Fine-tuning: a backbone and labelled rows to a classifier, by a recipe whose defaults are the paper's."""

from uatlite.training.recipe import DEMO, RECIPES, Recipe

__all__ = ["DEMO", "RECIPES", "Recipe"]
