"""The scripts of examples/, each run as a user runs it, on a tiny model and a small CSV."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from uatlite import UncertaintyClassifier

EXAMPLES = Path(__file__).parents[1] / "examples"
CLASSES = {0: "bad", 1: "fair", 2: "good"}


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny, tokenizer, made_texts):
    """A directory with a model, labelled.csv and new.csv."""
    directory = tmp_path_factory.mktemp("examples")
    model = tiny("bert", id2label=CLASSES, label2id={name: column for column, name in CLASSES.items()})
    model.save_pretrained(directory / "model")
    tokenizer.save_pretrained(directory / "model")
    texts = made_texts(150)
    columns = UncertaintyClassifier(model, tokenizer, "base").predict(texts).predicted
    columns[::5] = np.arange(30) % 3  # every class occurs, and some rows are wrong
    labels = [CLASSES[column] for column in columns]
    pd.DataFrame({"text": texts, "label": labels}).to_csv(directory / "labelled.csv", index=False)
    pd.DataFrame({"id": range(8), "text": made_texts(8, seed=1)}).to_csv(directory / "new.csv", index=False)
    return directory


def run(script, home, *arguments):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), "model", "labelled.csv", *arguments],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_own_csv(home):
    printed = run("own_csv.py", home, "new.csv", "--target-risk", "0.4", "--save", "calibrated")
    assert "8 predictions of 3 classes" in printed
    decisions = pd.read_csv(home / "decisions.csv")
    assert list(decisions.columns) == ["id", "text", "label", "confidence", "decision", "reason"]
    assert set(decisions["label"]) <= set(CLASSES.values())
    assert set(decisions["decision"]) <= {"answer", "abstain"}
    again = UncertaintyClassifier.from_pretrained(home / "calibrated").predict(decisions["text"])
    assert again.confidence == pytest.approx(decisions["confidence"].to_numpy(), abs=1e-5)


def test_pipeline_and_sklearn(home):
    printed = run("pipeline_and_sklearn.py", home)
    assert "cross-validated NLL: " in printed
    assert "macro avg" in printed
    assert printed.splitlines()[-1].split()[0] in CLASSES.values()
    assert (home / "calibration.png").stat().st_size > 0


def test_explain_and_report(home):
    printed = run("explain_and_report.py", home, "a1 a2 a3", "--methods", "base,ts,uat:samples=2")
    assert printed.startswith("a1 ")
    assert "base+ts" in printed
    assert "<html" in (home / "out" / "explanation.html").read_text("utf-8")
    assert "<html" in (home / "out" / "report.html").read_text("utf-8")


def test_the_python_of_the_guide_to_evaluation(home, tmp_path, monkeypatch):
    (tmp_path / "my-model").symlink_to(home / "model")
    rows = pd.read_csv(home / "labelled.csv").rename(columns={"text": "body", "label": "stars"})
    rows.to_csv(tmp_path / "reviews.csv", index=False)
    guide = (EXAMPLES.parent / "docs" / "guides" / "evaluate.md").read_text("utf-8")
    code = guide.split("## In Python")[1].split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert {"results.json", "report.html", "store"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_the_python_of_the_page_on_the_method(home, tmp_path, monkeypatch, capsys):
    (tmp_path / "my-model").symlink_to(home / "model")
    page = (EXAMPLES.parent / "docs" / "start" / "the-method.md").read_text("utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line]) == 15
    monkeypatch.chdir(tmp_path)
    values: dict = {}
    exec(code, values)
    config, passes, probs, layers = (values[name] for name in ("config", "passes", "probs", "layers"))
    rates = config.rates
    assert (config.samples, config.penalty, config.gate, config.estimate) == (10, 0.5, "q", "lagged")
    assert (rates.embedding, rates.attention, rates.feed_forward) == (0.1, 0.2, 0.3)
    assert passes.logits.shape == (10, 1, 3)
    assert np.allclose(values["gates"], np.exp(-0.5 * values["U"].numpy()))
    mean = np.exp(passes.logits.numpy().mean(axis=0))
    assert np.allclose(probs, mean / mean.sum(axis=-1, keepdims=True), atol=1e-6)
    assert layers.estimator == "total-variance"
    assert layers.shares.sum() == pytest.approx(1.0, abs=1e-4)
    assert values["shift"].difference.abs().max() > 0
    assert len(capsys.readouterr().out.splitlines()) >= len(values["U"]) + 3


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(script):
    assert len(script.read_text("utf-8").splitlines()) <= 60


@pytest.mark.parametrize("name", ["wrap_sklearn.py", "wrap_encoder.py", "wrap_setfit.py", "wrap_function.py"])
def test_what_wraps_another_library_has_ten_lines(name, home, tmp_path):
    _, usage, code = (EXAMPLES / name).read_text("utf-8").split('"""')
    assert len([line for line in code.splitlines() if line]) <= 10
    if name in ("wrap_encoder.py", "wrap_setfit.py"):
        library, setfit = pytest.importorskip("sentence_transformers"), pytest.importorskip("setfit")
        rows, encoder = (
            pd.read_csv(home / "labelled.csv"),
            library.SentenceTransformer(str(home / "model"), device="cpu"),
        )
        head = LogisticRegression(max_iter=1000).fit(encoder.encode(rows["text"].tolist()), rows["label"])
        model = setfit.SetFitModel(model_body=encoder, model_head=head) if "setfit" in name else encoder
        model.save_pretrained(str(tmp_path))
    given = {"ENCODER": tmp_path, "MODEL": tmp_path if "setfit" in name else "model", "train.csv": "labelled.csv"}
    arguments = [str(given.get(word, word)) for word in usage.partition(".py ")[2].split()]
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "8 predictions of 3 classes" in done.stdout
