"""How a classifier is fine-tuned: plain values. The defaults are the paper's."""

from dataclasses import asdict, dataclass
from typing import Any

from uatlite.errors import ConfigurationError


def _check(name: str, value: object, allowed: bool, what: str) -> None:
    if not allowed:
        raise ConfigurationError(f"Recipe({name}={value!r}) is not allowed: {what}.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """AdamW with linear warm-up and linear decay to 0 over the whole run.

    `patience` stops after that many epochs in a row without a better NLL on the validation rows, and keeps the
    weights of the best epoch; None trains all epochs and keeps the last. Sequences are padded to the longest of their
    batch; `group_by_length` draws batches of like length, which saves padding and makes batches a little less random.
    """

    learning_rate: float = 2e-5
    warmup_steps: int = 500
    batch_size: int = 16
    epochs: int = 3
    weight_decay: float = 0.01
    clip: float = 1.0
    patience: int | None = None
    max_length: int | None = None
    group_by_length: bool = False

    def __post_init__(self) -> None:
        _check("learning_rate", self.learning_rate, self.learning_rate > 0, "above 0")
        _check("warmup_steps", self.warmup_steps, self.warmup_steps >= 0, "0 or more")
        _check("batch_size", self.batch_size, self.batch_size >= 1, "1 or more")
        _check("epochs", self.epochs, self.epochs >= 1, "1 or more")
        _check("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or more")
        _check("clip", self.clip, self.clip > 0, "above 0; a large number clips nothing")
        _check("patience", self.patience, self.patience is None or self.patience >= 1, "1 or more, or None")
        _check("max_length", self.max_length, self.max_length is None or self.max_length >= 8, "8 or more, or None")

    def steps(self, rows: int) -> int:
        """Optimizer steps of the whole run over so many rows, on one device."""
        return self.epochs * -(-rows // self.batch_size)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


# 2e-5 and 500 warm-up steps are for tens of thousands of rows; over the demo's few thousand they would leave the
# model where it began. Short sequences, batches of like length and one epoch are what two cores do in two minutes.
DEMO = Recipe(learning_rate=2e-4, warmup_steps=10, batch_size=32, epochs=1, max_length=64, group_by_length=True)

# A few thousand rows on a small backbone, for a first look at a table.
FEW_ROWS = Recipe(learning_rate=3e-4, warmup_steps=20, batch_size=32, epochs=3, max_length=128, group_by_length=True)

RECIPES: dict[str, Recipe] = {"paper": Recipe(), "demo": DEMO, "few-rows": FEW_ROWS}
