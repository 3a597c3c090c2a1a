"""A saved, calibrated tiny classifier, the service around it, and the service on a real port."""

from contextlib import ExitStack

import numpy as np
import pytest
from starlette.testclient import TestClient

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.predictive import sigmoid
from uatlite.serve.app import create_app
from uatlite.serve.service import Service

METHOD = "fast:samples=4"


@pytest.fixture(scope="session")
def anyio_backend():
    """What runs coroutines that are tests."""
    return "asyncio"


@pytest.fixture(scope="session")
def saved(tmp_path_factory, product_of, made_texts):
    """The directory of a classifier of three classes with a rule, label sets and a summary to tell a shift by."""
    directory, texts = tmp_path_factory.mktemp("serve") / "saved", made_texts(150)
    classifier = product_of("one", METHOD)
    labels = classifier.predict(texts).predicted
    labels[::4] = (labels[::4] + 1) % 3  # a quarter is wrong
    classifier.calibrate(texts, labels, review_share=0.3, label_sets=0.8, calibrator="temperature")
    classifier.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def classifier(saved):
    """The saved classifier, loaded; no test may change it."""
    return UncertaintyClassifier.from_pretrained(saved)


@pytest.fixture(scope="session")
def one_pass(product_of, made_texts):
    """A classifier without sampling, with a scope and a menu of risks; no test may change it."""
    classifier, texts = product_of("one", "analytic"), made_texts(240, seed=3)
    labels = classifier.predict(texts).predicted
    labels[::20] = (labels[::20] + 1) % 3
    return classifier.calibrate(texts, labels, target_risk=0.15)


@pytest.fixture(scope="session")
def labeler(product_of, made_texts):
    """A labeler of four labels with a rule, a scope and a summary to tell a shift by; no test may change it."""
    made, texts = product_of("labels", "analytic"), made_texts(200, seed=4)
    chances = sigmoid(1.5 * made.predict(texts).logits - 0.3)
    gold = np.random.default_rng(0).random((len(texts), 1)) < chances
    return made.calibrate(texts, gold, target_risk=0.2, menu=True)


@pytest.fixture(scope="session")
def tagger(product_of, made_texts):
    """A tagger of two types with a rule and a summary to tell a shift by; no test may change it."""
    made = product_of("entities", "analytic")
    found, generator = made.predict(made_texts(300, seed=6)), np.random.default_rng(0)
    gold = []
    for entities in found.entities:
        right = generator.random(len(entities)) < [entity.confidence for entity in entities]
        kept = [entity for entity, is_right in zip(entities, right, strict=True) if is_right]
        gold.append([(entity.start, entity.end, entity.label) for entity in kept])
    return made.calibrate(found.texts, gold, target_risk=0.3, menu=True)


@pytest.fixture
def client_of(request):
    """`client_of(product, limits=None, watch=None, raises=False, **options)`: a client of its service, until the end.

    A product is given by the name of its fixture, or itself.
    """
    with ExitStack() as stack:

        def made(product, limits=None, *, raises=False, **options):
            product = request.getfixturevalue(product) if isinstance(product, str) else product
            service = Service(product, limits, watch=options.pop("watch", None))
            return stack.enter_context(TestClient(create_app(service, **options), raise_server_exceptions=raises))

        yield made


@pytest.fixture
def client(client_of):
    """A client of the classifier's service with its usual limits."""
    return client_of("classifier")


@pytest.fixture
def product(request):
    """The product of a parametrised name."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def api(product, client_of):
    """A client of the service of `product`."""
    return client_of(product)
