"""The scalar whose variance is attributed: a contrast of logits, y = Σ_c w_c·logit_c, fixed for each text.

The weights w (batch, classes) come from the logits of the pass without dropout, so that every estimator and every
stochastic pass looks at the same y, also where a pass would predict another class.

    predicted    logit of the predicted class minus the mean of the rest (default)
    margin       logit of the predicted class minus that of the runner-up
    an integer   logit of that class minus the mean of the rest

With two classes all of them are the same up to sign.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from uatlite.errors import ConfigurationError, check_choice


def against_rest(chosen: Tensor, classes: int) -> Tensor:
    """w = 1 at the chosen class (batch,), -1/(classes - 1) elsewhere: (batch, classes)."""
    weights = torch.full((len(chosen), classes), -1.0 / (classes - 1), device=chosen.device)
    return weights.scatter_(1, chosen[:, None], 1.0)


def _predicted(logits: Tensor) -> Tensor:
    return against_rest(logits.argmax(dim=-1), logits.shape[-1])


def _margin(logits: Tensor) -> Tensor:
    best = logits.topk(2, dim=-1).indices
    signs = torch.tensor([1.0, -1.0], device=logits.device).expand(len(logits), 2)
    return torch.zeros_like(logits).scatter_(1, best, signs)


# name -> the weights (batch, classes) from logits without dropout (batch, classes)
OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {"predicted": _predicted, "margin": _margin}


def output_weights(output: str | int, logits: Tensor) -> Tensor:
    """The weights w (batch, classes) of y for logits without dropout (batch, classes)."""
    classes = logits.shape[-1]
    if isinstance(output, int):
        if isinstance(output, bool) or not 0 <= output < classes:
            raise ConfigurationError(f"output={output!r} is no class of this model; it has classes 0 to {classes - 1}.")
        return against_rest(torch.full((len(logits),), output, device=logits.device), classes)
    check_choice("output", output, OUTPUTS)
    return OUTPUTS[output](logits)
