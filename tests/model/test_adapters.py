"""LoRA adapters of the real library: merged, they say what PEFT's model says; a missing head is an error."""

import json

import numpy as np
import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModel, AutoModelForCausalLM

import uatlite
from decoders import language_model, tokenizer_of
from uatlite import LabelPrompt, UncertaintyClassifier
from uatlite.errors import MissingDependency, ModelError, NotAClassifier
from uatlite.model.load import load_checkpoint

TASKS = {
    "one": ("SEQ_CLS", {"num_labels": 4, "id2label": dict(enumerate("abcd"))}),
    "labels": ("SEQ_CLS", {"problem_type": "multi_label_classification", "num_labels": 3}),
    "entities": ("TOKEN_CLS", {"tokens": True, "num_labels": 5}),
}
TARGETS = {"bert": ["query", "value"], "gpt2": ["c_attn"], "llama": ["q_proj", "v_proj"]}


@pytest.fixture
def adapted(tiny, tokenizer, tmp_path):
    """`adapted(name="bert", kind="one", beside=False, **config)`: PEFT's model, and the directory of its adapter.

    Its base is saved without a head; `beside` saves the configuration of the adapted model too.
    """

    def make(name="bert", kind="one", beside=False, **changes):
        task, settings = TASKS[kind]
        model = tiny(name, **settings)
        model.base_model.save_pretrained(tmp_path / "base")
        path = tmp_path / "base" / "config.json"
        told = json.loads(path.read_text())
        path.write_text(json.dumps({key: told[key] for key in told.keys() - {"id2label", "label2id", "problem_type"}}))
        tokenizer.save_pretrained(tmp_path / "base")
        config = {
            "task_type": task,
            "r": 4,
            "target_modules": TARGETS[name],
            "fan_in_fan_out": name == "gpt2",
            **changes,
        }
        model.config._name_or_path = model.name_or_path = str(tmp_path / "base")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            peft = get_peft_model(model, LoraConfig(**config)).eval()
            for key, parameter in peft.named_parameters():
                if "lora_" in key or "modules_to_save" in key:
                    parameter.data.normal_(0, 0.3)
        peft.save_pretrained(tmp_path / "adapter")
        if beside:
            model.config.save_pretrained(tmp_path / "adapter")
        return peft, tmp_path / "adapter"

    return make


@pytest.mark.parametrize(
    "name, kind, beside",
    [
        ("bert", "one", False),
        ("gpt2", "one", True),
        ("llama", "one", False),
        ("bert", "labels", True),
        ("bert", "entities", False),
    ],
)
def test_it_says_what_peft_says(adapted, texts, name, kind, beside):
    peft, directory = adapted(name, kind, beside)
    files = {path.name: path.read_bytes() for path in (*directory.iterdir(), *(directory.parent / "base").iterdir())}
    checkpoint = load_checkpoint(directory, kind=kind, device="cpu")
    encoded = texts((9, 5, 7))
    with torch.no_grad():
        expected, logits = peft(**encoded).logits, checkpoint.model(**encoded).logits
    real = encoded["attention_mask"].bool() if kind == "entities" else slice(None)
    torch.testing.assert_close(logits[real], expected[real], atol=1e-5, rtol=0)
    assert type(checkpoint.model) is type(peft.base_model.model)
    assert checkpoint.model.config.num_labels == TASKS[kind][1]["num_labels"]
    assert list(checkpoint.id2label.values())[:2] == (
        ["a", "b"] if beside and kind == "one" else ["LABEL_0", "LABEL_1"]
    )
    assert not [key for key in checkpoint.model.state_dict() if "lora" in key or "modules_to_save" in key]
    assert files == {
        path.name: path.read_bytes() for path in (*directory.iterdir(), *(directory.parent / "base").iterdir())
    }


@pytest.mark.parametrize("kind", TASKS)
def test_it_is_calibrated_and_saved_as_one_model(adapted, made_texts, kind, tmp_path):
    _, directory = adapted("bert", kind, beside=kind == "labels")
    product, rows = uatlite.load(directory), made_texts(60)
    said = product.predict(rows, check_shift=False)
    gold = {"one": lambda: said.labels, "labels": lambda: np.eye(3, dtype=int)[np.arange(60) % 3]}
    product.calibrate(rows, gold[kind]() if kind in gold else [[(0, 2, 1)]] * 60)
    product.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved" / "adapter_config.json").exists()
    expected, loaded = product.predict(rows[:9], check_shift=False), uatlite.load(tmp_path / "saved")
    again = loaded.predict(rows[:9], check_shift=False)
    np.testing.assert_allclose(again.confidence, expected.confidence, atol=1e-5)


@pytest.mark.parametrize(
    "method", ["base", "distilled", "uat:samples=2", "fast:samples=2", "mc-uniform:samples=2", "analytic"]
)
def test_every_method_runs(adapted, made_texts, method):
    said = uatlite.load(adapted()[1], method=method).predict(made_texts(4))
    assert np.isfinite(said.probabilities).all()


