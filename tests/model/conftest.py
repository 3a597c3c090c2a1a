"""Rows on a sphere, as a normalised layer gives them, at known angles from a cluster."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

WIDTH = 16


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def turned() -> Callable[[float, int], Tensor]:
    """`turned(angle, rows)`: rows (rows, 16) scattered about a direction that is `angle` from the first axis.

    Both axes have mean 0 and variance 1, so the head's normalisation leaves the angle as it is.
    """
    first = torch.tensor([1.0, -1.0] * (WIDTH // 2))
    second = torch.tensor([1.0, 1.0, -1.0, -1.0] * (WIDTH // 4))

    def rows(angle: float, count: int) -> Tensor:
        return math.cos(angle) * first + math.sin(angle) * second + 0.05 * torch.randn(count, WIDTH)

    return rows
