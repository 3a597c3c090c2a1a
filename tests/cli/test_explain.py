"""uatlite explain, from the arguments to the files and the exit code."""

import json

import numpy as np
import pytest

from uatlite import load


def test_a_text_in_the_terminal(run, model_dir):
    done = run("explain", model_dir, "w1 w2 w30", "--method", "analytic")
    assert done.shown.startswith(str(load(model_dir, method="analytic").explain("w1 w2 w30").summary))
    assert all(name in done.out for name in ("w1", "w2", "w30", "[CLS]", "embeddings", "layer 1", "layer 2", "head"))
    assert "\x1b" not in done.out  # no terminal, no colours


def test_a_pair_as_json_with_a_sampled_estimator(run, model_dir, tmp_path):
    out = tmp_path / "pair.json"
    how = ("--estimator", "isolated", "--samples", 5, "--method", "uat:samples=2")
    run("explain", model_dir, "w1 w2", "--pair", "w3", *how, "-o", out)
    found = json.loads(out.read_text())
    assert (found["text"], found["estimator"], found["samples"]) == (["w1 w2", "w3"], "isolated", 5)
    assert found["layers"][1]["error"] > 0
    assert len(found["attention"]["modulated"]) == 2


def test_a_question_with_options(run, model_of, tmp_path):
    out, options = tmp_path / "page.html", ("--option", "a3", "--option", "a4 a5")
    run("explain", model_of("choice"), "a1 a2", *options, "-o", out, "--head", 2)
    page = out.read_text()
    assert "all layers, head 2" in page
    assert page.count('class="words"') == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("w1", "-o", "out.pdf"), "out.pdf has the extension '.pdf'; allowed are .html, .png, .svg, .json"),
        (("",), "an empty text; drop it"),
        (("w1", "--method", "base"), "the method 'base' drops nothing"),
        (("w1", "--method", "mc-uniform:rate=0"), "every dropout rate is 0"),
        (("w1", "--shade", "shares"), "--shade='shares' is not one of"),
        (("w1", "--estimator", "detla"), "estimator='detla' is not one of"),
        (("w1", "--pair", "w2", "--option", "w3"), "a pair has none"),
        (("w1", "--option", "w3", "--option", "w4"), "the model is not for multiple choice"),
        (("w1", "-o", "out.json", "--layer", "9"), "layer=9 is not one of this model's"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(run, model_dir, monkeypatch, tmp_path, arguments, said):
    monkeypatch.chdir(tmp_path)
    error = run("explain", model_dir, *arguments, code=2).err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_one_entity_is_explained(run, model_of, names, tmp_path):
    product = load(model_of("entities"), method="analytic")
    texts = [json.loads(line)["text"] for line in names.read_text().splitlines()]
    text = next(said.text for said in product.predict(texts) if len(said.entities) > 1)
    explain = ("explain", model_of("entities"), text, "--method", "analytic")
    for number in (None, 1):
        which = () if number is None else ("--entity", number)
        done, expected = run(*explain, *which, "-o", tmp_path / "why.json"), product.explain(text, number)
        assert " ".join(expected.says.split()) in done.shown
        assert all(f"{layer.share:.1%}" in done.out for layer in expected.layers)
        assert json.loads((tmp_path / "why.json").read_text())["number"] == expected.number
    for arguments, message in {
        ("--label", "person"): "--label is not for a model of entities; use --entity",
        ("--entity", 99): "not one of the",
        ("-o", tmp_path / "why.html"): "or as .json",
    }.items():
        assert message in run(*explain, *arguments, code=2).said


def test_one_label_is_explained(run, model_of):
    product = load(model_of("labels"), method="analytic")
    least = int(np.abs(product.predict("a1 a2 a3").probabilities[0] - 0.5).argmin())
    for label in (None, "joy"):
        which = () if label is None else ("--label", label)
        done = run("explain", model_of("labels"), "a1 a2 a3", "--method", "analytic", *which)
        assert (label or product.class_names[least]) in done.out
        assert " ".join(product.explain("a1 a2 a3", label).says.split()) in done.shown
    for kind, message in (("labels", "many labels; use --label"), ("one", "one class a text")):
        refused = run("explain", model_of(kind), "a1 a2 a3", "--entity", 0, code=2)
        assert f"--entity is not for a model of {message}" in refused.said
