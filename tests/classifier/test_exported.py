"""An exported classifier gives what the PyTorch one gives, in an environment without torch and transformers."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits
from transformers import BertTokenizer

from reference import BLOCKED, refuses
from uatlite.classifier import exported as onnx
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.export import compared, export
from uatlite.classifier.exported import MANIFEST, load_exported
from uatlite.classifier.runtime import run
from uatlite.errors import ConfigurationError, ModelError
from uatlite.methods.sampling import BASE
from uatlite.trust.distribution import predictive


@pytest.fixture(scope="module")
def calibrated(build, labelled):
    """With a read-out that counts as good, which random weights do not give."""
    texts, labels = labelled(300)
    method = build().calibrate(texts[:150], labels[:150]).method
    method = replace(method, read_out=replace(method.read_out, r2=0.9))
    return build(method).calibrate(texts, labels, review_share=0.2, label_sets=0.8)


@pytest.fixture(scope="module")
def fp32(calibrated, tmp_path_factory):
    directory = tmp_path_factory.mktemp("exported") / "fp32"
    difference = export(calibrated, directory)
    assert difference.largest < 1e-4
    assert difference.changed == 0
    return directory


@pytest.fixture(scope="module")
def int8(calibrated, tmp_path_factory, made_texts):
    directory = tmp_path_factory.mktemp("exported") / "int8"
    difference = export(calibrated, directory, int8=True, texts=made_texts(40, seed=3))
    assert 1e-4 < difference.mean < difference.largest
    assert difference.texts == 40
    return directory


def test_probability_variance_scope_and_decision_are_the_same(calibrated, fp32, made_texts):
    texts = [*made_texts(60, seed=5), "a1", " ".join(f"a{n}" for n in range(56))]
    ours = UncertaintyClassifier.from_pretrained(fp32)
    expected, found = calibrated.predict(texts), ours.predict(texts)
    assert ours.method.name == "distilled"
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-4)
    np.testing.assert_allclose(found.mutual_information, expected.mutual_information, atol=1e-4)
    np.testing.assert_allclose(found.scope, expected.scope, atol=0.01)
    assert list(found.labels) == list(expected.labels)
    assert np.mean(found.abstain == expected.abstain) > 0.97
    assert found.sets.tolist() == expected.sets.tolist()
    assert found.shift is not None


@pytest.mark.parametrize("side", ["right", "left"])
def test_every_architecture_exports(architecture, tiny, tokenizer, tmp_path, made_texts, side):
    """In batches and at lengths that tracing has not seen."""
    if side == "left" and architecture not in ("bert", "gpt2"):
        pytest.skip("padding is the same everywhere; two families are enough")
    own = BertTokenizer(vocab=tokenizer.get_vocab(), padding_side=side)
    clf = UncertaintyClassifier(tiny(architecture), own, "base")
    export(clf, tmp_path / "out")
    ours = UncertaintyClassifier.from_pretrained(tmp_path / "out")
    texts = [*made_texts(17, seed=1), "a3"]
    theirs, found = run(clf.runtime, texts, clf.settings), run(ours.runtime, texts, ours.settings)
    np.testing.assert_allclose(found.logits, theirs.logits, atol=1e-4)
    np.testing.assert_allclose(found.representations, theirs.representations, atol=1e-4)


def test_int8_keeps_the_read_out_and_nothing_that_was_learned_from_other_logits(calibrated, int8, made_texts):
    """A text has one answer with any number of threads and in any order, which differs from fp32's but little."""
    clf, texts = UncertaintyClassifier.from_pretrained(int8), made_texts(12, seed=2)
    assert clf.calibration_ is None
    assert clf.method.passes == 1
    assert not clf.method.learns
    clf.runtime._threads = 3
    whole = clf.predict_proba(texts)
    with clf.runtime.one_thread():
        np.testing.assert_array_equal(whole, clf.predict_proba(texts))
    np.testing.assert_array_equal(whole[::-1], clf.predict_proba(texts[::-1]))
    plain = predictive(run(calibrated.runtime, texts, calibrated.settings), None).probabilities
    assert 0 < np.abs(whole - plain).mean() < 0.1


def test_a_calibration_of_other_weights_is_refused(fp32, int8, tmp_path):
    mixed = tmp_path / "mixed"
    shutil.copytree(fp32, mixed)
    shutil.copy(int8 / "model.onnx", mixed)
    with pytest.raises(ModelError, match="is not the one that was calibrated"):
        UncertaintyClassifier.from_pretrained(mixed)


def test_what_needs_pytorch_says_so(fp32, build, labelled, tmp_path):
    clf, plain = UncertaintyClassifier.from_pretrained(fp32), "needs more than one plain pass, and only that is"
    sampled = UncertaintyClassifier.from_pretrained(fp32, method="fast", calibrated=False)
    looks = build("base").calibrate(*labelled(150), threshold=0.6, second_look="uat:samples=2")
    refuses(
        (ModelError, "cannot be explained", lambda: clf.explain("a1 a2")),
        (ModelError, "holds one plain pass", lambda: sampled.predict(["a1"])),
        (ModelError, "exported already", lambda: export(clf, tmp_path / "twice")),
        (ModelError, "a pipeline takes a PyTorch model", clf.as_model),
        (ConfigurationError, "are fixed", lambda: clf.rename_classes(["x", "y", "z"])),
        (ModelError, "until it is calibrated", lambda: export(build(), tmp_path / "uncalibrated")),
        (ModelError, plain, lambda: export(build("analytic"), tmp_path / "no")),
        (ModelError, plain, lambda: export(build("fast"), tmp_path / "no")),
        (ModelError, "the second look by uat:samples=2 needs PyTorch", lambda: export(looks, tmp_path / "no")),
    )
    assert not list(tmp_path.iterdir())


