"""What a reproduction runs with. The defaults are the paper's: BERT-base from the hub, its recipe, five seeds."""

from dataclasses import dataclass, replace
from pathlib import Path

from uatlite.errors import ConfigurationError
from uatlite.training import RECIPES, Recipe

BACKBONE = "bert-base-uncased"
TRAINING_ROWS = 10
"""With a limit, training sees at most so many times as many rows as are evaluated."""
RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much of everything."""

    backbone: str | None = None
    """of every table; the paper's without it"""
    others: tuple[str, ...] = ()
    """stand in, with the backbone, for those that `backbones` and `scaling` compare"""
    data_dir: Path | None = None
    seeds: int = 5
    limit: int | None = None
    """rows drawn of each set that is evaluated"""
    train_limit: int | None = None
    """rows drawn to train on"""
    recipe: Recipe = RECIPES["paper"]
    resamples: int = RESAMPLES

    def __post_init__(self) -> None:
        for name in ("seeds", "limit", "train_limit", "resamples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name}={value} is not 1 or more.")

    @classmethod
    def of(
        cls,
        *,
        backbone: str | None = None,
        others: tuple[str, ...] = (),
        data_dir: Path | None = None,
        seeds: int = 5,
        limit: int | None = None,
        train_limit: int | None = None,
        recipe: str | None = None,
        resamples: int = RESAMPLES,
    ) -> "Settings":
        """With a limit, the training rows are limited too and the recipe is the one for few rows, unless given."""
        name = recipe or ("paper" if limit is None else "few-rows")
        if name not in RECIPES:
            raise ConfigurationError(f"recipe={name!r} is not one of: {', '.join(RECIPES)}.")
        return cls(
            backbone=backbone,
            others=others,
            data_dir=data_dir,
            seeds=seeds,
            limit=limit,
            train_limit=train_limit or (None if limit is None else TRAINING_ROWS * limit),
            recipe=RECIPES[name],
            resamples=resamples,
        )

    def anywhere(self) -> "Settings":
        """The same for a process with another working directory."""

        def absolute(backbone: str) -> str:
            return str(Path(backbone).absolute()) if Path(backbone).is_dir() else backbone

        return replace(
            self,
            backbone=None if self.backbone is None else absolute(self.backbone),
            others=tuple(map(absolute, self.others)),
            data_dir=None if self.data_dir is None else self.data_dir.absolute(),
        )

    @property
    def standing_in(self) -> tuple[str, ...]:
        """The backbones that were given, in place of the paper's; none where its own are to be run."""
        return () if self.backbone is None else (self.backbone, *self.others)

    def chosen(self, backbone: str | None) -> str:
        """The backbone that a cell names, or that of every table."""
        return backbone or self.backbone or BACKBONE

    def describe(self) -> list[str]:
        """What a reader of the numbers must know."""
        rows = "all rows of each set" if self.limit is None else f"at most {self.limit:,} rows of each set"
        trained = "all training rows" if self.train_limit is None else f"at most {self.train_limit:,} training rows"
        backbone = self.chosen(None)
        recipe = ", ".join(f"{name} {value}" for name, value in self.recipe.to_dict().items() if value is not None)
        return [
            f"Backbone {Path(backbone).name if Path(backbone).is_dir() else backbone}; {rows}, {trained}; "
            f"{self.seeds} seeds, each a fine-tuning and masks of its own, where the paper's table is not of one seed.",
            f"Recipe: {recipe}.",
            f"Intervals are 95 %, from {self.resamples:,} resamples of the rows of a set; two methods on the same "
            "rows are compared on the same resamples. They say what other rows would change, not what other "
            "fine-tunings would.",
        ]
