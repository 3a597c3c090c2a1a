"""evaluate, report and explain on models with several answers a text, as a user calls them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite import UncertaintyLabeler, UncertaintyTagger
from uatlite.cli import main

Run = Callable[..., tuple[int, str, str]]
LABELS = ("anger", "joy", "fear", "relief")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`run(*arguments)`: exit code, standard output and standard error, with single spaces."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), " ".join(out.split()), " ".join(err.split())

    return call


@pytest.fixture(scope="module")
def labeler(
    tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer
) -> Path:
    directory = tmp_path_factory.mktemp("models") / "labeler"
    many = {"problem_type": "multi_label_classification", "id2label": dict(enumerate(LABELS)), "num_labels": 4}
    tiny("bert", **many).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def rows(tagger_dir: Path, made_texts: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts whose gold entities are about those that the model is sure of."""
    found = UncertaintyTagger.from_pretrained(tagger_dir, "base").predict(made_texts(200))
    path = tmp_path_factory.mktemp("data") / "names.jsonl"
    lines = []
    for number, one in enumerate(found):
        kept = [e for place, e in enumerate(one.entities) if e.confidence > 0.5 or (number + place) % 3 == 0]
        spans = [{"start": e.start, "end": e.end, "label": e.label} for e in kept]
        lines.append(json.dumps({"text": one.text, "entities": spans}) + "\n")
    path.write_text("".join(lines))
    return path


def test_entities_are_evaluated_and_reported(run: Run, tagger_dir: Path, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    methods = ("--methods", "base,base+answers", "--resamples", 30, "--target-risk", 0.3)
    code, said, err = run("evaluate", tagger_dir, "--data", rows, *methods, "-o", out)
    assert code == 0, err
    assert "names/test · 100 rows" in said
    assert "What is promised, and kept base+answers, names/test:" in said
    assert "Wrote results.json, results.csv, results.md, answers.safetensors" in err
    results = json.loads((out / "results.json").read_text())
    assert (results["kind"], results["contenders"]) == ("entities", ["base", "base+answers"])
    code, _, err = run("report", out)
    assert code == 0, err
    assert "What is promised, and kept" in (out / "report.html").read_text()


def test_what_does_not_carry_over_is_refused(
    run: Run, tagger_dir: Path, labeler: Path, saved: Path, rows: Path, tmp_path: Path
) -> None:
    out = ("-o", tmp_path / "out")
    given = ("--data", rows)
    refused: dict[str, tuple[object, ...]] = {
        "its entities would be in other places": (
            tagger_dir,
            *given,
            "--perturb",
            "swap",
            *out,
        ),
        "'ts' is for one class a text": (tagger_dir, *given, "--methods", "base+ts", *out),
        "is no model of entities": (labeler, *given, "--methods", "base", *out),
        "one model is evaluated": (tagger_dir, labeler, *given, *out),
    }
    for message, arguments in refused.items():
        code, _, err = run("evaluate", *arguments)
        assert code != 0
        assert message in err
    code, _, err = run("evaluate", saved, *given, "--methods", "base", *out)
    assert code != 0
    assert "is no model of entities" in err


LEARNS = ("--learning-rate", 5e-3, "--warmup-steps", 2, "--batch-size", 8, "--epochs", 10)


def written(kind: str, path: Path) -> Path:
    """Rows of words: w1 is a person and w2 a place; or the label joy where w1 is in a text, and anger where w2 is."""
    rng, lines = np.random.default_rng(0), []
    for size in rng.integers(2, 8, size=120):
        words = [f"w{word}" for word in rng.integers(0, 6, size=size)]
        if kind == "entities":
            row = {"tokens": words, "tags": [{"w1": "B-person", "w2": "B-place"}.get(word, "O") for word in words]}
        else:
            row = {
                "text": " ".join(words),
                "labels": [name for at, name in (("w1", "joy"), ("w2", "anger")) if at in words],
            }
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("kind", ["entities", "labels"])
def test_an_ensemble_is_trained_calibrated_and_evaluated(kind: str, run: Run, model_dir: Path, tmp_path: Path) -> None:
    data, model, made = written(kind, tmp_path / "rows.jsonl"), tmp_path / "ensemble", tmp_path / "made"
    asked = ("--backbone", model_dir, "--method", "ensemble:members=2", "--recipe", "demo", *LEARNS)
    code, _, err = run("train", "--data", data, *asked, "--held-out", 0.4, "-o", model)
    assert code == 0, err
    code, _, err = run("calibrate", model, model / "held-out.jsonl", "-o", made)
    assert code == 0, err
    for directory in (model, made):
        output = tmp_path / f"{directory.name}.jsonl"
        code, _, err = run("predict", directory, data, "-o", output)
        assert code == 0, err
        rows = [json.loads(line) for line in output.read_text().splitlines()]
        assert [row["passes"] for row in rows] == [2] * 120
    if kind == "entities":
        assert all(entity["variance"] is not None for row in rows for entity in row["entities"])
        assert {entity["label"] for row in rows for entity in row["entities"]} == {"person", "place"}
    methods = ("--methods", "base,ensemble:members=2,ensemble:members=2+answers", "--resamples", 20)
    code, _, err = run("evaluate", model, "--data", data, *methods, "-o", tmp_path / "out")
    assert code == 0, err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["contenders"] == ["base", "ensemble:members=2", "ensemble:members=2+answers"]
    assert [results["methods"][name]["cost"] for name in results["contenders"]] == [1, 2, 2]


def test_one_entity_is_explained(run: Run, tagger_dir: Path, rows: Path, tmp_path: Path) -> None:
    product = UncertaintyTagger.from_pretrained(tagger_dir, "analytic")
    texts = [json.loads(line)["text"] for line in rows.read_text().splitlines()]
    text = next(str(one.text) for one in product.predict(texts) if len(one.entities) > 1)
    for number in (None, 1):
        which = () if number is None else ("--entity", number)
        code, out, err = run("explain", tagger_dir, text, "--method", "analytic", *which, "-o", tmp_path / "why.json")
        assert code == 0, err
        expected = product.explain(text, number)
        assert " ".join(expected.says.split()) in out
        assert all(f"{share:.1%}" in out for share in expected.layers.values())
        assert json.loads((tmp_path / "why.json").read_text())["number"] == expected.number
    for arguments, message in {
        ("--label", "person"): "--label is not for a model of entities; use --entity",
        ("--entity", 99): "not one of the",
        ("-o", tmp_path / "why.html"): "or as .json",
    }.items():
        code, _, err = run("explain", tagger_dir, text, "--method", "analytic", *arguments)
        assert code != 0
        assert message in err


def test_one_label_is_explained(run: Run, labeler: Path, saved: Path) -> None:
    product = UncertaintyLabeler.from_pretrained(labeler, "analytic")
    least = product.predict("a1 a2 a3").probabilities[0]
    for label in (None, "joy"):
        which = () if label is None else ("--label", label)
        code, out, err = run("explain", labeler, "a1 a2 a3", "--method", "analytic", *which)
        assert code == 0, err
        assert (label or LABELS[int(np.abs(least - 0.5).argmin())]) in out
        assert " ".join(product.explain("a1 a2 a3", label).says.split()) in out
    code, _, err = run("explain", labeler, "a1 a2 a3", "--entity", 0)
    assert "--entity is not for a model of many labels; use --label" in err
    code, _, err = run("explain", saved, "a1 a2 a3", "--entity", 0)
    assert "--entity is not for a model of one class a text" in err
