"""The hub, read with `datasets` itself from a local folder: the conversion is real, only the download is not."""

from dataclasses import replace
from urllib.error import HTTPError, URLError

import pytest

from uatlite.errors import DataError
from uatlite.text import files
from uatlite.text.schema import catalogue
from uatlite.text.tasks import load
from uatlite.values import Choices, Span, Words

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _only_this_folder(tmp_path, monkeypatch):
    files.hub_answers.cache_clear()
    monkeypatch.delenv("UATLITE_DATA", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def as_hub(task, folder, splits, features=None):
    """The task with its hub data set in `folder`: one Parquet file a split, and a card that says which is which."""
    card = "---\nconfigs:\n- config_name: default\n  data_files:\n"
    for split, rows in splits.items():
        data = datasets.Dataset.from_list(rows, features=features)
        data.to_parquet(folder / "data" / f"{split}-00000.parquet")
        card += f"  - split: {split}\n    path: data/{split}-*.parquet\n"
    (folder / "README.md").write_text(card + "---\n")
    return replace(task, hub=replace(task.hub, id=str(folder), config=None, revision=None))


def test_class_labels_go_by_their_names_and_rows_without_gold_are_left_out(tmp_path):
    names = ["neutral", "contradiction", "entailment"]  # not in the order of the task
    features = datasets.Features(
        {
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": datasets.ClassLabel(names=names),
        }
    )
    rows = [{"premise": "p", "hypothesis": f"h{i}", "label": i} for i in range(3)]
    rows.append({"premise": "p", "hypothesis": "no majority", "label": -1})
    data = load(as_hub(catalogue()["snli"], tmp_path, {"test": rows}, features), "test")
    assert [data.labels[label] for label in data.gold] == names
    assert data.texts[0] == ("p", "h0")
    assert data.source == f"hub {tmp_path}, test, rows with a gold label"


def test_plain_integers_go_by_the_codes_of_the_task(tmp_path):
    rows = [{"idx": i, "sentence": f"text {i}", "label": i % 2} for i in range(7)]
    task = as_hub(catalogue()["sst2"], tmp_path, {"validation": rows})
    calibration, test = load(task, "calibration"), load(task, "test")
    assert (len(calibration), len(test)) == (3, 4)
    for example in (*calibration.examples, *test.examples):
        assert example.label == int(example.text.split()[-1]) % 2


def test_the_hubs_copy_is_cut_as_a_local_one_is(tmp_path):
    rows = [{"sentence": f"text {i} ", "label": 0} for i in range(20)]
    local = tmp_path / "local" / "sst2"
    local.mkdir(parents=True)
    (local / "dev.csv").write_text("text,label\n" + "".join(f"text {i},negative\n" for i in reversed(range(20))))
    from_hub = load(as_hub(catalogue()["sst2"], tmp_path / "hub", {"validation": rows}), "test")
    assert set(from_hub.ids) == set(load("sst2", "test", tmp_path / "local").ids)


def test_several_splits_are_read_one_after_the_other(tmp_path):
    splits = {f"dev_r{r}": [{"uid": f"r{r}", "premise": "p", "hypothesis": f"h{r}", "label": r - 1}] for r in (1, 2, 3)}
    data = load(as_hub(catalogue()["anli"], tmp_path, splits), "calibration")
    assert data.ids == ["r1", "r2", "r3"]
    assert data.gold == [0, 1, 2]


def test_answerability_is_whether_there_is_an_answer(tmp_path):
    rows = [
        {"id": "1", "title": "A", "question": "q?", "context": "c", "answers": {"text": ["c"], "answer_start": [0]}},
        {"id": "2", "title": "B", "question": "r?", "context": "c", "answers": {"text": [], "answer_start": []}},
    ]
    task = as_hub(catalogue()["squad2"], tmp_path, {"validation": rows})
    both = {
        e.id: data.labels[e.label] for data in (load(task, "calibration"), load(task, "test")) for e in data.examples
    }
    assert both == {"1": "answerable", "2": "unanswerable"}


def test_nested_columns(tmp_path):
    options = {"A": "one", "B": "two", "C": "three", "D": "four"}
    row = {"id": "1", "data": {"Question": "Which?", "Options": options, "Correct Option": "D"}}
    [example] = load(as_hub(catalogue()["medqa"], tmp_path, {"test": [row]}), "test").examples
    assert (example.text, example.label) == (Choices("Which?", tuple(options.values())), 3)
    context = {"Question": "Is it?", "Context": ["One.", "Two."], "Correct Answer": "maybe"}
    folder = tmp_path / "pubmedqa"
    [example] = load(as_hub(catalogue()["pubmedqa"], folder, {"test": [{"id": "1", "data": context}]}), "test").examples
    assert (example.text, example.label) == (("Is it?", "One. Two."), 2)


def test_lists_of_classes_go_by_their_names(tmp_path):
    tags = datasets.ClassLabel(names=["O", "B-person", "I-person", "B-group", "I-group"])
    features = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(tags)})
    row = {"tokens": ["Ada", "Lovelace", "of", "Acme"], "ner_tags": [1, 2, 0, 3]}
    task = as_hub(catalogue()["wnut17"], tmp_path, {"test": [row]}, features)
    [example] = load(task, "test").examples
    assert example.text == Words(("Ada", "Lovelace", "of", "Acme"))
    assert example.entities == (Span(0, 12, "person"), Span(16, 20, "group"))
    emotions = datasets.ClassLabel(names=["joy", "anger"])
    features = datasets.Features({"text": datasets.Value("string"), "labels": datasets.List(emotions)})
    rows = [{"text": "oh", "labels": [0, 1]}]
    data = load(as_hub(catalogue()["goemotions"], tmp_path / "many", {"test": rows}, features), "test")
    assert [data.labels[label] for label in data.examples[0].labels] == ["anger", "joy"]


