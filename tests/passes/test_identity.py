"""Without dropout and without a gate the engine gives the plain model's logits."""

import pytest
import torch

from uatlite import DropoutRates, UATConfig, dropout_sites, sample

DETERMINISTIC = UATConfig(samples=2, gate="none", rates=DropoutRates.none())


def assert_plain(model, batch, close=1e-5):
    """The result of passes without dropout, whose logits are the model's own."""
    out = sample(model, batch, DETERMINISTIC)
    with torch.no_grad():
        expected = model(**batch).logits.float()
    torch.testing.assert_close(out.logits, expected.expand(2, -1, -1), rtol=0, atol=close)
    return out


def test_no_rates_and_no_gate_is_the_plain_model(architecture, model, encoded):
    out = assert_plain(model, encoded)
    assert out.fired == ()
    assert torch.count_nonzero(out.token_uncertainty) == 0
    assert (out.logits[0].amax(0) - out.logits[0].amin(0)).min() > 0.05  # the texts are told apart


def test_multiple_choice(chooser, choices):
    out = assert_plain(chooser, choices)
    assert out.logits.shape == (2, 2, 4)
    assert out.token_uncertainty.shape == choices["input_ids"].shape


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("albert", {"num_hidden_layers": 4, "num_hidden_groups": 2}),
        ("bert", {"problem_type": "single_label_classification"}),
        ("deberta-v2", {"relative_attention": False, "pos_att_type": None}),
        ("deberta-v2", {"pos_att_type": "c2p"}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("gpt2", {"scale_attn_weights": False}),
        ("llama", {"num_key_value_heads": 1}),
        ("llama", {"num_key_value_heads": 4}),
        ("modernbert", {"classifier_pooling": "mean"}),
        ("modernbert", {"attention_bias": True, "mlp_bias": True}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}),
        ("roberta", {"type_vocab_size": 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_variants_of_a_family(tiny, encoded, name, changes):
    assert_plain(tiny(name, **changes), encoded)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["bert", "modernbert", "llama"])
def test_whatever_attention_implementation_the_model_uses(tiny, texts, name, implementation):
    model = tiny(name, attn_implementation=implementation)
    assert_plain(model, texts((9, 5, 7)))
    assert model.config._attn_implementation == implementation


def test_token_type_ids_and_position_ids_reach_the_model(shared, texts):
    model, batch = shared("bert"), texts((9, 5, 7))
    batch["token_type_ids"] = (torch.arange(9) > 3).long().repeat(3, 1)
    batch["position_ids"] = torch.arange(9).flip(0).repeat(3, 1)
    expected = assert_plain(model, batch).logits
    for name in ("token_type_ids", "position_ids"):
        without = {key: value for key, value in batch.items() if key != name}
        assert (assert_plain(model, without).logits - expected).abs().max() > 1e-2


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("architecture", ["bert", "deberta-v2", "llama"], indirect=True)
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_other_precisions(architecture, tiny, texts, dtype):
    model, batch = tiny(architecture).to(dtype), texts((9, 5, 7))
    with torch.backends.mkldnn.flags(enabled=False):  # whose bfloat16 kernels some virtual machines cannot run
        assert_plain(model, batch, 1e-5 if dtype is torch.float64 else 0.15)
        stochastic = sample(model, batch, UATConfig(samples=3))
    assert stochastic.logits.dtype == torch.float32
    assert torch.isfinite(stochastic.logits).all()
    full = sample(tiny(architecture), batch, UATConfig(samples=3))
    torch.testing.assert_close(stochastic.token_uncertainty, full.token_uncertainty, rtol=0.02, atol=1e-4)


def test_a_compiled_model_is_unwrapped(shared, texts):
    """`torch.compile` only wraps: nothing is compiled until the wrapper is called, and the engine calls the model."""
    batch = texts((9, 5, 7))
    compiled = torch.compile(shared("bert"))
    assert torch.equal(sample(compiled, batch).logits, sample(shared("bert"), batch).logits)
    assert dropout_sites(compiled) == dropout_sites(shared("bert"))


def test_no_texts_give_no_results(shared, texts):
    batch = {name: value[:0] for name, value in texts((9, 5)).items()}
    out = sample(shared("bert"), batch, UATConfig(samples=4, estimate="layerwise"))
    assert out.logits.shape == (4, 0, 3)
    assert out.token_uncertainty.shape == (0, 9)
    assert out.layer_uncertainty.shape == (2, 0, 9)


@pytest.mark.parametrize("config", [DETERMINISTIC, UATConfig(samples=3)], ids=["plain", "stochastic"])
def test_a_model_in_train_mode_gives_the_same(architecture, tiny, texts, config):
    """Its own dropout plays no part: every mask is the engine's."""
    model, batch = tiny(architecture, rate=0.2), texts((9, 5))
    expected = sample(model, batch, config).logits
    assert torch.equal(sample(model.train(), batch, config).logits, expected)
