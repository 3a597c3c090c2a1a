"""Tiny random classifiers of every architecture in the table, and encoded batches for them.

Models are built from a configuration and never downloaded. Their weights are drawn here, with a spread of 0.25
and more: at transformers' 0.02 attention is flat and a test of its modulation would prove nothing.

A new architecture adds its row to `TINY`, and where it drops to `ROLES` in `passes/conftest.py`, the reference's own
table; every test that takes the `architecture` or `model` fixture then runs on it.
`@pytest.mark.parametrize("architecture", ["bert", "llama"], indirect=True)` narrows a test to some of them.
"""

import gc
import json
import os
import shutil
import signal
import sys
from functools import cache
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertTokenizer,
)

from uatlite.classifier.classifiers import PRODUCTS
from uatlite.classifier.runtime import Settings

Encoded = dict[str, Tensor]

VOCABULARY, PADDING, CLASSES, LONGEST = 60, 1, 3, 40
TAGS = ("O", "B-person", "I-person", "B-place", "I-place")
LENGTHS = (9, 5, 7)
"""Real tokens of the three texts of a padded batch; the unpadded one has nine of each."""

_SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": LONGEST, "num_labels": CLASSES, "pad_token_id": PADDING,
    "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
_GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
_RELATIVE = {"relative_attention": True, "pos_att_type": "c2p|p2c"}
_BERT = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_DEBERTA = (*_BERT, "pooler_dropout", "cls_dropout")

# name -> (model_type, what differs from _SIZES, the settings that hold its own dropout rates)
TINY = {
    "bert": ("bert", {}, _BERT),
    "roberta": ("roberta", {}, _BERT),
    "xlm-roberta": ("xlm-roberta", {}, _BERT),
    "distilbert": (
        "distilbert",
        {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
        ("dropout", "attention_dropout", "seq_classif_dropout"),
    ),
    "electra": ("electra", {"embedding_size": 16}, _BERT),
    "albert": (
        "albert",
        {"embedding_size": 16, "num_hidden_layers": 3, "num_hidden_groups": 1},
        (*_BERT, "classifier_dropout_prob"),
    ),
    "deberta-v2": ("deberta-v2", {**_RELATIVE, "position_buckets": 4, "norm_rel_ebd": "layer_norm"}, _DEBERTA),
    "deberta-v2-conv": (
        "deberta-v2",
        {**_RELATIVE, "share_att_key": True, "position_biased_input": False, "conv_kernel_size": 3, "conv_act": "gelu"},
        _DEBERTA,
    ),
    "modernbert": (
        "modernbert",
        {"num_hidden_layers": 3, "global_attn_every_n_layers": 2, "local_attention": 4}
        | {"cls_token_id": 2, "sep_token_id": 3},
        ("embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout"),
    ),
    "mpnet": ("mpnet", {}, _BERT),
    "gpt2": (
        "gpt2",
        {"n_embd": 32, "n_inner": 48, "n_layer": 2, "n_head": 4, "n_positions": LONGEST},
        ("embd_pdrop", "attn_pdrop", "resid_pdrop"),
    ),
    "llama": ("llama", _GROUPED, ("attention_dropout",)),
    "qwen2": ("qwen2", {"num_key_value_heads": 2}, ("attention_dropout",)),
    "qwen3": ("qwen3", _GROUPED, ("attention_dropout",)),
}
TABLE = tuple(TINY)

_RENAMED = {  # what these families call the sizes
    "distilbert": ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    "gpt2": ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
}


def build(name, *, seed=0, rate=None, choices=False, tokens=False, **changes):
    """A new tiny classifier in evaluation mode; `rate` sets each of its own dropout rates."""
    kind, differs, rates = TINY[name]
    sizes = {key: value for key, value in _SIZES.items() if key not in _RENAMED.get(name, ())}
    own = {} if rate is None else dict.fromkeys(rates, rate)
    config = AutoConfig.for_model(kind, **{**sizes, **differs, **own, **changes})
    auto = AutoModelForMultipleChoice if choices else AutoModelForSequenceClassification
    auto = AutoModelForTokenClassification if tokens else auto
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = auto.from_config(config)
        for parameter_name, parameter in model.named_parameters():
            _draw(parameter_name, parameter.data)
    return model.eval()


def _draw(name, values):
    """Weights of spread 0.25, gains of normalisations around 1: nothing in the model is flat or zero."""
    gain = values.ndim == 1 and name.endswith("weight") and ("norm" in name.lower() or ".ln_" in name)
    values.normal_(1.0 if gain else 0.0, 0.25)


def encode(lengths, *, side="right", tokens=None, seed=0):
    """Random texts of these lengths, padded on a side to the longest or to `tokens`."""
    tokens = max(lengths) if tokens is None else tokens
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), tokens), PADDING)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        place = slice(0, length) if side == "right" else slice(tokens - length, tokens)
        ids[row, place] = torch.randint(5, VOCABULARY, (length,), generator=generator)
        mask[row, place] = 1
    return {"input_ids": ids, "attention_mask": mask}


BATCHES = {
    "unpadded": lambda: encode((9, 9, 9)),
    "right": lambda: encode(LENGTHS, side="right", tokens=11),
    "left": lambda: encode(LENGTHS, side="left", tokens=11),
}


HEAVY = ("lab/paper", "scoring", "serve", "lab", "classifier", "attribution", "passes/test_distribution.py")
"""These run first, so that the last files of a parallel run are short ones."""
TOGETHER = {"lab/paper": "ray", "scoring": "ray", "lab/report": "report"}
"""Rooms whose tests run on one worker: they share what takes long to make, or start a cluster of several processes."""