def test_a_split_that_the_hub_lacks_is_an_error_with_the_way_out(tmp_path):
    rows = [{"sentence": "x", "label": 0}]
    with pytest.raises(DataError, match=r"\(train\) cannot be read from the hub: .*Give --data-dir"):
        load(as_hub(catalogue()["sst2"], tmp_path, {"validation": rows}), "train")


def test_without_the_hub_the_error_says_how_to_have_files():
    with pytest.raises(DataError, match=r"stanfordnlp/sst2 \(train\) cannot be read from the hub.*Give --data-dir"):
        load("sst2", "train")


@pytest.fixture
def network(monkeypatch):
    """A network that is down; the questions to the hub are kept."""
    asked = []

    def refuse(request, timeout):
        asked.append(request.full_url)
        raise URLError("no route to host")

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(files, "urlopen", refuse)
    return asked


def test_a_hub_that_cannot_be_reached_is_asked_once(network):
    assert not files.hub_was_missed()
    for task in ("sst2", "snli", "sst2"):
        with pytest.raises(DataError, match=r"cannot be reached, and its cache has no copy.*Give --data-dir"):
            load(task, "train" if task == "sst2" else "test")
    assert len(network) == 1
    assert files.hub_was_missed()
    assert not datasets.config.HF_HUB_OFFLINE  # as it was before


def test_a_local_folder_is_read_without_asking_the_hub(network, tmp_path):
    rows = [{"idx": i, "sentence": f"text {i}", "label": i % 2} for i in range(4)]
    assert len(load(as_hub(catalogue()["sst2"], tmp_path, {"train": rows}), "train")) == 4
    assert network == []


def test_an_answer_that_is_an_error_is_an_answer(network, monkeypatch):
    def refuse(request, timeout):
        raise HTTPError(request.full_url, 403, "forbidden", None, None)

    monkeypatch.setattr(files, "urlopen", refuse)
    assert files.hub_answers()
    with files.hub_access("some/model"):
        assert not datasets.config.HF_HUB_OFFLINE
