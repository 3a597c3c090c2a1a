"""What SNGP and the variational last layer change about a training, on tiny models of several families; Laplace."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from uatlite.errors import ModelError
from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.methods import (
    SngpTraining,
    VariationalTraining,
    bounded_weights,
    laplace_torch,
    last_layer_posterior,
)
from uatlite.lab.train.recipe import Recipe, TrainingJob
from uatlite.methods.registry import METHODS
from uatlite.methods.trained import logit_covariance
from uatlite.model.heads import GaussianProcessHead
from uatlite.model.load import load_checkpoint
from uatlite.model.weights import features, last_layer, weights_for, without_last_layer

Encoded = dict[str, Tensor]
FAMILIES = ("bert", "roberta", "distilbert", "electra", "modernbert", "gpt2")
SMALL = SngpTraining(features=32, bound=0.5, prior_variance=1.0)
BOTH = pytest.mark.parametrize("training", [SMALL, VariationalTraining()], ids=["sngp", "vi"])
SNGP, VI_LAST_LAYER = METHODS["sngp"], METHODS["vi-last-layer"]
laplace = pytest.mark.skipif(find_spec("laplace") is None, reason="laplace-torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:By default `link_approx`")


@pytest.fixture
def batch(texts):
    return texts((9, 5, 7, 6)) | {"labels": torch.tensor([0, 1, 2, 1])}


def fit(training, model, batch, steps=6):
    """The loop of the Trainer in short, with everything that a training may change."""
    torch.manual_seed(0)
    training.prepare(model, 0)
    groups = training.groups(model)
    own = {id(parameter) for group in groups for parameter in group["params"]}
    others = [parameter for parameter in model.parameters() if id(parameter) not in own]
    optimizer = torch.optim.AdamW([{"params": others}, *groups], lr=0.01)
    model.train()
    training.after_step(model, 0, steps)
    for step in range(steps):
        optimizer.zero_grad()
        (model(**batch).loss + training.penalty(model, len(batch["labels"]))).backward()
        optimizer.step()
        training.after_step(model, step + 1, steps)
    model.eval()
    training.finish(model, lambda: iter([batch]))


@pytest.mark.parametrize(("family", "encoder"), [*((family, False) for family in FAMILIES), ("bert", True)])
def test_sngp_replaces_the_head_and_bounds_the_layers(family, encoder, tiny, batch):
    """The layer before the last, which decoders do not have, and if asked for those of the encoder."""
    model = tiny(family)

    def norms():
        return [float(torch.linalg.svdvals(weight.detach())[0]) for weight in bounded_weights(model, encoder=encoder)]

    before = norms()
    fit(replace(SMALL, encoder=encoder), model, batch)
    bounded = norms()
    assert len(bounded) == (0 if family == "gpt2" else 1 + 2 * 6 * encoder)
    assert all(norm > 0.5 for norm in before)
    assert all(norm <= 0.5 + 1e-5 for norm in bounded)
    passes = SNGP.run(model, batch)
    assert passes.logits.shape == (1, 4, 3)
    assert passes.variance is not None
    head = GaussianProcessHead.of(weights_for(model, "sngp").tensors)
    x = features(without_last_layer(model), batch)
    prior = head.features(x).square().sum(dim=-1)  # φᵀφ at prior variance 1
    assert bool((passes.variance > 0).all() and (passes.variance[:, 0] < prior).all())
    torch.testing.assert_close(passes.logits[0], head(x))
    with pytest.raises(ModelError, match="run it with the method 'sngp'"):
        model(**batch)


def test_the_covariance_is_of_all_batches_at_the_final_weights(tiny, texts):
    model, parts = tiny("bert"), [texts((9, 5)), texts((7, 6, 4), seed=1)]
    SMALL.prepare(model, 0)
    model.classifier.coefficients.data.normal_()
    head = model.classifier

    def batches():
        yield from parts

    SMALL.finish(model, batches)
    rows = torch.cat([features(without_last_layer(model), part) for part in parts]).detach()
    precision = torch.eye(32, dtype=torch.float64) + head.information(rows)
    torch.testing.assert_close(weights_for(model, "sngp").tensors["covariance"], precision.inverse().float())


@pytest.mark.parametrize("family", FAMILIES)
def test_vi_leaves_a_plain_model_of_the_means(family, tiny, batch):
    model = tiny(family)
    keys = set(model.state_dict())
    fit(VariationalTraining(initial_scale=0.02), model, batch)
    assert set(model.state_dict()) == keys
    assert type(last_layer(model)[1]) is nn.Linear
    few, many = VI_LAST_LAYER.run(model, batch).logits, VI_LAST_LAYER.changed(samples="400").run(model, batch).logits
    assert few.shape == (32, 4, 3)
    torch.testing.assert_close(few, many[:32])
    plain = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    error = many.std(dim=0) / 400**0.5
    assert bool(((many.mean(dim=0) - plain).abs() < 5 * error).all())


@pytest.mark.parametrize("training", [SngpTraining(features=16, head_rate=0.02), VariationalTraining(scale_rate=0.1)])
def test_the_head_learns_at_rates_of_its_own(training, tiny):
    model = tiny("bert")
    training.prepare(model, 0)
    groups = training.groups(model)
    grouped = {id(parameter) for group in groups for parameter in group["params"]}
    assert grouped == {id(parameter) for parameter in model.classifier.parameters()}
    assert [group.get("lr") for group in groups] == ([0.02] if training.key == "sngp" else [0.1, None])


def test_vi_trains_its_scales_and_pays_for_them(tiny, batch):
    model, training = tiny("bert"), VariationalTraining(scale_rate=0.1)
    training.prepare(model, 0)
    layer = model.classifier
    penalty = training.penalty(model, 10)
    assert float(penalty.detach()) == pytest.approx(float(layer.kl().detach()) / 10)
    model = tiny("bert")
    fit(training, model, batch)
    scales = weights_for(model, "vi-last-layer").tensors["weight_log_scale"].exp()
    assert float(scales.min()) > 1.2 * training.initial_scale  # four rows say little: towards the prior's 1


@BOTH
def test_multiple_choice_gives_a_class_for_each_option(training, tiny, choices):
    model, batch = tiny("roberta", choices=True), choices | {"labels": torch.tensor([3, 0])}
    fit(training, model, batch)
    method = METHODS[training.key]
    passes = method.run(model, batch)
    assert passes.logits.shape == (method.passes, 2, 4)
    alone = method.run(model, {name: value[1:] for name, value in batch.items()})
    torch.testing.assert_close(alone.logits, passes.logits[:, 1:], atol=1e-5, rtol=1e-4)
    if passes.variance is not None and alone.variance is not None:
        torch.testing.assert_close(alone.variance, passes.variance[1:], atol=1e-5, rtol=1e-3)


@BOTH
def test_a_trained_model_has_learned(training, backbone, train, unseen, tmp_path):
    recipe = Recipe(learning_rate=3e-3, warmup_steps=2, batch_size=8, epochs=4)
    fine_tune(TrainingJob(backbone, train, recipe=recipe), tmp_path, training)
    loaded = load_checkpoint(tmp_path)
    method = METHODS[training.key]
    encoded = dict(loaded.tokenizer(unseen.texts, padding=True, return_tensors="pt"))
    found = method.run(loaded.model, encoded).logits.mean(dim=0).argmax(dim=-1)
    assert float((found == torch.tensor(unseen.gold)).float().mean()) > 0.9


# ── Laplace equals laplace-torch ──


def clouds(rows=90, units=6, classes=3):
    """Features around a centre for each class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % classes
    centres = torch.randn(classes, units, generator=generator)
    return centres[labels] + torch.randn(rows, units, generator=generator), labels


