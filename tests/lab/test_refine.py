"""Refining: a student of every kind learns from its teachers, a kill loses nothing, and worse is not written."""

import gc
import json
import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from safetensors.torch import load_file
from transformers import PreTrainedModel

import uatlite
from uatlite.classifier.classifiers import load
from uatlite.classifier.product import KINDS
from uatlite.errors import ConfigurationError, DataError, ModelError
from uatlite.lab import refine as refining
from uatlite.lab.evaluate.store import Store
from uatlite.lab.refine import REFINED, Refinement, refine
from uatlite.lab.train.recipe import CHECKPOINTS, Recipe
from uatlite.model.load import load_checkpoint
from uatlite.model.weights import MethodWeights, attach, flat_parameters
from uatlite.text.write import Pieces, read_record
from uatlite.values import Choices, Words

FAST = Recipe(learning_rate=2e-3, warmup_steps=2, batch_size=16, epochs=4, group_by_length=True)
SHORT = Recipe(learning_rate=1e-3, warmup_steps=2, batch_size=8, epochs=2, group_by_length=True)


def of_kind(kind, texts):
    return [Choices(text, ("a1 a2", "a3 a9 a4", "a5")) for text in texts] if kind == "choice" else list(texts)


def save(product, directory, shift=0.0):
    """The model on disk; with `shift` one whose answers differ."""
    if shift:
        generator = np.random.default_rng(3)
        for parameter in product.model.parameters():
            noise = generator.normal(0, shift, size=tuple(parameter.shape))
            parameter.data += parameter.new_tensor(noise)
    directory.mkdir()
    product.runtime.save(directory)
    return directory


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def says(directory, texts):
    """The labels that a model gives."""
    return load(directory, method="base", calibrated=False).predict(texts).labels


@pytest.fixture(scope="module", params=KINDS)
def pair(request, product_of, made_texts, tmp_path_factory):
    """A student and another model of the same kind, on disk, and texts."""
    kind, home = request.param, tmp_path_factory.mktemp(request.param)
    student, teacher = save(product_of(kind), home / "student"), save(product_of(kind), home / "teacher", 0.1)
    return kind, student, teacher, of_kind(kind, made_texts(240))


@pytest.fixture(scope="module")
def ones(product_of, made_texts, tmp_path_factory):
    """A student, a teacher and texts of one class."""
    home = tmp_path_factory.mktemp("ones")
    return save(product_of("one"), home / "student"), save(product_of("one"), home / "teacher", 0.1), made_texts(240)


def test_a_student_of_every_kind_learns_what_its_teacher_says(pair, tmp_path):
    kind, student, teacher, texts = pair
    before = files(student)
    far = refine(student, texts, tmp_path / "far", teachers=[teacher], recipe=Recipe(learning_rate=1e-9, epochs=1))
    near = refine(student, texts, tmp_path / "near", teachers=[teacher], recipe=FAST)
    assert near.agreement > far.agreement
    assert near.texts == 228
    assert files(student) == before
    assert not (tmp_path / "near" / CHECKPOINTS).exists()
    assert json.loads((tmp_path / "near" / REFINED).read_text())["epoch"] == 4
    assert load(tmp_path / "near").kind.name == kind


def test_the_student_is_a_plain_checkpoint_that_can_be_calibrated(pair, tmp_path):
    kind, student, _, texts = pair
    refine(student, texts, tmp_path / "out", recipe=SHORT)
    product = load(tmp_path / "out", method="base")
    said = product.predict(texts, check_shift=False)
    gold = said.entities if kind == "entities" else said.labels
    if kind == "entities":
        gold = [[(e.start, e.end, e.label) for e in row][i % 3 == 0 :] for i, row in enumerate(gold)]
    elif kind == "labels":
        gold = [list(row)[i % 3 == 0 :] for i, row in enumerate(gold)]
    else:
        gold = [("A" if kind == "choice" else "bad") if i % 3 == 0 else label for i, label in enumerate(gold)]
    assert product.calibrate(texts, gold).calibration_.rows == len(texts)


