"""A classifier on disk: the round trip, what transformers sees of it, and what is refused."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertTokenizer

from reference import refuses
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.errors import CalibrationError, ConfigurationError, DataError, ModelError, StoreError
from uatlite.passes.config import UATConfig


@pytest.fixture
def saved(calibrated, tmp_path):
    calibrated.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("options", [{"windows": True, "max_length": 18}, {"seed": 5}, {"indices": True}])
def test_arguments_come_back(build, tmp_path, options):
    build(UATConfig(samples=2, gate="k"), **options).save_pretrained(tmp_path / "c")
    loaded = UncertaintyClassifier.from_pretrained(tmp_path / "c")
    assert loaded.method.name == "uat:samples=2,gate=k"
    assert {name: getattr(loaded, name) for name in options} == options
    assert loaded.calibration_ is None


def test_transformers_alone_loads_it(saved, calibrated):
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(saved), AutoTokenizer.from_pretrained(saved)
    own, loaded = calibrated.model.state_dict(), model.state_dict()
    assert own.keys() == loaded.keys()
    assert all(torch.equal(own[name], loaded[name]) for name in own)
    inputs = tokenizer(["a1 a2 a3"], return_tensors="pt")
    with torch.no_grad():  # where a tensor lies in memory may change the last bit of a product
        torch.testing.assert_close(model(**inputs).logits, calibrated.model(**inputs).logits, rtol=0, atol=1e-5)


def test_a_changed_model_is_an_error(saved):
    model = AutoModelForSequenceClassification.from_pretrained(saved)
    with torch.no_grad():
        model.classifier.bias[0] += 1e-3
    model.save_pretrained(saved)
    with pytest.raises(ModelError, match="is not the one that was calibrated"):
        UncertaintyClassifier.from_pretrained(saved)
    assert UncertaintyClassifier.from_pretrained(saved, calibrated=False).calibration_ is None


def test_a_changed_tokenizer_is_an_error(saved, tokenizer):
    vocabulary = dict(tokenizer.get_vocab())
    vocabulary["the"] = vocabulary.pop("a55")
    BertTokenizer(vocab=vocabulary).save_pretrained(saved)
    with pytest.raises(CalibrationError, match="calibrated with tokenizer"):
        UncertaintyClassifier.from_pretrained(saved).predict(["a1"])


def test_another_method_is_an_error_and_not_a_silent_reuse(saved):
    load = UncertaintyClassifier.from_pretrained
    refuses(
        (CalibrationError, "method distilled, now base", lambda: load(saved, method="base").predict(["a1"])),
        (ConfigurationError, "give one", lambda: load(saved, "uat", method="base")),
    )


def test_a_model_that_changed_since_is_not_saved(calibrated, tmp_path):
    with torch.no_grad():
        calibrated.model.classifier.bias[0] += 1.0
    with pytest.raises(CalibrationError, match="changed since it was calibrated"):
        calibrated.save_pretrained(tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_the_weights_are_hashed_once_until_they_change(build, monkeypatch):
    clf, hashed = build(), []
    monkeypatch.setattr("uatlite.model.load.model_hash", lambda model: f"{len(hashed)}{hashed.append(model)}")
    assert clf.runtime.hash == clf.runtime.hash
    assert len(hashed) == 1
    with torch.no_grad():
        clf.model.classifier.weight.mul_(2.0)
    before = clf.runtime.hash
    clf.rename_classes(["x", "y", "z"])
    assert clf.runtime.hash != before
    assert len(hashed) == 3


def test_an_existing_classifier_is_written_over_only_if_asked(saved, calibrated):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    with pytest.raises(DataError, match=r"is not empty; give another directory, .*overwrite=True"):
        calibrated.save_pretrained(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    calibrated.calibration_ = None
    calibrated.save_pretrained(saved, overwrite=True)
    assert UncertaintyClassifier.from_pretrained(saved).calibration_ is None


def test_broken_files_say_so(saved):
    path, missing = saved / "uatlite.json", r"stored Calibration is broken \(model_hash: it is missing\)"
    whole = path.read_text()
    state = json.loads(whole)
    without = {name: value for name, value in state["calibration"].items() if name != "model_hash"}
    for written, error, message in (
        (json.dumps({**state, "calibration": without}), StoreError, missing),
        (json.dumps({**state, "format": 99}), ModelError, "format 99"),
        ("{", ModelError, r"uatlite\.json is broken"),
        (whole, ModelError, "copy the whole directory"),
    ):
        path.write_text(written)
        if written == whole:
            (saved / "uatlite.safetensors").unlink()
        with pytest.raises(error, match=message):
            UncertaintyClassifier.from_pretrained(saved)


def test_a_plain_model_has_no_calibration(build, tmp_path):
    clf = build()
    clf.model.save_pretrained(tmp_path)
    clf.tokenizer.save_pretrained(tmp_path)
    loaded = UncertaintyClassifier.from_pretrained(tmp_path)
    assert (
        repr(loaded) == "UncertaintyClassifier(BertForSequenceClassification, 'distilled', 3 classes, not calibrated)"
    )


def test_the_card_states_what_was_measured_on_what(saved, calibrated, tmp_path, made_texts):
    card = (saved / "README.md").read_text(encoding="utf-8")
    figures = calibrated.calibration_.figures
    assert calibrated.calibration_.rule.describe() in card
    assert "Calibration data: 200 rows that did not fit the calibrator." in card
    assert f"| accuracy | {figures.uncalibrated['accuracy'].point:.3f} (" in card
    held_out = calibrated.evaluate(made_texts(50, seed=3), [0, 1] * 25, name="the test set")
    calibrated.save_pretrained(tmp_path / "other", evaluation=held_out)
    assert "The test set: 50 rows." in (tmp_path / "other" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\n")


def test_the_hub_gets_the_whole_directory(calibrated, monkeypatch):
    sent = {}

    class FakeApi:
        def create_repo(self, name, **options):
            sent["created"] = (name, options)
            return f"https://hub/{name}"

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            sent["uploaded"] = repo_id, sorted(path.name for path in Path(folder_path).iterdir()), commit_message

    monkeypatch.setattr("huggingface_hub.HfApi", FakeApi)
    assert calibrated.push_to_hub("me/model", private=True) == "https://hub/me/model"
    assert sent["created"] == ("me/model", {"private": True, "exist_ok": True})
    name, files, _ = sent["uploaded"]
    assert name == "me/model"
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert {"uatlite.json", "uatlite.safetensors"} <= set(files)


def test_a_method_that_learned_keeps_it_without_its_calibration(build, calibrated, tmp_path, made_texts):
    alone = build(calibrated.calibration_.settings.method)
    alone.save_pretrained(tmp_path / "alone")
    loaded = UncertaintyClassifier.from_pretrained(tmp_path / "alone")
    assert loaded.calibration_ is None
    assert not loaded.method.learns
    texts = made_texts(5)
    found, expected = loaded.predict(texts), alone.predict(texts)
    assert found.passes.tolist() == [1] * 5
    assert found.variance == pytest.approx(expected.variance, rel=1e-4)
    assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-5)
