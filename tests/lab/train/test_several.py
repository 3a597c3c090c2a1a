"""Fine-tuning for entities and for several labels a text: the targets, what is learned, what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForSequenceClassification, BertForTokenClassification, BertTokenizer

from uatlite.errors import ConfigurationError, DataError
from uatlite.lab.train.dataset import NO_TAG, collate, training_rows
from uatlite.lab.train.fine_tune import fine_tune, start_at_base_rates, train_method, with_new_head
from uatlite.lab.train.methods import METHOD_TRAININGS, parse_training
from uatlite.lab.train.recipe import Recipe, TrainingJob
from uatlite.model.load import load_checkpoint
from uatlite.text.gold import tags_of_spans
from uatlite.values import Dataset, Example, Span, Words

QUICK = Recipe(learning_rate=5e-3, warmup_steps=2, batch_size=8, epochs=2, group_by_length=True)


def test_tags_are_at_the_first_token_of_each_word_of_the_tokenizer(tmp_path: Path, tiny: object) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ada", "love", "##lace", "@", "in", "."]
    tokenizer = BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})
    model = tiny("bert")  # type: ignore[operator]
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
    batch = collate([(rows, 0), (rows, 1)])
    assert batch["labels"].shape == batch["input_ids"].shape
    assert batch["labels"][1].tolist() == rows.labels[1] + [none] * 5
    tokenizer.padding_side = "left"  # makes no difference
    assert collate([(rows, 0), (rows, 1)])["labels"].equal(batch["labels"])
    cut = training_rows(data, model, tokenizer, 8)
    assert cut.labels[0] == [none, begin, inside, inside, none, out, other, none]


def test_entities_are_learned(backbone: Path, tagged: Dataset, tmp_path: Path) -> None:
    record = fine_tune(TrainingJob(backbone, tagged, validation=tagged, recipe=replace(QUICK, epochs=10)), tmp_path)
    assert record.rows == 48
    checkpoint = load_checkpoint(tmp_path, kind="entities", device="cpu")
    assert isinstance(checkpoint.model, BertForTokenClassification)
    assert checkpoint.id2label == {0: "O", 1: "B-B", 2: "I-B", 3: "B-G", 4: "I-G"}
    for example in tagged.examples:
        assert isinstance(example.text, Words)
        encoded = checkpoint.tokenizer(example.text.text, return_tensors="pt")  # every word is one token
        with torch.inference_mode():
            found = checkpoint.model(**encoded).logits[0, 1:-1].argmax(dim=1).tolist()
        assert [checkpoint.id2label[tag] for tag in found] == tags_of_spans(example.text.spans, example.entities or ())


def test_several_labels_are_learned(backbone: Path, labelled: Dataset, tmp_path: Path) -> None:
    record = fine_tune(TrainingJob(backbone, labelled, validation=labelled, recipe=replace(QUICK, epochs=10)), tmp_path)
    checkpoint = load_checkpoint(tmp_path, kind="labels", device="cpu")
    assert isinstance(checkpoint.model, BertForSequenceClassification)
    assert checkpoint.model.config.problem_type == "multi_label_classification"
    assert checkpoint.id2label == {0: "bad", 1: "good"}
    encoded = checkpoint.tokenizer(labelled.texts, padding=True, return_tensors="pt")
    gold = torch.tensor([[float(place in (one.labels or ())) for place in range(2)] for one in labelled.examples])
    with torch.inference_mode():
        logits = checkpoint.model(**encoded).logits
    assert torch.equal((logits > 0).float(), gold)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, gold)
    assert record.validation_nll == pytest.approx(float(loss), rel=1e-4)


@pytest.mark.parametrize("kind", ["tagged", "labelled"])
def test_an_ensemble_has_members_and_methods_for_one_answer_refuse(
    kind: str, backbone: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    job = TrainingJob(backbone, request.getfixturevalue(kind), recipe=replace(QUICK, epochs=1))
    train_method(parse_training("ensemble:members=2"), job, tmp_path / "ensemble")
    members = load_file(tmp_path / "ensemble" / "uatlite-method.safetensors")["members"]
    assert len(members) == 1
    assert members.shape[1] == load_checkpoint(tmp_path / "ensemble", device="cpu").model.num_parameters()
    for name in ("swag", "laplace", "sngp", "vi-last-layer"):
        with pytest.raises(ConfigurationError, match=f"{name} is for one answer a text and cannot be trained on"):
            train_method(METHOD_TRAININGS[name], job, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_rows_without_gold_are_named(backbone: Path, tagged: Dataset, labelled: Dataset, tmp_path: Path) -> None:
    for rows in (tagged, labelled):
        bare = replace(rows.examples[3], entities=None, labels=None)
        missing = replace(rows, examples=(*rows.examples[:3], bare))
        with pytest.raises(DataError, match="toy/train: row 3 has no label; training needs them all"):
            fine_tune(TrainingJob(backbone, missing, recipe=QUICK), tmp_path)


def test_a_head_for_one_class_forgets_that_its_backbone_had_many(backbone: Path, tmp_path: Path) -> None:
    model, tokenizer = with_new_head(backbone, ("a", "b"), kind="labels")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert with_new_head(tmp_path, ("a", "b"))[0].config.problem_type is None


def test_a_new_head_of_many_labels_starts_at_their_base_rates(backbone: Path, labelled: Dataset) -> None:
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
