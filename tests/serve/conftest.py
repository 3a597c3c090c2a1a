"""A saved, calibrated tiny classifier, the service around it, and the service on a real port."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from starlette.testclient import TestClient
from transformers import BertTokenizer, PreTrainedModel

from uatlite.classifier.classifiers import UncertaintyClassifier, UncertaintyLabeler, UncertaintyTagger
from uatlite.predictive import sigmoid
from uatlite.serve.app import create_app
from uatlite.serve.service import Limits, Service

CLASSES = ("bad", "fair", "good")
METHOD = "fast:samples=4"
LABELS = ("anger", "joy", "fear", "relief")
TAGS = {0: "O", 1: "B-person", 2: "I-person", 3: "B-place", 4: "I-place"}
Texts = Callable[..., list[str]]
Tiny = Callable[..., PreTrainedModel]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """What runs coroutines that are tests."""
    return "asyncio"


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny, tokenizer: BertTokenizer, made_texts: Texts) -> Path:
    """The directory of a classifier of three classes with a rule, label sets and a summary to tell a shift by."""
    directory, texts = tmp_path_factory.mktemp("serve") / "saved", made_texts(150)
    classifier = UncertaintyClassifier(tiny("bert", id2label=dict(enumerate(CLASSES))), tokenizer, METHOD)
    labels = classifier.predict(texts).predicted
    labels[::4] = (labels[::4] + 1) % 3  # a quarter is wrong
    classifier.calibrate(texts, labels, target_coverage=0.7, label_sets=0.8, calibrator="temperature")
    classifier.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def classifier(saved: Path) -> UncertaintyClassifier:
    """The saved classifier, loaded; no test may change it."""
    return UncertaintyClassifier.from_pretrained(saved)


@pytest.fixture(scope="session")
def one_pass(tiny: Tiny, tokenizer: BertTokenizer, made_texts: Texts) -> UncertaintyClassifier:
    """A classifier without sampling, with a scope and a menu of risks; no test may change it."""
    classifier = UncertaintyClassifier(tiny("bert", id2label=dict(enumerate(CLASSES))), tokenizer, "analytic")
    texts = made_texts(240, seed=3)
    labels = classifier.predict(texts).predicted
    labels[::20] = (labels[::20] + 1) % 3
    return classifier.calibrate(texts, labels, target_risk=0.15)


@pytest.fixture(scope="session")
def labeler(tiny: Tiny, tokenizer: BertTokenizer, made_texts: Texts) -> UncertaintyLabeler:
    """A labeler of four labels with a rule, a scope and a summary to tell a shift by; no test may change it."""
    many = {"problem_type": "multi_label_classification", "id2label": dict(enumerate(LABELS)), "num_labels": 4}
    made = UncertaintyLabeler(tiny("bert", **many), tokenizer, "analytic")
    texts = made_texts(200, seed=4)
    chances = sigmoid(1.5 * made.predict(texts).logits - 0.3)
    gold = np.random.default_rng(0).random((len(texts), 1)) < chances
    return made.calibrate(texts, gold, target_precision=0.8, menu=True)


@pytest.fixture(scope="session")
def tagger(tiny: Tiny, tokenizer: BertTokenizer, made_texts: Texts) -> UncertaintyTagger:
    """A tagger of two types with a rule and a summary to tell a shift by; no test may change it."""
    model = tiny("bert", tokens=True, num_labels=5, id2label=TAGS)
    model.classifier.weight.data *= 5  # sure of what it says, and of no entity more often than not
    model.classifier.bias.data[0] += 5.0
    made = UncertaintyTagger(model, tokenizer, "analytic")
    found, generator = made.predict(made_texts(300, seed=6)), np.random.default_rng(0)
    gold = []
    for entities in found.entities:
        right = generator.random(len(entities)) < [entity.confidence for entity in entities]
        kept = [entity for entity, is_right in zip(entities, right, strict=True) if is_right]
        gold.append([(entity.start, entity.end, entity.label) for entity in kept])
    return made.calibrate(found.texts, gold, target_risk=0.3, menu=True)


@pytest.fixture
def client_of(request: pytest.FixtureRequest) -> Iterator[Callable[..., TestClient]]:
    """`client_of(product, limits=None, watch=None, raises=False, **options)`: a client of its service, until the end.

    A product is given by the name of its fixture, or itself.
    """
    with ExitStack() as stack:

        def made(product: Any, limits: Limits | None = None, *, raises: bool = False, **options: Any) -> TestClient:
            product = request.getfixturevalue(product) if isinstance(product, str) else product
            service = Service(product, limits, watch=options.pop("watch", None))
            return stack.enter_context(TestClient(create_app(service, **options), raise_server_exceptions=raises))

        yield made


@pytest.fixture
def client(client_of: Callable[..., TestClient]) -> TestClient:
    """A client of the classifier's service with its usual limits."""
    return client_of("classifier")


@pytest.fixture
def product(request: pytest.FixtureRequest) -> Any:
    """The product of a parametrised name."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def api(product: Any, client_of: Callable[..., TestClient]) -> TestClient:
    """A client of the service of `product`."""
    return client_of(product)


Running = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="session")
def running() -> Running:
    """`with running(classifier, limits=None, **options) as address`: the service on a free port of loopback."""

    @contextmanager
    def run(classifier: Any, limits: Limits | None = None, **options: Any) -> Iterator[str]:
        app = create_app(Service(classifier, limits), **options)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="on", ws="none"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()

    return run


@pytest.fixture
def ask() -> Callable[..., httpx.Response]:
    """`ask(address, texts, **options)`: POST /predict."""

    def post(address: str, texts: list[Any], **options: Any) -> httpx.Response:
        return httpx.post(f"{address}/predict", json={"texts": texts}, timeout=30, trust_env=False, **options)

    return post


@pytest.fixture(scope="session")
def same() -> Callable[[dict[str, Any], Any], None]:
    """`same(answer, prediction)`: the answer of the service is what the product says offline, of whatever kind.

    A batch of one to three texts rounds otherwise than a larger one, in PyTorch; so says docs/guides/serve.md.
    """

    def check(answer: dict[str, Any], expected: Any) -> None:
        row, names = expected.as_row(), expected.among.classes
        assert answer["why"] == expected.why
        _agree({name: answer[name] for name in answer if name in row and name != "entities"}, row)
        if "uncertainty" in answer:
            _agree(answer["uncertainty"], row)
            _agree(answer["probabilities"], expected.probabilities)
            rule = expected.among.rule
            assert answer["score"] == pytest.approx(row["confidence" if rule is None else "logit_margin"], abs=1e-5)
        for name, label in zip(names, answer.get("decisions", ()), strict="decisions" in answer):
            _agree(label, {"label": name, "probability": row[f"p_{name}"], "variance": row.get(f"variance_{name}")})
            doubted = name in row.get("withheld", ())
            assert label["decision"] == ("reported" if name in row["labels"] else "withheld" if doubted else "no")
        for entity, found in zip(answer.get("entities", ()), row.get("entities", ()), strict=True):
            _agree(entity, found)
            assert entity["decision"] == ("reported" if found["reported"] else "withheld")

    return check


def _agree(given: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """What stands in both is the same."""
    shared = given.keys() & expected.keys()
    assert shared
    for name in shared:
        close = isinstance(expected[name], float)
        assert given[name] == (pytest.approx(expected[name], rel=1e-4, abs=1e-5) if close else expected[name]), name
