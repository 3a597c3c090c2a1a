"""uatlite explain, from the arguments to the files and the exit code."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.cli import main


def run(*arguments: object) -> int:
    """The exit code of `uatlite explain ARGUMENTS`."""
    with pytest.raises(SystemExit) as end:
        main(["explain", *(str(argument) for argument in arguments)])
    return int(end.value.code or 0)


def test_a_text_in_the_terminal(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model_dir, "w1 w2 w30", "--method", "analytic") == 0
    said = capsys.readouterr().out
    found = UncertaintyClassifier.from_pretrained(model_dir, method="analytic").explain("w1 w2 w30")
    assert " ".join(said.split()).startswith(str(found.summary))
    for name in ("w1", "w2", "w30", "[CLS]", "embeddings", "layer 1", "layer 2", "head"):
        assert name in said
    assert "\x1b" not in said  # no terminal, no colours


def test_a_pair_as_json_with_a_sampled_estimator(model_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "pair.json"
    how = ("--estimator", "isolated", "--samples", 5, "--method", "uat:samples=2")
    assert run(model_dir, "w1 w2", "--pair", "w3", *how, "-o", out) == 0
    found = json.loads(out.read_text())
    assert found["text"] == ["w1 w2", "w3"]
    assert (found["estimator"], found["samples"]) == ("isolated", 5)
    assert found["layers"][1]["error"] > 0
    assert len(found["attention"]["modulated"]) == 2


def test_a_question_with_options(
    tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer, tmp_path: Path
) -> None:
    tiny("bert", choices=True).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    out = tmp_path / "page.html"
    assert run(tmp_path / "model", "a1 a2", "--option", "a3", "--option", "a4 a5", "-o", out, "--head", 2) == 0
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
def test_what_cannot_be_done_is_said_in_a_sentence(
    model_dir: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert run(model_dir, *arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
