"""Fine-tuning: it learns, it can be repeated and resumed to the bit, and it leaves the process as it was; recipes."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForSequenceClassification, BertForTokenClassification, BertTokenizer
from transformers.utils import logging

from uatlite.errors import ConfigurationError, DataError, ModelError
from uatlite.lab.train.dataset import NO_TAG, kind_of, training_rows
from uatlite.lab.train.fine_tune import fine_tune, start_at_base_rates, with_new_head
from uatlite.lab.train.methods import METHOD_TRAININGS, parse_training
from uatlite.lab.train.recipe import CHANGES, CHECKPOINTS, DEMO, RECIPES, RECORD, Recipe, finished, recipe_for
from uatlite.model.load import load_checkpoint
from uatlite.text.schema import catalogue
from uatlite.values import Choices, Dataset, Example, Span, Words

LONG = Recipe(learning_rate=5e-3, warmup_steps=2, batch_size=8, epochs=15, group_by_length=True)


@pytest.fixture(scope="module")
def whole(job, tmp_path_factory):
    """The directory of a run that nothing interrupted."""
    directory = tmp_path_factory.mktemp("whole")
    fine_tune(job, directory)
    return directory


LEARNED = {
    "train": (BertForSequenceClassification, ("negative", "positive"), lambda logits: logits.argmax(dim=-1)),
    "tagged": (BertForTokenClassification, ("O", "B-B", "I-B", "B-G", "I-G"), lambda logits: logits.argmax(dim=-1)),
    "labelled": (BertForSequenceClassification, ("bad", "good"), lambda logits: (logits > 0).float()),
}
"""Rows -> the model that they make, its columns, and what its logits say"""


@pytest.mark.parametrize("name", LEARNED)
def test_it_learns_and_the_directory_is_a_classifier_with_label_names(name, job, tmp_path, request):
    data, (made, columns, said) = request.getfixturevalue(name), LEARNED[name]
    fine_tune(replace(job, train=data, recipe=LONG), tmp_path)
    checkpoint = load_checkpoint(tmp_path, kind=kind_of(data), device="cpu")
    assert type(checkpoint.model) is made
    assert tuple(checkpoint.id2label.values()) == columns
    assert (checkpoint.model.config.problem_type == "multi_label_classification") == (name == "labelled")
    rows = training_rows(data, checkpoint.model, checkpoint.tokenizer, None)
    batch = rows.batch(range(len(rows)))
    with torch.inference_mode():
        outputs = checkpoint.model(**batch)
    asked = batch["labels"] != NO_TAG
    assert torch.equal(said(outputs.logits)[asked], batch["labels"][asked])


def test_another_seed_gives_other_weights(whole, job, tmp_path, same_weights):
    fine_tune(replace(job, seed=4), tmp_path)
    assert not same_weights(tmp_path, whole)


def test_the_directory_holds_no_pickle_and_a_record(whole, backbone, job):
    assert not [path for path in whole.rglob("*") if path.suffix in (".bin", ".pt", ".pth", ".pkl")]
    assert not (whole / CHECKPOINTS).exists()
    record = json.loads((whole / RECORD).read_text())
    assert record["steps"] == job.recipe.steps(len(job.train)) == 12
    assert record["source"] == "48 toy rows"
    assert finished(whole, job.run()) is not None
    assert finished(whole, replace(job, seed=4).run()) is None
    assert finished(backbone, job.run()) is None


def test_a_record_from_before_a_setting_existed_has_its_default(whole, job, tmp_path):
    record = json.loads((whole / RECORD).read_text())
    del record["run"]["recipe"]["precision"]
    (tmp_path / RECORD).write_text(json.dumps(record))
    assert finished(tmp_path, job.run()) is not None
    assert finished(tmp_path, replace(job, recipe=replace(job.recipe, precision="bf16")).run()) is None


def test_a_record_from_before_early_stopping_went_holds_unless_it_did_stop_early(whole, job, tmp_path):
    record = json.loads((whole / RECORD).read_text()) | {"validation_nll": 0.3}
    for patience, holds in ((None, True), (2, False)):
        record["run"]["validation"] = None if holds else "3f2a"
        record["run"]["recipe"]["patience"] = patience
        (tmp_path / RECORD).write_text(json.dumps(record))
        assert (finished(tmp_path, job.run()) is not None) == holds


BF16 = """
import sys, torch
from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.recipe import Recipe, TrainingJob
from uatlite.values import Dataset, Example

backbone, directory, precision = sys.argv[1:]
texts = [("a good film", 1), ("a bad film", 0), ("good good", 1), ("bad bad", 0)] * 12
rows = tuple(Example(str(place), text, label) for place, (text, label) in enumerate(texts))
products = set()
multiply = torch.nn.functional.linear

def watched(*arguments):
    result = multiply(*arguments)
    products.add(str(result.dtype))
    return result

