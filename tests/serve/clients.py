"""What the tests of the service share: it runs on a port, is asked, and its answers are compared with the product's."""

import threading
import time
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

from uatlite.serve.app import create_app
from uatlite.serve.service import Service


@contextmanager
def running(product, limits=None, **options):
    """The address of the service of a product, on a free port of loopback."""
    app = create_app(Service(product, limits), **options)
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


def ask(address, texts, *, timeout=30, **options):
    """POST /predict."""
    return httpx.post(f"{address}/predict", json={"texts": texts}, timeout=timeout, trust_env=False, **options)


def same(answer, expected):
    """The answer of the service is what the product says offline, of whatever kind.

    A batch of one to three texts rounds otherwise than a larger one, in PyTorch; so says docs/guides/serve.md.
    """
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


def _agree(given, expected):
    """What stands in both is the same."""
    shared = given.keys() & expected.keys()
    assert shared
    for name in shared:
        close = isinstance(expected[name], float)
        assert given[name] == (pytest.approx(expected[name], rel=1e-4, abs=1e-5) if close else expected[name]), name
