"""The cascade and adaptive methods: each text gets what its stage would give it alone."""

import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError
from uatlite.methods.cascade import SECONDS, Cascade
from uatlite.methods.registry import METHODS, method_from_dict, parse_method
from uatlite.predictive import margin_variance, widened

Encoded = dict[str, Tensor]
LENGTHS = (9, 5, 7, 12, 4, 8, 6, 10)


@pytest.fixture
def batch(texts: Callable[..., Encoded]) -> Encoded:
    return texts(LENGTHS)


@pytest.fixture
def bert(shared: Callable[..., PreTrainedModel]) -> PreTrainedModel:
    return shared("bert")


def first_confidence(bert: PreTrainedModel, batch: Encoded, temperature: float = 1.0) -> Tensor:
    with torch.no_grad():
        return torch.softmax(bert(**batch).logits / temperature, dim=1).amax(dim=1)


@pytest.mark.parametrize("then", SECONDS)
def test_each_text_has_the_logits_of_its_stage(bert: PreTrainedModel, batch: Encoded, then: str) -> None:
    confidence = first_confidence(bert, batch, 1.3)
    threshold = float(confidence.sort().values[3:5].mean())  # between two texts, so that rounding decides nothing
    cascade = parse_method(f"cascade:then={then},threshold={threshold},first_temperature=1.3,then_temperature=0.7")
    found = cascade.run(bert, batch)
    plain, second = METHODS["base"].run(bert, batch).logits[0], METHODS[then].run(bert, batch)
    goes_on = confidence < threshold
    assert 0 < goes_on.sum() < len(LENGTHS)
    for row in range(len(LENGTHS)):
        if goes_on[row]:
            count = len(second.logits) if second.counts is None else int(second.counts[row])
            expected, spent = second.logits[:count, row] / 0.7, 1 + count
        else:
            expected, spent = plain[None, row] / 1.3, 1
        assert found.counts is not None
        assert found.spent is not None
        assert found.counts[row] == len(expected)
        assert found.spent[row] == spent
        torch.testing.assert_close(found.logits[: len(expected), row], expected, rtol=1e-5, atol=2e-5)
        assert found.logits[len(expected) :, row].isnan().all()
    if second.margin_variance is not None:
        assert found.margin_variance is not None
        torch.testing.assert_close(found.margin_variance, torch.where(goes_on, second.margin_variance, 0.0))


@pytest.mark.parametrize("then", ["fast", "analytic", "adaptive"])
def test_the_second_stage_widens_by_its_variance(bert: PreTrainedModel, batch: Encoded, then: str) -> None:
    plain, wide = (parse_method(f"cascade:then={then},threshold=1.0,widening={a}").run(bert, batch) for a in (0.0, 2.0))
    if plain.margin_variance is None:
        assert plain.counts is not None
        variance = margin_variance(plain.logits.double().numpy(), plain.counts.numpy())
    else:
        variance = plain.margin_variance.numpy()
    scales = torch.tensor(widened(variance, 2.0), dtype=torch.float32)
    torch.testing.assert_close(wide.logits, plain.logits * scales[:, None], equal_nan=True, rtol=1e-5, atol=1e-6)
    assert scales.max() < 1


def test_nothing_and_everything_goes_on(bert: PreTrainedModel, batch: Encoded) -> None:
    nobody = parse_method("cascade:threshold=0.0").run(bert, batch)
    assert torch.equal(nobody.logits[0], METHODS["base"].run(bert, batch).logits[0])
    assert nobody.spent is not None
    assert nobody.spent.tolist() == [1] * len(LENGTHS)
    everybody = parse_method("cascade:threshold=1.0").run(bert, batch)
    torch.testing.assert_close(everybody.logits, METHODS["fast"].run(bert, batch).logits)
    assert everybody.spent is not None
    assert everybody.spent.tolist() == [1 + METHODS["fast"].passes] * len(LENGTHS)


def test_one_answer_whoever_is_escalated_beside_it(bert: PreTrainedModel, batch: Encoded) -> None:
    cascade = parse_method("cascade:then=adaptive,threshold=0.95,confidence=0.6")
    together = cascade.run(bert, batch)
    for row in range(len(LENGTHS)):
        alone = cascade.run(bert, {name: value[row : row + 1] for name, value in batch.items()})
        assert alone.spent is not None
        assert together.spent is not None
        assert alone.spent[0] == together.spent[row]
        torch.testing.assert_close(alone.logits[:, 0], together.logits[:, row], equal_nan=True, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "spelt",
    [
        "cascade:then=analytic,threshold=0.93",
        "cascade:threshold=0.8,first_temperature=1.5,then_temperature=1.25,widening=0.5,samples=4,gate=k",
        "cascade:then=adaptive,threshold=0.7,confidence=0.95,block=3,samples=12",
        "adaptive:confidence=0.95,boundary=1.5,temperature=2.0,spread=0.3,weight=4.0,masks=independent",
    ],
)
def test_spelling_and_json_lead_back(spelt: str) -> None:
    method = parse_method(spelt)
    assert method.name == spelt
    assert parse_method(method.name) == method
    assert method_from_dict(json.loads(json.dumps(method.to_dict()))) == method
    assert method.seeded(3) == method_from_dict(method.to_dict()).seeded(3)
    assert hash(method) == hash(parse_method(spelt))


@pytest.mark.parametrize(
    ("spelt", "message"),
    [
        ("cascade:then=base", "then='base'"),
        ("cascade:then=cascade", "then='cascade'"),
        ("cascade:threshold=1.2", "not in \\[0, 1\\]"),
        ("cascade:threshold=high", "threshold='high' is not a number"),
        ("cascade:widening=-1", "widening"),
        ("cascade:samplez=3", "did you mean|samples"),
        ("adaptive:block=1", "block=1"),
        ("adaptive:block=two", "not a whole number"),
    ],
)
def test_misspellings_are_explained(spelt: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_method(spelt)


def test_a_cascade_says_what_it_may_cost() -> None:
    assert Cascade().passes == 1 + METHODS["fast"].passes
    assert not parse_method("cascade:then=analytic").stochastic
    assert parse_method("cascade:then=analytic").knows_variance
