"""Exported passes against the engine: the masks bit by bit, the logits of every pass, and one answer for a text."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite import DropoutRates, UATConfig, sample
from uatlite.errors import ConfigurationError
from uatlite.passes import gates, graph
from uatlite.passes.dropout import DropoutNoise, Texts
from uatlite.passes.graph import GraphMasks, GraphTexts, MaskInput, PassesGraph, Sizes, run_passes
from uatlite.passes.trace import export_passes

Encoded = dict[str, Tensor]
Make = Callable[..., Encoded]
Outputs = tuple[np.ndarray, np.ndarray]

RATES = DropoutRates(0.1, 0.2, 0.3, 0.2)
CONFIGS = {
    "uat": UATConfig(samples=3, penalty=2.0, rates=RATES),
    "fast": UATConfig.fast(penalty=2.0, rates=RATES),
}
OTHERS = {
    "mc": UATConfig(samples=4, gate="none", rates=DropoutRates.uniform(0.1)),
    "layerwise": UATConfig(samples=4, penalty=2.0, estimate="layerwise"),
    "lagged, norm-cv, qkv": UATConfig(samples=4, penalty=2.0, uncertainty="norm-cv", gate="qkv"),
    "closed-form, median, reciprocal qk": UATConfig.fast(
        penalty=2.0, uncertainty="median-std", gate="qk", form="reciprocal"
    ),
    "additive": UATConfig.fast(penalty=2.0, gate="k", form="additive"),
    "per input": UATConfig(samples=3, penalty=2.0, per_input=True),
    "one pass": UATConfig(samples=1, gate="none"),
    "no dropout of embeddings": UATConfig(samples=3, gate="none", rates=DropoutRates(0.0, 0.2, 0.3, 0.0)),
}


def arrays(encoded: Encoded) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in encoded.items()}


def exported(
    model: PreTrainedModel, config: UATConfig, example: Encoded, path: Path, side: str = "right"
) -> Callable[..., Outputs]:
    """`run(encoded, config=config)` of the written graph."""
    described = export_passes(model, config, example, path, padding_side=side)
    assert PassesGraph.from_dict(described.to_dict()) == described
    masks = GraphMasks(described)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(encoded: Encoded, asked: UATConfig = config) -> Outputs:
        return run_passes(masks, lambda given: session.run(None, {n: given[n] for n in names}), arrays(encoded), asked)

    return run


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_architecture_gives_the_engines_passes(
    model: PreTrainedModel, texts: Make, name: str, side: str, tmp_path: Path
) -> None:
    """In a batch, at lengths and for a number of passes that tracing has not seen."""
    config = CONFIGS[name]
    run = exported(model, config, texts((6, 4, 5), side=side), tmp_path / "passes.onnx", side)
    batch = texts((9, 5, 7, 3), side=side, seed=3)
    expected = sample(model, batch, config)
    logits, read = run(batch)
    assert expected.logits.std(dim=0).mean() > 1e-3
    np.testing.assert_allclose(logits, expected.logits.numpy(), atol=1e-4)
    np.testing.assert_allclose(read, expected.representation.numpy(), atol=1e-4)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", OTHERS)
def test_every_kind_of_configuration(
    shared: Callable[..., PreTrainedModel], texts: Make, name: str, tmp_path: Path
) -> None:
    model, config = shared("bert"), OTHERS[name]
    run = exported(model, config, texts((6, 4)), tmp_path / "passes.onnx")
    batch = texts((9, 5, 7, 3), seed=3)
    np.testing.assert_allclose(run(batch)[0], sample(model, batch, config).logits.numpy(), atol=1e-4)


def test_multiple_choice(chooser: PreTrainedModel, choices: Encoded, tmp_path: Path) -> None:
    config = CONFIGS["fast"]
    example = {name: value[:, :3, :6] for name, value in choices.items()}
    run = exported(chooser, config, example, tmp_path / "passes.onnx")
    np.testing.assert_allclose(run(choices)[0], sample(chooser, choices, config).logits.numpy(), atol=1e-4)


def test_seed_passes_and_masks_are_free_and_nothing_else(
    shared: Callable[..., PreTrainedModel], texts: Make, tmp_path: Path
) -> None:
    model, config = shared("bert"), CONFIGS["fast"]
    run = exported(model, config, texts((6, 4)), tmp_path / "passes.onnx")
    batch = texts((9, 5), seed=3)
    for changes in ({"seed": 7}, {"samples": 8}, {"masks": "independent"}, {"per_input": True}):
        asked = replace(config, **changes)  # type: ignore[arg-type]
        np.testing.assert_allclose(run(batch, asked)[0], sample(model, batch, asked).logits.numpy(), atol=1e-4)
    with pytest.raises(ConfigurationError, match="only samples, masks, seed, per_input may be others"):
        run(batch, replace(config, penalty=1.0))


@pytest.mark.parametrize("name", CONFIGS)
def test_one_text_has_one_answer(
    shared: Callable[..., PreTrainedModel], texts: Make, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, in a batch with longer texts, in chunks of one text, and in blocks of one pass."""
    model, config = shared("bert"), CONFIGS[name]
    run = exported(model, config, texts((6, 4)), tmp_path / "passes.onnx")
    batch = texts((9, 5, 7, 3), seed=3)
    whole = run(batch)[0]
    for row, length in enumerate((9, 5, 7, 3)):
        alone = {key: value[row : row + 1, :length] for key, value in batch.items()}
        np.testing.assert_allclose(run(alone)[0][:, 0], whole[:, row], atol=1e-5)
    monkeypatch.setattr(graph, "CACHED_BYTES", 1)
    monkeypatch.setattr(graph, "MEMORY_BUDGET", 1)
    np.testing.assert_allclose(run(batch)[0], whole, atol=1e-5)


