"""Settings: what is allowed, what the errors say, JSON and back."""

import json
from dataclasses import FrozenInstanceError, replace

import pytest

from uatlite import DropoutRates, Layers, UATConfig, sample
from uatlite.codec import dump, load
from uatlite.errors import ConfigurationError
from uatlite.model.intervention import HEAD, Site
from uatlite.passes import config as c


def test_the_defaults_are_the_papers():
    config = UATConfig()
    assert (config.samples, config.penalty, config.gate, config.form) == (10, 0.5, "q", "exp")
    assert (config.uncertainty, config.estimate, config.masks) == ("mean-std", "lagged", "independent")
    assert config.rates == DropoutRates(embedding=0.1, attention=0.2, feed_forward=0.3, classifier=None)
    assert (config.seed, config.per_input, config.layers) == (0, False, Layers("all", "all"))


def test_fast():
    fast = UATConfig.fast()
    assert (fast.estimate, fast.masks) == ("closed-form", "stratified")
    assert fast.samples < UATConfig().samples
    assert UATConfig.fast(samples=3, penalty=1.0) == replace(fast, samples=3, penalty=1.0)


@pytest.mark.parametrize(("settings", "name"), [(UATConfig(), "samples"), (DropoutRates(), "attention")])
def test_settings_are_frozen(settings, name):
    with pytest.raises(FrozenInstanceError):
        setattr(settings, name, 3)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("gate", "qv", "gate='qv' is not one of: none, q, k, qk, v, qkv. Did you mean 'q"),
        ("form", "exponential", "form='exponential' is not one of: exp, linear, reciprocal, additive."),
        ("form", "recipocal", "Did you mean 'reciprocal'?"),
        ("uncertainty", "mean_std", "Did you mean 'mean-std'?"),
        ("uncertainty", "rms-std+LN", "Did you mean 'rms-std+ln'?"),
        ("estimate", "layer-wise", "Did you mean 'layerwise'?"),
        ("masks", "stratifed", "Did you mean 'stratified'?"),
        ("gate", None, "gate=None is not one of"),
        ("samples", 0, "samples=0 is not a whole number of passes, 1 or more."),
        ("samples", -3, "samples=-3"),
        ("samples", 2.5, "samples=2.5"),
        ("samples", True, "samples=True"),
        ("samples", "10", "samples='10'"),
        ("seed", -1, "seed=-1 is not a whole number in [0, 2**64)."),
        ("seed", 2**64, "seed="),
        ("penalty", -0.1, "penalty=-0.1 is not a finite number >= 0."),
        ("penalty", float("nan"), "penalty=nan"),
        ("penalty", float("inf"), "penalty=inf"),
        ("rates", 0.1, "rates=0.1 is not a DropoutRates."),
        ("per_input", 1, "per_input=1 is not True or False."),
        ("layers", "9-11", "layers='9-11' is not a Layers, such as Layers.only('9-11')."),
    ],
)
def test_a_bad_value_is_named_with_the_allowed_ones(setting, value, message):
    with pytest.raises(ConfigurationError) as raised:
        UATConfig(**{setting: value})
    assert message in str(raised.value)


@pytest.mark.parametrize("rate", [-0.1, 1, 1.0, 1.5, float("nan"), "0.1", True, [0.1]])
@pytest.mark.parametrize("component", c.COMPONENTS)
def test_rates_lie_in_0_to_1(component, rate):
    with pytest.raises(ConfigurationError) as raised:
        DropoutRates(**{component: rate})
    assert f"DropoutRates({component}={rate!r}): a rate is a number in [0, 1), or None" in str(raised.value)


def test_rates():
    assert DropoutRates.uniform(0.2) == DropoutRates(0.2, 0.2, 0.2, 0.2)
    assert DropoutRates.none() == DropoutRates.uniform(0)
    assert DropoutRates.own() == DropoutRates(None, None, None, None)
    site = Site("dropout", "head", "classifier", HEAD, own_rate=0.15)
    assert DropoutRates(classifier=None).at(site) == 0.15
    assert DropoutRates(classifier=0.0).at(site) == 0.0
    assert DropoutRates.none().all_zero
    assert not DropoutRates.own().all_zero


@pytest.mark.parametrize(
    "spelt", ["0", "", "3-1", "top-0", "top", "1,2", "-2", "2&", "2&3-", "2&9-3", "1-1000", "every", None, 3]
)
def test_layers_are_numbers_from_1_or_those_with_the_largest_variance(spelt):
    with pytest.raises(ConfigurationError, match=r"rate_layers=.* names no layers: they are 'all', a range from 1"):
        Layers(rate_layers=spelt)


def test_layers_with_the_largest_variance_are_named():
    layers, variances = Layers("top-2", "top-3"), [0.3, 0.1, 0.4, 0.3]
    assert layers.learn
    assert layers.chosen(variances) == Layers("1&3", "1&3&4")
    assert Layers("2", "top-1").chosen(variances) == Layers("2", "3")
    with pytest.raises(ConfigurationError, match="gate_layers='top-5': this model has 4 layers"):
        Layers("top-5").chosen(variances)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (Layers("2-3"), "gate_layers='2-3': this bert has layers 1 to 2, and no layer 3"),
        (Layers(rate_layers="1&7"), "rate_layers='1&7': this bert has layers 1 to 2, and no layer 7"),
        (Layers.only("top-1"), "gate_layers='top-1': the layers with the largest variance are chosen on calibration"),
    ],
)
def test_layers_that_a_model_does_not_have_are_refused(shared, texts, layers, message):
    with pytest.raises(ConfigurationError, match=message):
        sample(shared("bert"), texts((5,)), UATConfig(samples=2, layers=layers))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"uncertainty": "cv+ln", "estimate": "closed-form"}, "has no closed form"),
        ({"rates": DropoutRates.none()}, "nothing samples: every rate is 0"),
        ({"rates": DropoutRates(embedding=0.0)}, "rates.embedding=0 makes it 0 everywhere"),
    ],
)
def test_settings_that_contradict_each_other(changes, message):
    with pytest.raises(ConfigurationError, match=message):
        UATConfig(**changes)
    assert UATConfig(**changes, gate="none")


def test_layerwise_needs_no_embedding_dropout(shared, texts):
    config = UATConfig(samples=3, penalty=2.0, estimate="layerwise", rates=DropoutRates(embedding=0.0))
    plain = replace(config, gate="none")
    batch = texts((9, 5))
    difference = sample(shared("bert"), batch, config).logits - sample(shared("bert"), batch, plain).logits
    assert difference.abs().max() > 1e-3


STORED = [
    UATConfig(),
    UATConfig.fast(samples=10**6, penalty=1e-300, gate="qkv", seed=2**64 - 1, per_input=True),
    UATConfig(form="additive", uncertainty="cv+ln", estimate="layerwise", rates=DropoutRates(1e-9, None, 0.999, 0)),
    UATConfig(layers=Layers("2&5&9-11", "top-3")),
]


@pytest.mark.parametrize("config", STORED)
def test_json_and_back(config):
    """The seed stands beside a configuration, not in it."""
    again = load(UATConfig, json.loads(json.dumps(dump(config))), advice="calibrate again.")
    assert replace(again, seed=config.seed) == config
    assert hash(again) == hash(replace(config, seed=0))


def test_the_registries_have_the_names_that_the_settings_allow():
    from uatlite.passes import gates, masks

    assert set(gates.GATE_FORMS) == set(c.FORMS)
    assert set(masks.MASKS) == set(c.MASKS)
    assert set(gates.TOKEN_STATISTICS) == set(c.STATISTICS)
