"""`total-variance` is the paper's V^(l): its definition, by nested sampling with plain PyTorch.

V^(l) = E over h^(l-1) [ Var over layer l's noise ( E over the noise above [y] given h^(l-1)) ]
"""

import pytest
import torch

from uatlite.attribution.layers import attribute
from uatlite.passes.config import DropoutRates, UATConfig

OUTER, MIDDLE, INNER = 400, 6, 6
CONFIG = UATConfig(gate="none", rates=DropoutRates.own())
ONE_TEXT = 4
"""Real tokens."""


def stochastic_parts(model):
    """The embedding block, each layer and the head, in training mode: PyTorch's own noise, drawn row by row."""
    model.train()

    def head(hidden):
        return model.classifier(model.dropout(model.bert.pooler(hidden)))

    return [model.bert.embeddings, *model.bert.encoder.layer, head]


@torch.no_grad()
def nested(model, ids, weights):
    """V^(l) of every part, and its standard error over the outer draws: each (parts,)."""
    parts, values = stochastic_parts(model), []
    for layer, stochastic in enumerate(parts):
        hidden = ids.expand(OUTER, -1)
        for before in parts[:layer]:
            hidden = before(hidden)
        hidden = stochastic(hidden.repeat_interleave(MIDDLE, dim=0)).repeat_interleave(INNER, dim=0)
        for above in parts[layer + 1 :]:
            hidden = above(hidden)
        y = (hidden.double() * weights).sum(dim=-1).view(OUTER, MIDDLE, INNER)
        # The spread of means over INNER draws has 1/INNER of these draws' own in it.
        values.append(y.mean(dim=2).var(dim=1) - y.var(dim=2).mean(dim=1) / INNER)
    draws = torch.stack(values)
    model.eval()
    return draws.mean(dim=1).float(), (draws.std(dim=1) / OUTER**0.5).float()


@pytest.fixture
def case(tiny, texts):
    model, batch = tiny("bert", rate=0.3), texts((ONE_TEXT,))
    logits = model(**batch).logits
    weights = torch.full_like(logits[0], -1 / (logits.shape[1] - 1))
    weights[logits[0].argmax()] = 1.0
    torch.manual_seed(0)
    return model, batch, *nested(model, batch["input_ids"], weights)


def test_total_variance_is_the_papers_v(case):
    model, batch, expected, error = case
    sampled = attribute(model, batch, CONFIG, estimator="total-variance", samples=6000, components=False)
    bound = 4 * (error**2 + sampled.contribution_errors[0] ** 2).sqrt()
    assert bool(((sampled.contributions[0] - expected).abs() < bound).all())
    assert bool((bound < 0.25 * expected.max()).all())  # an agreement that says something


def test_each_layer_alone_and_its_first_order_are_something_else(case):
    """`isolated` gives a layer the inputs that it has without noise, and `delta` is that to first order."""
    model, batch, expected, error = case
    shares = expected / expected.sum()
    alone = attribute(model, batch, CONFIG, estimator="isolated", samples=4000, components=False)
    first = attribute(model, batch, CONFIG, estimator="delta")
    for other in (alone, first):
        assert float(other.shares[0, 0]) > 2 * float(shares[0] + 4 * error[0] / expected.sum())  # of the embeddings