def test_a_head_that_was_not_saved_is_an_error(adapted):
    _, directory = adapted(task_type=None)
    config = json.loads((directory / "adapter_config.json").read_text())
    (directory / "adapter_config.json").write_text(json.dumps(config | {"task_type": "SEQ_CLS"}))
    with pytest.raises(NotAClassifier, match=r"no weights for classifier\.bias, classifier\.weight.*modules_to_save"):
        load_checkpoint(directory)


def test_a_base_with_a_head_of_its_own_serves_an_adapter_without_one(adapted, tiny, tokenizer, texts):
    peft, directory = adapted(task_type=None)
    trained = directory.parent / "trained"
    tiny("bert", **TASKS["one"][1]).save_pretrained(trained)
    tokenizer.save_pretrained(trained)
    checkpoint = load_checkpoint(directory, base=trained, device="cpu")
    with torch.no_grad():
        encoded = texts((9, 5, 7))
        torch.testing.assert_close(checkpoint.model(**encoded).logits, peft(**encoded).logits, atol=1e-5, rtol=0)


def test_the_base_is_named_or_given(adapted, texts, tokenizer):
    _, directory = adapted()
    expected = load_checkpoint(directory, device="cpu").hash
    moved = directory.parent.rename(directory.parent.with_name("moved"))
    with pytest.raises(ModelError, match=r"the base of the adapter .* is not a directory.*Give it by base="):
        load_checkpoint(moved / "adapter")
    assert load_checkpoint(moved / "adapter", base=moved / "base", device="cpu").hash == expected
    assert uatlite.load(moved / "adapter", base=moved / "base").settings.method.name == "distilled"


def test_another_base_is_said(adapted, tiny, tokenizer, tmp_path):
    _, directory = adapted()
    other = tiny("bert", hidden_size=16, num_labels=4)
    other.save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(ModelError, match=r"cannot be merged into .*other.*give the base that it was trained on"):
        load_checkpoint(directory, base=tmp_path / "other")


def test_an_adapter_of_a_language_model_is_asked(tmp_path):
    tokenizer = tokenizer_of()
    model = language_model("llama", tokenizer)
    for place in (tmp_path / "base", tmp_path / "adapter"):
        tokenizer.save_pretrained(place)
    model.save_pretrained(tmp_path / "base")
    lm = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    peft = get_peft_model(lm, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=TARGETS["llama"])).eval()
    for key, parameter in peft.named_parameters():
        if "lora_" in key:
            parameter.data.normal_(0, 0.3)
    peft.save_pretrained(tmp_path / "adapter")
    prompt = LabelPrompt("Review: {text}\nSentiment:", ["negative", "positive"])
    checkpoint = load_checkpoint(tmp_path / "adapter", prompt=prompt, device="cpu")
    words = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in ("negative", "positive")]
    inputs = checkpoint.tokenizer("the film", return_tensors="pt")
    with torch.no_grad():
        expected = peft(**inputs).logits[:, -1, words]
        torch.testing.assert_close(checkpoint.model(**inputs).logits, expected, atol=1e-5, rtol=0)


def broken(directory, change):
    path = directory / "adapter_config.json"
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))


def test_broken_adapters_are_said(adapted, tmp_path):
    _, directory = adapted()
    whole = (directory / "adapter_config.json").read_text()
    broken(directory, "{")
    with pytest.raises(ModelError, match=r"is broken .*copy it again"):
        load_checkpoint(directory)
    broken(directory, whole)
    broken(directory, {"base_model_name_or_path": None})
    with pytest.raises(ModelError, match=r"does not name its base; give it: base="):
        load_checkpoint(directory)
    broken(directory, whole)
    (directory / "adapter_model.safetensors").rename(directory / "adapter_model.bin")
    with pytest.raises(
        ModelError, match=r"holds no adapter_config\.json with adapter_model\.safetensors.*save one with PEFT"
    ):
        load_checkpoint(directory)


def test_prompt_tuning_cannot_be_merged(tiny, tokenizer, tmp_path):
    base = tiny("bert", num_labels=4)
    base.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    base.name_or_path = str(tmp_path / "base")
    get_peft_model(base, PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)).save_pretrained(
        tmp_path / "prompt"
    )
    with pytest.raises(ModelError, match="Adapters that add tokens to a prompt cannot be merged at all"):
        load_checkpoint(tmp_path / "prompt")


def test_a_wrapped_model_is_merged_first(adapted, tokenizer, made_texts):
    peft, directory = adapted()
    with pytest.raises(ModelError, match=r"PEFT has wrapped; give model\.merge_and_unload\(\)"):
        UncertaintyClassifier(peft, tokenizer)
    merged, texts = UncertaintyClassifier(peft.merge_and_unload(), tokenizer), made_texts(4)
    expected = uatlite.load(directory).predict(texts).probabilities
    np.testing.assert_allclose(merged.predict(texts).probabilities, expected, atol=1e-5)


def test_peft_is_an_extra(adapted, monkeypatch):
    _, directory = adapted()
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(MissingDependency, match=r"pip install 'uatlite\[peft\]'"):
        load_checkpoint(directory)


def test_the_headless_base_alone_is_no_classifier(adapted):
    _, directory = adapted()
    assert AutoModel.from_pretrained(directory.parent / "base").config.architectures == ["BertModel"]
    with pytest.raises(NotAClassifier):
        load_checkpoint(directory.parent / "base")
