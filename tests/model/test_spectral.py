"""The bound on a linear map: exact, soft, and kept by a training that projects after every step."""

import pytest
import torch
from torch import nn

from uatlite.model.heads import bound_spectral_norm, spectral_norm


@pytest.mark.parametrize("shape", [(12, 12), (5, 20), (20, 5)])
def test_spectral_norm_is_the_largest_singular_value(shape: tuple[int, int]) -> None:
    weight = torch.randn(shape)
    torch.testing.assert_close(spectral_norm(weight), torch.linalg.svdvals(weight)[0])


def test_only_a_map_that_stretches_too_far_is_scaled() -> None:
    wide, narrow = torch.randn(8, 8), 0.01 * torch.randn(8, 8)
    before = wide.clone(), narrow.clone()
    bound_spectral_norm([wide, narrow], 0.95)
    assert float(spectral_norm(wide)) == pytest.approx(0.95)
    torch.testing.assert_close(wide / wide.norm(), before[0] / before[0].norm())
    assert torch.equal(narrow, before[1])


def test_the_lipschitz_bound_holds_after_a_training_that_pulls_against_it() -> None:
    layer = nn.Linear(10, 10)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.05)
    x = torch.randn(64, 10)
    for _ in range(30):
        optimizer.zero_grad()
        (layer(x) - 7 * x).square().mean().backward()
        optimizer.step()
        bound_spectral_norm([layer.weight], 0.9)
    assert float(torch.linalg.svdvals(layer.weight.detach())[0]) <= 0.9 + 1e-6
    a, b = torch.randn(500, 10), torch.randn(500, 10)
    stretched = (layer(a) - layer(b)).detach().norm(dim=1) / (a - b).norm(dim=1)
    assert float(stretched.max()) <= 0.9 + 1e-6
    assert float(stretched.max()) > 0.5  # and the training did go to the bound