def _place(path):
    return next((place for place, start in enumerate(HEAVY) if path.startswith(f"tests/{start}")), len(HEAVY))


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: _place(item.nodeid))


def pytest_collection_finish():
    """Modules and tests stay to the end: the garbage collector, which every training calls, need not visit them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The tests of a file run on one worker, in order, and so do those of the rooms in `TOGETHER`."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            rooms = (name for room, name in TOGETHER.items() if nodeid.startswith(f"tests/{room}/"))
            return next(rooms, nodeid.split("::")[0])

    config.option.loadscopereorder = False
    return Files(config, log)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tiny matrices run fastest on one thread, and the machine's other cores stay free."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny():
    """`tiny(name, rate=None, choices=False, tokens=False, **changes)`: a new model that the test may change."""
    return build


@pytest.fixture(scope="session")
def texts():
    """`texts(lengths, side="right", tokens=None, seed=0)`: a batch of random texts."""
    return encode


@pytest.fixture(scope="session")
def shared():
    """`shared(name)`: the session's one model of an architecture, which no test may change."""
    return cache(build)


@pytest.fixture(scope="session")
def table():
    """The names of all tiny architectures."""
    return TABLE


@pytest.fixture(params=TABLE)
def architecture(request):
    """The name of each tiny architecture."""
    return str(request.param)


@pytest.fixture
def model(architecture, shared):
    """The session's model of `architecture`; no test may change it."""
    return shared(architecture)


@pytest.fixture(params=tuple(BATCHES))
def encoded(request):
    """Three texts: unpadded, padded on the right, padded on the left."""
    return BATCHES[request.param]()


@pytest.fixture(params=("bert", "roberta"))
def chooser(request, shared):
    """A multiple-choice model; no test may change it."""
    return shared(request.param, choices=True)


@pytest.fixture
def choices():
    """Two questions with four choices of several lengths: (batch, choices, tokens)."""
    flat = encode((9, 5, 7, 6, 4, 8, 3, 7))
    return {name: value.view(2, 4, -1) for name, value in flat.items()}


@pytest.fixture(scope="session")
def tokenizer():
    """A tokenizer for the tiny models: the words are a0 .. a55."""
    marks = ["[UNK]", "[PAD]", "[CLS]", "[SEP]"]
    words = [f"a{number}" for number in range(VOCABULARY - len(marks))]
    return BertTokenizer(vocab={word: index for index, word in enumerate([*marks, *words])})


@pytest.fixture(scope="session")
def made_texts():
    """`made_texts(rows, seed=0, longest=20)`: random texts of the tiny tokenizer's words."""

    def make(rows, seed=0, longest=20):
        generator = np.random.default_rng(seed)
        sizes = generator.integers(3, longest, size=rows)
        return [" ".join(f"a{word}" for word in generator.integers(0, 56, size=size)) for size in sizes]

    return make


KINDS_OF_MODELS = {
    "one": {"id2label": dict(enumerate(("bad", "fair", "good")))},
    "choice": {"choices": True},
    "labels": {
        "problem_type": "multi_label_classification",
        "num_labels": 4,
        "id2label": dict(enumerate(("anger", "joy", "fear", "relief"))),
    },
    "entities": {"tokens": True, "num_labels": 5, "id2label": dict(enumerate(TAGS))},
}
"""A kind of answer -> what is given to `tiny`."""


@pytest.fixture(scope="session")
def product_of(tokenizer):
    """`product_of(kind, config=None, **options)`: a new product with a tiny model of this kind.

    The tagger finds entities here and there: it is sure of what it says, and of no entity more often than not.
    """

    def make(kind, config=None, **options):
        model = build("bert", **KINDS_OF_MODELS[kind])
        if kind == "entities":
            model.classifier.weight.data *= 5
            model.classifier.bias.data[0] += 5.0
        of_kind = next(product for product in PRODUCTS if kind in [other.name for other in product.kinds])
        return of_kind(model, tokenizer, config, **options)

    return make


@pytest.fixture(scope="session")
def saved(tmp_path_factory, product_of, made_texts):
    """The directory of a calibrated classifier of three classes."""
    directory = tmp_path_factory.mktemp("classifier") / "saved"
    clf, texts = product_of("one", "uat:samples=2"), made_texts(150)
    labels = clf.predict(texts).predicted
    labels[::4] = (labels[::4] + 1) % 3  # a quarter is wrong
    clf.calibrate(texts, labels, review_share=0.2, label_sets=0.8, calibrator="temperature")
    clf.save_pretrained(directory)
    return directory


@pytest.fixture
def counted(monkeypatch):
    """`counted(function)`: a list that gets the last positional argument of each call, wherever it was imported."""

    def count(function):
        calls = []

        def counting(*args, **options):
            calls.append(args[-1])
            return function(*args, **options)

        owners = [module for module in [json, *sys.modules.values()] if module.__name__.startswith(("uatlite", "json"))]
        for owner in [*owners, Settings]:
            if vars(owner).get(function.__name__) is function:
                monkeypatch.setattr(owner, function.__name__, counting)
        return calls

    return count


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """Processes that tests start must hear SIGINT, also where a shell started pytest in the background, deaf to it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, driven by Playwright. Where CI is set it must be there.

    It closes with its module: while it is open an event loop runs in this thread, and other tests start their own.
    """
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    name = "playwright.sync_api"
    playwright = import_module(name) if os.environ.get("CI") else pytest.importorskip(name)
    if path is None:
        message = "NO BROWSER: chromium is not installed (apt-get install chromium), so no page was looked at"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()