@pytest.mark.parametrize("kind", ["independent", "stratified"])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("per_input", [False, True])
def test_masks_are_the_engines_bit_by_bit(texts: Make, kind: str, side: str, per_input: bool) -> None:
    """Every kind of mask, at a text's own positions, for a block of the passes."""
    config = UATConfig(samples=5, masks=kind, per_input=per_input, seed=4)
    batch, passes, width, heads = texts((9, 5, 7), side=side), range(1, 4), 12, 2
    inputs = (
        MaskInput("-1.embedding.0", 0.1, graph.HIDDEN, 1, None, width),
        MaskInput("0.probabilities.0", 0.2, graph.ATTENTION, heads, None, None),
        MaskInput("-2.head.0", 0.3, graph.POOLED, 1, 1, width),
    )
    described = PassesGraph(replace(config, uncertainty="cv"), inputs, Sizes(width, width, heads))
    found = GraphMasks(described).arrays(config, passes, GraphTexts.of(arrays(batch), per_input))
    noise = DropoutNoise(config, Texts.of(batch, per_input), passes)
    hidden = torch.zeros(len(passes) * 3, 9, width)
    expected = {
        "-1.embedding.0": noise.hidden("-1.embedding.0", 0.1, hidden),
        "0.probabilities.0": noise.attention("0.probabilities.0", 0.2, torch.zeros(len(passes) * 3, heads, 9, 9)),
        "-2.head.0": noise.pooled("-2.head.0", 0.3, hidden[:, 0]),
    }
    for name, multiplier in expected.items():
        assert found[graph.KEPT + name].dtype == np.bool_
        np.testing.assert_array_equal(found[graph.KEPT + name], multiplier.numpy() > 0)
    std, mean = (value[1:4].numpy() for value in noise.moments("-1.embedding.0", 0.1, hidden))
    np.testing.assert_allclose(found[graph.STD], std, rtol=1e-6)
    np.testing.assert_allclose(found[graph.MEAN], mean, rtol=1e-6)


def test_moments_are_those_of_the_multipliers() -> None:
    keep = np.random.default_rng(0).random((6, 2, 3)) > 0.3
    std, mean = graph.running_moments(keep, 0.3)
    multipliers = keep / 0.7
    for count in range(7):
        some = multipliers[:count]
        np.testing.assert_allclose(std[count], some.std(axis=0, ddof=1) if count > 1 else 0.0, atol=1e-6)
        np.testing.assert_allclose(mean[count], some.mean(axis=0) if count else 0.0, atol=1e-6)
    theirs = gates.running_moments(torch.from_numpy(keep), 0.3)
    np.testing.assert_allclose(std, theirs[0].numpy(), rtol=1e-6)
    np.testing.assert_allclose(mean, theirs[1].numpy(), rtol=1e-6)


def test_what_has_no_graph_is_refused(shared: Callable[..., PreTrainedModel], texts: Make, tmp_path: Path) -> None:
    config = UATConfig(uncertainty="mean-std+ln")
    with pytest.raises(ConfigurationError, match="is not exported: it needs the normalised"):
        export_passes(shared("bert"), config, texts((6, 4)), tmp_path / "no.onnx", padding_side="right")
    assert not list(tmp_path.iterdir())
