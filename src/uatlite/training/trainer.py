"""The Hugging Face Trainer with what a recipe and a method change about it."""

from typing import Any

from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel, Trainer, TrainerCallback

from uatlite.training.fitting import Fitting
from uatlite.training.rows import LengthGrouped, TrainingRows


class FittingTrainer(Trainer):  # type: ignore[misc]
    """Adds the penalty, the parameter groups and the learning rates of a fitting.

    It also draws batches of like length where the recipe asks for them: the Trainer cannot read lengths off tokens.
    """

    lr_scheduler: Any

    def __init__(self, fitting: Fitting, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._fitting = fitting

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        rows: TrainingRows = self.train_dataset
        return LengthGrouped(rows.tokens.lengths, self.args.train_batch_size, self.args.seed)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **options: Any) -> Any:
        result = super().compute_loss(model, inputs, return_outputs=return_outputs, **options)
        if not model.training:
            return result
        penalty = self._fitting.penalty(self._plain(model), len(self.train_dataset))
        if penalty is None:
            return result
        return (result[0] + penalty, result[1]) if return_outputs else result + penalty

    def create_optimizer(self, model: Any = None) -> Any:
        if self.optimizer is None:
            super().create_optimizer(model)
            _regroup(self.optimizer, self._fitting.groups(self._plain(model or self.model)))
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        warmup = self.args.get_warmup_steps(num_training_steps)
        if self.lr_scheduler is None and self._fitting.schedule(0, warmup, num_training_steps) is not None:

            def share(step: int) -> float:
                rate = self._fitting.schedule(step, warmup, num_training_steps)
                assert rate is not None
                return rate

            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, share)
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)

    def _plain(self, model: Any) -> PreTrainedModel:
        return self.accelerator.unwrap_model(model)


class AfterStep(TrainerCallback):  # type: ignore[misc]
    """Calls a fitting's `after_step`."""

    def __init__(self, fitting: Fitting, model: PreTrainedModel) -> None:
        self._fitting, self._model = fitting, model

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 0:
            self._fitting.after_step(self._model, 0, state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._fitting.after_step(self._model, state.global_step, state.max_steps)


def _regroup(optimizer: Any, groups: list[dict[str, Any]]) -> None:
    """Take the parameters of some groups out of the groups that they are in, and add them with their own settings."""
    for group in groups:
        moved = {id(parameter) for parameter in group["params"]}
        for other in optimizer.param_groups:
            other["params"] = [parameter for parameter in other["params"] if id(parameter) not in moved]
        optimizer.add_param_group(group)