class Watch:
    """Counts the models in memory, besides those that were there before; copies that share weights are one."""

    def __init__(self):
        self.stages, self.most, self.before = [], 0, self.models()

    def models(self):
        gc.collect()
        models = [model for model in gc.get_objects() if isinstance(model, PreTrainedModel)]
        return {model.get_input_embeddings().weight.data_ptr() for model in models}

    def begin(self, stage, total):
        self.stages.append((stage, total))
        self.most = max(self.most, len(self.models() - self.before))

    def step(self, what): ...

    def advance(self, amount):
        self.most = max(self.most, len(self.models() - self.before))


def test_one_model_is_in_memory_and_progress_knows_teachers_and_student(ones, tmp_path):
    student, teacher, texts = ones
    watch = Watch()
    refine(student, texts, tmp_path / "out", teachers=[student, teacher], recipe=SHORT, progress=watch)
    assert watch.stages == [(f"{student} teaches", 240), (f"{teacher} teaches", 240), ("training", 2 * -(-228 // 8))]
    assert watch.most == 1


RUN = """
import os, signal, sys
from uatlite.lab import refine as refining
from uatlite.lab.train.recipe import Recipe

student, teacher, texts, out, stage, after = sys.argv[1:]

class Killing:
    stage, done = "", 0
    def begin(self, stage, total):
        self.stage, self.done = stage, 0
    def step(self, what): ...
    def advance(self, amount):
        self.done += amount
        if self.stage.endswith(stage) and self.done >= float(after):
            os.kill(os.getpid(), signal.SIGKILL)

recipe = Recipe(learning_rate=1e-3, warmup_steps=2, batch_size=8, epochs=2, group_by_length=True)
rows = open(texts).read().splitlines()
refining.refine(student, rows, out, teachers=[teacher], recipe=recipe, progress=Killing())
"""


def test_a_killed_run_goes_on_and_ends_with_the_same_weights(ones, tmp_path, monkeypatch):
    """SIGKILL, for real: while the teacher speaks, and in the middle of training."""
    student, teacher, texts = ones
    (tmp_path / "texts").write_text("\n".join(texts))
    command = [sys.executable, "-c", RUN, student, teacher, tmp_path / "texts", tmp_path / "killed"]
    for stage, after in (("teaches", 100), ("training", 31)):
        process = subprocess.run(
            [*map(str, command), stage, str(after)], check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "killed" / REFINED).exists()
    asked = []
    monkeypatch.setattr(refining, "_probabilities", lambda *given: asked.append(given[1].name) or compute(*given))
    compute = _probabilities
    refine(student, texts, tmp_path / "killed", teachers=[teacher], recipe=SHORT)
    assert len(asked) == 1  # of the texts held back, by the student: the teacher is not asked again
    refine(student, texts, tmp_path / "whole", teachers=[teacher], recipe=SHORT)
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole")]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[1])


_probabilities = refining._probabilities


def test_a_checkpoint_that_a_kill_left_half_written_is_not_resumed_from(tmp_path):
    from uatlite.lab.train.fine_tune import last_checkpoint

    for step, name in ((5, "trainer_state.json"), (10, "model.safetensors")):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / name).write_text("{}")
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-5")
    assert not (tmp_path / "checkpoint-10").exists()
    assert last_checkpoint(tmp_path / "nothing") is None


def test_an_ensemble_teaches_what_its_members_teach_and_the_student_has_no_members(ones, tmp_path):
    student, teacher, texts = ones
    first, second = (load_checkpoint(name, device="cpu") for name in (student, teacher))
    attach(first.model, MethodWeights("ensemble", {"members": flat_parameters(second.model)[None]}))
    both = load(student)
    attach(both.model, MethodWeights("ensemble", {"members": flat_parameters(second.model)[None]}))
    save(both, tmp_path / "ensemble")
    refined = refine(tmp_path / "ensemble", texts, tmp_path / "one", recipe=SHORT)
    assert refined.teachers == (f"{tmp_path / 'ensemble'} (ensemble:members=2)",)
    assert [path.name for path in (tmp_path / "one").glob("*.safetensors")] == ["model.safetensors"]
    run = partial(of_run, texts=texts, store=tmp_path / "store")
    for one, two in zip(run(tmp_path / "ensemble")[1], run(student, teachers=[student, teacher])[1], strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def of_run(checkpoint, texts, store, **asked):
    """The teachers and the targets of a run."""
    refinement = Refinement(**asked)
    _, runtime = refining._plain(checkpoint, refinement)
    about = runtime.hash, runtime.kind, runtime.class_names
    tokens = refining._tokens(runtime, list(texts), refinement)
    run = refining._Run(str(checkpoint), *about, list(texts), tokens, refinement, Store(store), Watch())
    return run.targets()


def test_targets_are_the_probabilities_that_the_product_gives(pair, tmp_path):
    kind, student, teacher, texts = pair
    _, targets = of_run(student, texts, tmp_path, teachers=[teacher])
    said = load(teacher, method="base").predict(texts, check_shift=False)
    if kind == "entities":
        runtime = load(teacher, method="base").runtime
        for text, target in zip(texts, targets, strict=True):
            ids = runtime.tokenizer(text, return_tensors="pt")
            expected = runtime.model(**ids).logits.softmax(dim=-1)[0].detach().numpy()
            np.testing.assert_allclose(target[1:-1], expected[1:-1], atol=1e-5)
            assert not target[[0, -1]].any()  # [CLS] and [SEP]
    else:
        np.testing.assert_allclose(np.concatenate(targets), said.probabilities, atol=1e-5)


def test_passes_of_a_method_teach_and_classes_in_another_order_are_matched(ones, product_of, tmp_path):
    student, _, texts = ones
    other = product_of("one")
    config, head = other.model.config, other.model.classifier
    config.id2label, config.label2id = {0: "good", 1: "bad", 2: "fair"}, {"good": 0, "bad": 1, "fair": 2}
    head.weight.data, head.bias.data = head.weight.data[[2, 0, 1]], head.bias.data[[2, 0, 1]]
    save(other, tmp_path / "turned")
    refined = refine(
        student, texts, tmp_path / "out", teachers=[tmp_path / "turned"], recipe=Recipe(learning_rate=1e-9)
    )
    assert refined.agreement == 1.0
    refined = refine(student, texts, tmp_path / "uat", teacher_method="uat:samples=2", recipe=SHORT)
    assert refined.teachers == (f"{student} (uat:samples=2)",)


def test_better_is_written_and_worse_only_by_force_without_training_again(ones, tmp_path, monkeypatch):
    student, teacher, texts = ones
    gold = [list(says(name, texts[:160])) for name in (student, teacher)]
    gold = [[*("fair" if i % 8 == 0 else label for i, label in enumerate(labels))] for labels in gold]
    asked = {"teachers": [teacher], "recipe": FAST}
    better = refine(student, texts[160:], tmp_path / "better", held_out=(texts[:160], gold[1]), **asked)
    assert (better.verdict, better.written) == ("better", True)
    assert better.changes["nll"].high < 0
    worse = partial(refine, student, texts[160:], tmp_path / "worse", held_out=(texts[:160], gold[0]), **asked)
    refused = worse()
    assert (refused.verdict, refused.written) == ("worse", False)
    assert "It was not written." in refused.describe()[-1]
    assert [path.name for path in (tmp_path / "worse").iterdir()] == [CHECKPOINTS]
    monkeypatch.setattr(refining, "teach", None)  # what was trained is not trained again
    assert worse(force=True).written
    assert load(tmp_path / "worse").kind.name == "one"


def test_the_epoch_with_the_lowest_loss_is_taken(ones, tmp_path, monkeypatch):
    student, teacher, texts = ones
    keep, losses = refining.keep_best, []
    monkeypatch.setattr(refining, "keep_best", lambda *given: losses.append(given[-1]) or keep(*given))
    gold = ["fair" if i % 8 == 0 else label for i, label in enumerate(says(student, texts[:160]))]
    asked = {"teachers": [teacher], "held_out": (texts[:160], gold), "force": True}
    refined = refine(student, texts[160:], tmp_path / "out", recipe=FAST, **asked)
    assert len(losses) == FAST.epochs
    assert refined.epoch == 1 + int(np.argmin(losses))
    assert refined.before["nll"] + refined.changes["nll"].point == pytest.approx(min(losses))


def test_the_weights_of_the_best_epoch_are_kept(ones, tmp_path):
    product, pieces = load(ones[0]), Pieces(tmp_path)
    for epoch, loss in enumerate((0.5, 0.3, 0.4, 0.3), 1):
        product.model.classifier.bias.data[:] = epoch
        refining.keep_best(product.runtime, pieces, epoch, loss)
    assert pieces.names("epoch-*") == ["epoch-1", "epoch-2"]
    assert read_record(pieces.path("best.json")) == {"epoch": 2, "nll": 0.3}
    assert load(pieces.path("epoch-2")).model.classifier.bias.tolist() == [2.0, 2.0, 2.0]


def test_what_is_said_of_texts(ones, tmp_path):
    student, _, texts = ones
    gold = ["fair" if i % 8 == 0 else label for i, label in enumerate(says(student, texts[:160]))]
    refined = refine(student, texts, tmp_path / "out", held_out=(texts[:160], gold), recipe=SHORT, force=True)
    assert "160 texts are held-out rows too and were not taught." in refined.notes
    assert refined.texts == 76
    assert any(note.startswith("80 texts are few") for note in refined.notes)
    strange = [" ".join(["zz"] * length) for length in range(1, 30)]
    refined = refine(student, strange, tmp_path / "strange", held_out=(texts[:160], gold), recipe=SHORT, force=True)
    assert any("another task" in note for note in refined.notes)
    alone = refine(student, texts, tmp_path / "alone", recipe=SHORT)
    assert alone.verdict is None
    assert "cannot be told" in alone.describe()[-1]


def test_what_cannot_be_refined_is_refused(ones, product_of, tmp_path):
    student, teacher, texts = ones
    with pytest.raises(DataError, match="too few"):
        refine(student, texts[:5], tmp_path / "out")
    with pytest.raises(ConfigurationError, match="cannot teach one"):
        refine(student, texts, tmp_path / "out", teacher_method="distilled")
    labels = save(product_of("labels"), tmp_path / "labels")
    with pytest.raises(ModelError, match="gives the same answers"):
        refine(student, texts, tmp_path / "out", teachers=[labels])
    with pytest.raises(ConfigurationError, match="cannot teach entities"):
        refine(save(product_of("entities"), tmp_path / "tags"), texts, tmp_path / "out", teacher_method="analytic")
    with pytest.raises(DataError, match="not empty"):
        refine(student, texts, teacher)


def test_the_package_exports_it():
    assert uatlite.refine is refine


def test_pairs_and_texts_given_as_words_are_taught(ones, product_of, made_texts, tmp_path):
    student, teacher, texts = ones
    pairs = list(zip(texts, reversed(texts), strict=True))
    assert refine(student, pairs, tmp_path / "pairs", teachers=[teacher], recipe=SHORT).texts == 228
    words = [Words(tuple(text.split())) for text in made_texts(60)]
    tagger = save(product_of("entities"), tmp_path / "tagger")
    same = refine(tagger, words, tmp_path / "words", recipe=Recipe(learning_rate=1e-9))
    assert same.agreement == 1.0
