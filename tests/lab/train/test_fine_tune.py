"""Fine-tuning: it learns, it can be repeated and resumed to the bit, and it leaves the process as it was."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers.utils import logging

from uatlite.errors import ConfigurationError, DataError, ModelError
from uatlite.lab.train.fine_tune import Advance, fine_tune, with_new_head
from uatlite.lab.train.recipe import CHECKPOINTS, RECORD, Recipe, TrainingJob, finished
from uatlite.model.load import load_checkpoint
from uatlite.values import Choices, Dataset, Example

Stop = Callable[[int], Advance]
Same = Callable[[Path, Path], bool]
QUICK = Recipe(learning_rate=3e-3, warmup_steps=2, batch_size=8, epochs=2)  # 12 steps of the 48 rows


def weights(directory: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(directory / "model.safetensors")
    return found


@pytest.fixture(scope="module")
def whole(backbone: Path, train: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that nothing interrupted."""
    directory = tmp_path_factory.mktemp("whole")
    fine_tune(TrainingJob(backbone, train, recipe=QUICK, seed=3), directory)
    return directory


def test_it_learns_and_the_directory_is_a_classifier_with_label_names(
    backbone: Path, train: Dataset, validation: Dataset, tmp_path: Path
) -> None:
    trained = fine_tune(TrainingJob(backbone, train, validation=validation, recipe=replace(QUICK, epochs=10)), tmp_path)
    checkpoint = load_checkpoint(tmp_path, kind="one", device="cpu")
    assert checkpoint.id2label == {0: "negative", 1: "positive"}
    encoded = checkpoint.tokenizer(validation.texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits = checkpoint.model(**encoded).logits
    assert logits.argmax(dim=1).tolist() == validation.gold
    nll = torch.nn.functional.cross_entropy(logits, torch.tensor(validation.gold))
    assert trained.validation_nll == pytest.approx(float(nll), rel=1e-4)


def test_the_directory_holds_no_pickle_and_a_record(whole: Path, backbone: Path, train: Dataset) -> None:
    assert not [path for path in whole.rglob("*") if path.suffix in (".bin", ".pt", ".pth", ".pkl")]
    assert not (whole / CHECKPOINTS).exists()
    record = json.loads((whole / RECORD).read_text())
    assert record["steps"] == QUICK.steps(len(train)) == 12
    assert record["source"] == "48 toy rows"
    assert finished(whole, TrainingJob(backbone, train, recipe=QUICK, seed=3).run()) is not None
    assert finished(whole, TrainingJob(backbone, train, recipe=QUICK, seed=4).run()) is None
    assert finished(backbone, TrainingJob(backbone, train, recipe=QUICK, seed=3).run()) is None


def test_a_record_from_before_a_setting_existed_has_its_default(
    whole: Path, backbone: Path, train: Dataset, tmp_path: Path
) -> None:
    record = json.loads((whole / RECORD).read_text())
    del record["run"]["recipe"]["precision"]
    (tmp_path / RECORD).write_text(json.dumps(record))
    assert finished(tmp_path, TrainingJob(backbone, train, recipe=QUICK, seed=3).run()) is not None
    assert (
        finished(tmp_path, TrainingJob(backbone, train, recipe=replace(QUICK, precision="bf16"), seed=3).run()) is None
    )


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
record = fine_tune(TrainingJob(backbone, data, validation=data, recipe=recipe), directory)
print(record.validation_nll, *products)
"""


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_precision_is_that_of_the_products_and_weights_stay_in_fp32(
    backbone: Path, tmp_path: Path, precision: str
) -> None:
    # A process of its own: some processors report bf16 units that trap, and this keeps oneDNN from using them.
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    command = [sys.executable, "-c", BF16, str(backbone), str(tmp_path), precision]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    nll, *products = done.stdout.split()
    assert products == [{"fp32": "torch.float32", "bf16": "torch.bfloat16"}[precision]]
    assert float(nll) < 0.1
    assert {one.dtype for one in weights(tmp_path).values()} == {torch.float32}


def test_the_seed_decides_the_weights(
    whole: Path, backbone: Path, train: Dataset, tmp_path: Path, same_weights: Same
) -> None:
    fine_tune(TrainingJob(backbone, train, recipe=QUICK, seed=3), tmp_path / "again")
    fine_tune(TrainingJob(backbone, train, recipe=QUICK, seed=4), tmp_path / "other")
    assert same_weights(tmp_path / "again", whole)
    assert not same_weights(tmp_path / "other", whole)


def test_another_run_is_not_resumed(backbone: Path, train: Dataset, tmp_path: Path, stop_after: Stop) -> None:
    with pytest.raises(KeyboardInterrupt):
        fine_tune(TrainingJob(backbone, train, recipe=QUICK), tmp_path, advance=stop_after(1))
    with pytest.raises(ConfigurationError, match="holds a run with another seed; resume with the settings"):
        fine_tune(TrainingJob(backbone, train, recipe=QUICK, seed=1), tmp_path, resume=True)


def test_a_patience_keeps_the_epoch_with_the_best_validation_nll(
    backbone: Path, train: Dataset, validation: Dataset, tmp_path: Path, same_weights: Same
) -> None:
    # With every validation label turned round, whatever is learned makes the NLL worse: the first epoch is the best.
    wrong = replace(validation, examples=tuple(replace(row, label=1 - (row.label or 0)) for row in validation.examples))
    recipe = replace(QUICK, epochs=6, patience=2)
    epoch = recipe.steps(len(train)) // recipe.epochs
    trained = {}
    for patience in (1, 2):
        job = TrainingJob(backbone, train, validation=wrong, recipe=replace(recipe, patience=patience))
        trained[patience] = fine_tune(job, tmp_path / str(patience))
        assert trained[patience].steps == (1 + patience) * epoch
    assert same_weights(tmp_path / "1", tmp_path / "2")
    assert trained[1].validation_nll == trained[2].validation_nll
    with pytest.raises(ConfigurationError, match="patience=2 needs validation rows"):
        fine_tune(TrainingJob(backbone, train, recipe=recipe), tmp_path)


def test_the_process_is_as_before_also_after_an_error(
    backbone: Path, train: Dataset, tmp_path: Path, stop_after: Stop
) -> None:
    def state() -> tuple[object, ...]:
        numpy = np.random.get_state()[1].tolist()  # noqa: NPY002
        return random.getstate(), numpy, torch.get_rng_state().tolist(), logging.get_verbosity()

    before = state()
    with pytest.raises(KeyboardInterrupt):
        fine_tune(TrainingJob(backbone, train, recipe=QUICK), tmp_path, advance=stop_after(1))
    assert state() == before
    with_new_head(backbone, ("a", "b", "c"))
    assert state() == before
    assert logging.is_progress_bar_enabled()


def test_several_processes_of_a_launcher_are_refused_before_anything_is_written(
    backbone: Path, train: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigurationError, match=r"^2 processes were started.*--num_processes 1 -m uatlite train"):
        fine_tune(TrainingJob(backbone, train), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_out_of_scope_label_gets_no_column(backbone: Path, tmp_path: Path) -> None:
    examples = [Example(str(i), "a good b", i % 3) for i in range(6)]
    dataset = Dataset("toy", "train", ("oos", "negative", "positive"), tuple(examples), "toy", out_of_scope=0)
    trained = fine_tune(TrainingJob(backbone, dataset, recipe=Recipe(batch_size=4, epochs=1)), tmp_path)
    assert trained.rows == 4
    assert load_checkpoint(tmp_path, device="cpu").id2label == {0: "negative", 1: "positive"}


def test_multiple_choice_gets_a_model_for_it(backbone: Path, tmp_path: Path) -> None:
    examples = [Example(str(i), Choices("a b", ("good", "bad c", "d")), i % 3) for i in range(6)]
    dataset = Dataset("toy", "train", ("A", "B", "C"), tuple(examples), "toy")
    fine_tune(TrainingJob(backbone, dataset, recipe=Recipe(batch_size=4, epochs=1)), tmp_path)
    assert type(load_checkpoint(tmp_path, device="cpu").model).__name__ == "BertForMultipleChoice"


def test_rows_without_labels_and_backbones_that_are_none_are_named(
    backbone: Path, train: Dataset, tmp_path: Path
) -> None:
    unlabelled = Dataset("toy", "train", ("a", "b"), (Example("x7", "a"),), "toy")
    with pytest.raises(DataError, match="row x7 has no label"):
        fine_tune(TrainingJob(backbone, unlabelled), tmp_path / "a")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"holds no config\.json, so it is not a saved model"):
        fine_tune(TrainingJob(tmp_path / "empty", train), tmp_path / "b")
    (tmp_path / "empty" / "config.json").write_text("{}")
    (tmp_path / "empty" / "model.safetensors").touch()
    with pytest.raises(ModelError, match=r"cannot be fine-tuned: .* Give 'minilm'"):
        fine_tune(TrainingJob(tmp_path / "empty", train), tmp_path / "b")
