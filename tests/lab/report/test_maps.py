"""The numbers that are drawn are those of the explanation."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.explanation import Explanation
from uatlite.errors import ConfigurationError
from uatlite.lab.report.maps import AttentionMaps, LayerBars


def test_a_bar_is_as_long_as_the_share_and_split_like_the_components(explanation: Explanation) -> None:
    bars = LayerBars(explanation.layers)
    for layer in explanation.layers:
        parts = bars.parts(layer)
        assert sum(parts.values()) == pytest.approx(layer.share)
        for name, value in layer.components.items():
            assert parts[name] == pytest.approx(layer.share * value / sum(layer.components.values()))
    assert bars.longest == max(layer.share for layer in explanation.layers)


def test_what_sampling_made_negative_has_no_length(explanation: Explanation) -> None:
    layer = explanation.layers[1]
    mixed = replace(layer, share=0.2, components={"attention": 0.3, "feed_forward": -0.1})
    assert LayerBars((mixed,)).parts(mixed) == {"attention": pytest.approx(0.2), "feed_forward": 0.0}
    below = replace(layer, share=-0.1, components={"attention": -0.3, "feed_forward": -0.1})
    assert set(LayerBars((below,)).parts(below).values()) == {0.0}


def test_maps_are_those_of_the_layer_and_head(explanation: Explanation) -> None:
    whole, one = AttentionMaps.of(explanation), AttentionMaps.of(explanation, layer=2, head=3)
    np.testing.assert_allclose(whole.plain, explanation.attention.plain[:, 0].mean(dim=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(one.modulated, explanation.attention.modulated[1, 0, 2], rtol=1e-6)
    np.testing.assert_allclose(one.difference, one.modulated - one.plain, atol=1e-7)
    assert (whole.which, one.which) == ("all layers, mean over heads", "layer 2, head 3")
    assert whole.tokens == tuple(token.text for token in explanation.tokens)
    rows = list(one.records())
    assert len(rows) == len(one.tokens) ** 2
    assert rows[1]["modulated"] == pytest.approx(one.modulated[0, 1])


def test_a_layer_or_head_that_is_not_there(explanation: Explanation) -> None:
    with pytest.raises(ConfigurationError, match=r"layer=3 is not one of this model's, which has layers 1 to 2"):
        AttentionMaps.of(explanation, layer=3)
    with pytest.raises(ConfigurationError, match=r"head=0.*heads 1 to 4"):
        AttentionMaps.of(explanation, head=0)


def test_no_modulation_no_maps(explainer: Callable[..., UncertaintyClassifier]) -> None:
    assert AttentionMaps.of(explainer("mc-component").explain("film", occlusion=False)) is None