def test_broken_directories(fp32, tmp_path):
    broken = shutil.copytree(fp32, tmp_path / "a")
    (broken / "model.onnx").unlink()
    with pytest.raises(ModelError, match=r"holds no model\.onnx"):
        load_exported(broken)
    for manifest, message in (('{"format": 9}', "has the format 9"), ("{", "is broken")):
        (broken / MANIFEST).write_text(manifest)
        with pytest.raises(ModelError, match=message):
            load_exported(broken)


def test_made_texts_other_lengths_run_in_forwards_of_their_own(fp32, made_texts, monkeypatch):
    clf, masks, forward = UncertaintyClassifier.from_pretrained(fp32), [], onnx.OnnxRuntime.run

    def counted(runtime, method, batches):
        masks.extend(batch.arrays["attention_mask"] for batch in batches)
        return forward(runtime, method, batches)

    monkeypatch.setattr(onnx.OnnxRuntime, "run", counted)
    clf.predict(made_texts(60, seed=5), check_shift=False)
    assert sum(map(len, masks)) == 60
    assert max(int((mask == 0).sum()) for mask in masks) <= onnx.PADDING
    assert max(map(len, masks)) > 1


def test_one_thread_gives_the_same_and_is_also_that_of_products_in_numpy(fp32, made_texts):
    """NumPy's other threads spin after a product, on cores that the texts need."""

    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    clf = UncertaintyClassifier.from_pretrained(fp32)
    with threadpool_limits(2, user_api="blas"):
        assert threads() == {2}
        before = clf.predict_proba(made_texts(5))
        with clf.runtime.one_thread():
            assert threads() == {1}
            np.testing.assert_allclose(clf.predict_proba(made_texts(5)), before, atol=1e-6)
        assert threads() == {2}


def test_labels_that_change_are_counted(calibrated, made_texts):
    settings, texts = replace(calibrated.settings, method=BASE), made_texts(8)
    whole = run(calibrated.runtime, texts, settings)
    turned = replace(whole, logits=whole.logits * np.where(np.arange(8) < 2, -1.0, 1.0)[None, :, None])
    found = compared(calibrated, texts, whole, turned)
    assert found.changed == 0.25
    assert found.largest == pytest.approx(2 * np.abs(whole.logits[:, :2]).max())
    assert "25.00% of the labels" in found.describe()


def test_without_torch_and_transformers(fp32, made_texts, tmp_path):
    """Predicting files, resuming, serving and the errors, where importing torch or transformers raises."""
    source = tmp_path / "in.jsonl"
    rows = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(made_texts(40))]
    source.write_text("\n".join([*rows, "not json"]) + "\n")
    code = (
        BLOCKED
        + f"""
from uatlite.cli import main

import uatlite
try:
    uatlite.attribute
except ImportError as error:
    assert str(error) == "torch is not installed; this needs it: pip install 'uatlite[torch]'"
else:
    raise AssertionError("attribution without torch")

import uatlite.serve.app

def code_of(*arguments):
    try:
        main(arguments)
    except SystemExit as stop:
        return stop.code or 0
    return 0

assert code_of("predict", {str(fp32)!r}, {str(source)!r}, "-o", {str(tmp_path / "out.csv")!r}) == 0
assert code_of("predict", {str(fp32)!r}, {str(source)!r}, "-o", {str(tmp_path / "out.csv")!r}, "--resume") == 0
assert code_of("predict", {str(tmp_path)!r}, {str(source)!r}, "-o", {str(tmp_path / "no.csv")!r}) == 2
assert code_of("explain", {str(fp32)!r}, "a1 a2") == 2
assert code_of("calibrate", {str(tmp_path)!r}, {str(source)!r}, "-o", {str(tmp_path / "c")!r}) == 2
assert code_of("export", {str(tmp_path)!r}, "-o", {str(tmp_path / "e")!r}) == 2
assert code_of("train", "--task", "sst2", "-o", {str(tmp_path / "t")!r}) == 2
assert code_of("sites", {str(fp32)!r}) == 2
assert not {{"torch", "transformers", "scipy"}} & set(sys.modules)
"""
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "1 row rejected" in done.stderr
    assert "torch is not installed; this needs it: pip install 'uatlite[torch]'" in done.stderr
    written = (tmp_path / "out.csv").read_text().splitlines()
    assert len(written) == 41


@pytest.mark.parametrize("scipy", [True, False])
def test_calibrating_without_torch_takes_scipy_alone(int8, labelled, tmp_path, scipy):
    """calibrate, recheck and predict of an exported classifier; and what is said of a name that is none."""
    rows = tmp_path / "rows.jsonl"
    texts, labels = labelled(300)
    lines = [{"text": text, "label": str(label)} for text, label in zip(texts, labels, strict=True)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    blocked = BLOCKED.replace('"scipy", ', "") if scipy else BLOCKED
    code = f"{blocked}\nfrom uatlite.cli import main\nmain(sys.argv[1:])"

    def run(*arguments):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run("calibrate", int8, rows, "--target-risk", 0.9, "-o", tmp_path / "clf")
    if not scipy:
        assert done.stderr == "Error: scipy is not installed; this needs it: pip install 'uatlite[calibrate]'\n"
        gone = run("predict", "my-clasifier", rows, "-o", tmp_path / "out.csv")
        assert "my-clasifier is no directory here, and a model of the hub needs PyTorch" in gone.stderr
        return
    assert done.returncode == 0, done.stderr
    assert "The promise holds" in run("recheck", tmp_path / "clf", rows).stderr
    assert "300 rows scored" in run("predict", tmp_path / "clf", rows, "-o", tmp_path / "out.csv").stderr
