"""POST /decide: scores in, decision out, as the product decides; there is no text, and nothing to explain."""

import numpy as np
import pytest
from starlette.testclient import TestClient

from reference import draw_logits
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.scores import ScoresRuntime
from uatlite.serve.app import create_app
from uatlite.serve.limits import Limits
from uatlite.serve.service import Service
from uatlite.text.scores import ScoreColumns

COLUMNS = ("logit_cat", "logit_dog", "logit_eel")


@pytest.fixture(scope="module", params=[False, True], ids=["scores", "embeddings"])
def decider(request):
    """A calibrated classifier by scores, and rows that it can decide on."""
    logits, labels, _ = draw_logits(300, 3, overconfidence=0.5)
    embeds = {"embedding": "embedding", "width": 2} if request.param else {}
    columns = ScoreColumns(form="logit", columns=COLUMNS, classes=("cat", "dog", "eel"), **embeds)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in logits.tolist()]
    for row, vector in zip(rows, np.random.default_rng(0).normal(size=(300, 2)).tolist(), strict=True):
        row |= {"embedding": vector} if request.param else {}
    return UncertaintyClassifier(ScoresRuntime(columns)).calibrate(rows, labels, target_risk=0.4), rows


def test_a_decision_is_what_the_product_says(decider):
    classifier, rows = decider
    service = Service(classifier, Limits(texts=20))
    service.warm_up()
    expected = classifier.predict(rows[:20], check_shift=False)
    with TestClient(create_app(service)) as client:
        answers = client.post("/decide", json={"scores": rows[:20]}).json()["predictions"]
        for name in ("label", "confidence", "abstain", "reason", "above_threshold"):
            assert [answer[name] for answer in answers] == expected.columns[name]
        broken = {**rows[0], "logit_dog": 10**400}
        good, bad = client.post("/decide", json={"scores": [rows[0], broken]}).json()["predictions"]
        assert good == answers[0]
        assert bad["error"]["message"].startswith("logit_dog holds 1000")
        refused = client.post("/decide", json={"scores": [{"logit_cat": 1}]})
        assert (refused.status_code, refused.json()["error"]["fields"][0]["field"]) == (422, "scores[0]")
        assert "at most 20" in client.post("/decide", json={"scores": rows[:21]}).text
        assert client.get("/model").json()["architecture"] == "a file of scores"
        assert [client.post(path, json={}).status_code for path in ("/predict", "/explain")] == [404, 404]
        assert [client.get(path).status_code for path in ("/", "/docs", "/ready")] == [404, 200, 200]