torch.nn.functional.linear = watched
recipe = Recipe(learning_rate=3e-3, warmup_steps=2, batch_size=8, epochs=8, precision=precision)
data = Dataset("toy", "train", ("negative", "positive"), rows, "toy rows")
fine_tune(TrainingJob(backbone, data, recipe=recipe), directory)
print(*products)
"""


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_precision_is_that_of_the_products_and_weights_stay_in_fp32(backbone, tmp_path, precision):
    # A process of its own: some processors report bf16 units that trap, and this keeps oneDNN from using them.
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    command = [sys.executable, "-c", BF16, str(backbone), str(tmp_path), precision]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [{"fp32": "torch.float32", "bf16": "torch.bfloat16"}[precision]]
    learned = load_checkpoint(tmp_path, device="cpu")
    batch = learned.tokenizer(["a good film", "bad bad"], padding=True, return_tensors="pt")
    with torch.inference_mode():
        assert float(learned.model(**batch, labels=torch.tensor([1, 0])).loss) < 0.1
    assert {one.dtype for one in load_file(tmp_path / "model.safetensors").values()} == {torch.float32}


def test_another_run_is_not_resumed(job, tmp_path, stop_after):
    with pytest.raises(KeyboardInterrupt):
        fine_tune(job, tmp_path, advance=stop_after(1))
    with pytest.raises(ConfigurationError, match="holds a run with another seed; resume with the settings"):
        fine_tune(replace(job, seed=1), tmp_path, resume=True)
    begun = tmp_path / CHECKPOINTS / "run.json"
    run = json.loads(begun.read_text())
    begun.write_text(json.dumps(run | {"validation": None, "recipe": run["recipe"] | {"patience": None}}))
    with pytest.raises(ConfigurationError, match=r"holds a run with another recipe; .* train into another directory"):
        fine_tune(job, tmp_path, resume=True)  # begun before early stopping went


def test_the_process_is_as_before_also_after_an_error(job, tmp_path, stop_after):
    def state():
        numpy = np.random.get_state()[1].tolist()  # noqa: NPY002
        return random.getstate(), numpy, torch.get_rng_state().tolist(), logging.get_verbosity()

    before = state()
    with pytest.raises(KeyboardInterrupt):
        fine_tune(job, tmp_path, advance=stop_after(1))
    assert state() == before
    with_new_head(job.backbone, ("a", "b", "c"))
    assert state() == before
    assert logging.is_progress_bar_enabled()


def test_several_processes_of_a_launcher_are_refused_before_anything_is_written(job, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigurationError, match=r"^2 processes were started.*--num_processes 1 -m uatlite train"):
        fine_tune(job, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_out_of_scope_label_gets_no_column(job, tmp_path):
    examples = tuple(Example(str(i), "a good b", i % 3) for i in range(6))
    dataset = Dataset("toy", "train", ("oos", "negative", "positive"), examples, "toy", out_of_scope=0)
    assert fine_tune(replace(job, train=dataset), tmp_path).rows == 4
    assert load_checkpoint(tmp_path, device="cpu").id2label == {0: "negative", 1: "positive"}


def test_multiple_choice_gets_a_model_for_it(job, tmp_path):
    examples = tuple(Example(str(i), Choices("a b", ("good", "bad c", "d")), i % 3) for i in range(6))
    fine_tune(replace(job, train=Dataset("toy", "train", ("A", "B", "C"), examples, "toy")), tmp_path)
    assert type(load_checkpoint(tmp_path, device="cpu").model).__name__ == "BertForMultipleChoice"


def test_rows_without_gold_are_named(job, tagged, labelled, tmp_path):
    for rows in (job.train, tagged, labelled):
        bare = replace(rows.examples[3], id="3", label=None, entities=None, labels=None)
        missing = replace(rows, examples=(*rows.examples[:3], bare))
        with pytest.raises(DataError, match="toy/train: row 3 has no label; training needs them all"):
            fine_tune(replace(job, train=missing), tmp_path)


def test_backbones_that_are_none_are_named(job, tmp_path):
    empty = replace(job, backbone=tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"holds no config\.json, so it is not a saved model"):
        fine_tune(empty, tmp_path / "b")
    (tmp_path / "empty" / "config.json").write_text("{}")
    (tmp_path / "empty" / "model.safetensors").touch()
    with pytest.raises(ModelError, match=r"cannot be fine-tuned: .* Give 'minilm'"):
        fine_tune(empty, tmp_path / "b")


# ── entities, and several labels a text ──


def test_tags_are_at_the_first_token_of_each_word_of_the_tokenizer(tmp_path, tiny):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ada", "love", "##lace", "@", "in", "."]
    tokenizer = BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})
    model = tiny("bert")
    examples = (
        Example("0", Words(("@ada", "lovelace", "in", "ada", "love.")), entities=(Span(0, 13, "P"), Span(17, 20, "L"))),
        Example("1", "in lovelace", entities=(Span(7, 11, "P"),)),  # an entity that begins inside a word
    )
    data = Dataset("toy", "train", ("P", "L"), examples, "here")
    rows = training_rows(data, model, tokenizer, None)
    none, out, begin, inside, other = NO_TAG, 0, 1, 2, 3
    # [CLS] @ ada love ##lace in ada love . [SEP]
    assert rows.labels[0] == [none, begin, inside, inside, none, out, other, out, out, none]
    assert rows.labels[1] == [none, out, begin, none, none]
    batch = rows.batch((0, 1))
    assert batch["labels"].shape == batch["input_ids"].shape
    assert batch["labels"][1].tolist() == rows.labels[1] + [none] * 5
    tokenizer.padding_side = "left"  # makes no difference
    assert rows.batch((0, 1))["labels"].equal(batch["labels"])
    cut = training_rows(data, model, tokenizer, 8)
    assert cut.labels[0] == [none, begin, inside, inside, none, out, other, none]


@pytest.mark.parametrize("kind", ["tagged", "labelled"])
def test_an_ensemble_has_members_and_methods_for_one_answer_refuse(kind, job, tmp_path, request):
    job = replace(job, train=request.getfixturevalue(kind), recipe=replace(job.recipe, epochs=1))
    fine_tune(job, tmp_path / "ensemble", parse_training("ensemble:members=2"))
    members = load_file(tmp_path / "ensemble" / "uatlite-method.safetensors")["members"]
    assert len(members) == 1
    assert members.shape[1] == load_checkpoint(tmp_path / "ensemble", device="cpu").model.num_parameters()
    for name in ("swag", "laplace", "sngp", "vi-last-layer"):
        with pytest.raises(ConfigurationError, match=f"{name} cannot be trained on the kind"):
            fine_tune(job, tmp_path / name, METHOD_TRAININGS[name])
        assert not (tmp_path / name).exists()


def test_a_head_for_one_class_forgets_that_its_backbone_had_many(backbone, tmp_path):
    model, tokenizer = with_new_head(backbone, ("a", "b"), kind="labels")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert with_new_head(tmp_path, ("a", "b"))[0].config.problem_type is None


def test_a_new_head_of_many_labels_starts_at_their_base_rates(backbone, labelled):
    rows = replace(labelled, examples=labelled.examples[:11])  # 'bad' in 5 of them, 'good' in 5
    rows = replace(rows, examples=(*rows.examples, replace(rows.examples[0], labels=(1,))))
    model, _ = with_new_head(backbone, rows.labels, kind="labels")
    start_at_base_rates(model, rows)
    shares = torch.tensor([sum(label in (one.labels or ()) for one in rows.examples) for label in (0, 1)])
    expected = torch.log((shares + 0.5) / (12 - shares + 0.5))
    assert expected[0] != expected[1]
    torch.testing.assert_close(model.classifier.bias, expected)
    start_at_base_rates(model, labelled)
    torch.testing.assert_close(model.classifier.bias, expected)  # no longer new


# ── recipes ──


def test_the_defaults_are_the_papers():
    assert RECIPES["paper"] == Recipe(
        learning_rate=2e-5, warmup_steps=500, batch_size=16, epochs=3, weight_decay=0.01, clip=1.0
    )


def test_steps_count_the_last_short_batch():
    assert Recipe(batch_size=16, epochs=3).steps(33) == 9
    assert DEMO.steps(DEMO.batch_size) == DEMO.epochs


LEAST = {"learning_rate": 0, "warmup_steps": -1, "batch_size": 0, "epochs": 0, "weight_decay": -0.1, "clip": 0}


@pytest.mark.parametrize(("name", "value"), [*LEAST.items(), ("max_length", 2)])
def test_settings_outside_what_is_allowed_are_named(name, value):
    with pytest.raises(ConfigurationError, match=rf"Recipe\({name}=.*is not allowed"):
        Recipe(**{name: value})
    with pytest.raises(ConfigurationError, match="precision='fp16' is not one of: fp32, bf16"):
        Recipe(precision="fp16")


def test_a_task_changes_its_recipe_and_no_other():
    assert recipe_for("few-rows") == recipe_for("few-rows", "rotten-tomatoes") == RECIPES["few-rows"]
    assert recipe_for("few-rows", "sst2").epochs == 1 < RECIPES["few-rows"].epochs
    assert recipe_for("few-rows", "sst2").max_length == RECIPES["few-rows"].max_length
    assert recipe_for("paper", "sst2") == RECIPES["paper"]
    with pytest.raises(ConfigurationError, match="not one of: paper, demo, few-rows"):
        recipe_for("few")


def test_the_changes_are_for_tasks_that_there_are():
    assert {task for changes in CHANGES.values() for task in changes} <= set(catalogue())
