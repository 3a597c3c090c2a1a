"""From a checkpoint and a task to scores: the store of predictions, the runner, the evaluation of what is stored."""
