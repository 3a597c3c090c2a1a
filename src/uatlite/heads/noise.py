"""Standard normal numbers that depend on a seed and a number and on nothing else."""

import numpy as np
import torch
from torch import Tensor


def normal(seed: int, number: int, *shape: int) -> Tensor:
    """N(0, 1) in float32 from a counter-based generator (Philox) keyed by seed and number: one draw, one answer."""
    generator = np.random.Generator(np.random.Philox(key=[seed % 2**64, number]))
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))
