"""How far a fine-tuning is, told to whoever draws it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import TrainerCallback


@dataclass(frozen=True)
class Step:
    """The run after `done` of `total` optimizer steps; `loss` is the mean over the steps since the last report."""

    done: int
    total: int
    loss: float | None = None
    validation_nll: float | None = None


Report = Callable[[Step], None]


def advancing(advance: Callable[[float], None]) -> Report:
    """A report that tells a progress bar how many steps were taken since it was last told."""
    done = 0

    def report(step: Step) -> None:
        nonlocal done
        advance(step.done - done)
        done = step.done

    return report


class Reporter(TrainerCallback):  # type: ignore[misc]
    """Calls `report` after every step, and with the validation NLL after every evaluation."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._loss: float | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._report(Step(state.global_step, state.max_steps, self._loss))

    def on_log(self, args: Any, state: Any, control: Any, *, logs: dict[str, float], **_: Any) -> None:
        self._loss = logs.get("loss", self._loss)

    def on_evaluate(self, args: Any, state: Any, control: Any, *, metrics: dict[str, float], **_: Any) -> None:
        self._report(Step(state.global_step, state.max_steps, self._loss, metrics.get("eval_loss")))