def layer_of(units, classes, *, bias):
    layer = nn.Linear(units, classes, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
    return layer


@laplace
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_covariances_and_probabilities_are_those_of_laplace_torch(bias):
    """laplace-torch on a model with an encoder before the last layer, and ours on the features of it, agree."""
    x, labels = clouds()
    encoder, layer = nn.Sequential(layer_of(6, 6, bias=True), nn.Tanh()), layer_of(6, 3, bias=bias)
    whole = nn.Sequential(encoder, layer)
    theirs = laplace_torch().Laplace(whole, "classification", subset_of_weights="last_layer", hessian_structure="kron")
    theirs.fit(DataLoader(TensorDataset(x, labels), batch_size=256))
    theirs.optimize_prior_precision(method="marglik")
    read = encoder(x).detach()
    covariance = logit_covariance(last_layer_posterior(layer, read, labels), read)
    _, expected = theirs._glm_predictive_distribution(x)
    torch.testing.assert_close(covariance, expected, rtol=1e-3, atol=1e-6)
    widened = layer(read) / torch.sqrt(1 + torch.pi / 8 * covariance.diagonal(dim1=1, dim2=2))
    probabilities = theirs(x, pred_type="glm", link_approx="probit")
    torch.testing.assert_close(widened.softmax(dim=-1), probabilities, rtol=1e-4, atol=1e-6)
