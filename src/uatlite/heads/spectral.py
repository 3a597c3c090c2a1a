"""Spectral normalisation: a bound on how much a linear map stretches distances.

The weights themselves are scaled after a step of the optimizer (projected gradient descent, Gouk et al., 2021), not
behind a parametrisation, so that a trained model is a plain one. The bound is soft as in Liu et al. (2020): a map
that stretches by less than it is left alone.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


def spectral_norm(weight: Tensor) -> Tensor:
    """The largest singular value of a matrix (out, in): sup ‖Wx − Wy‖ / ‖x − y‖.

    The root of the largest eigenvalue of the smaller of WWᵀ and WᵀW. Exact, where power iteration tends to it from
    below, and without state, so that a resumed training takes the same steps.
    """
    gram = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    largest: Tensor = torch.linalg.eigvalsh(gram)[-1]
    return largest.clamp_min(0).sqrt()


@torch.no_grad()
def bound_spectral_norm(weights: Iterable[Tensor], bound: float) -> None:
    """Scale each matrix, in place, to a spectral norm of at most `bound`: W ← W·min(1, bound/σ(W))."""
    for weight in weights:
        norm = float(spectral_norm(weight.float()))
        if norm > bound:
            weight.mul_(bound / norm)
