"""transformers' pipeline over a classifier gives the calibrated scores."""

from collections.abc import Callable

import pytest
from transformers import pipeline

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.errors import ModelError


def test_the_pipeline_gives_the_calibrated_scores(
    calibrated: UncertaintyClassifier, texts_of: Callable[..., list[str]]
) -> None:
    texts = texts_of(6)
    pred = calibrated.predict(texts)
    pipe = pipeline("text-classification", model=calibrated.as_model(), tokenizer=calibrated.tokenizer, device="cpu")
    for batch_size in (1, 4):
        for answer, one in zip(pipe(texts, batch_size=batch_size), pred, strict=True):
            assert answer["label"] == one.label
            assert answer["score"] == pytest.approx(one.confidence, abs=1e-5)
    every = {entry["label"]: entry["score"] for entry in pipe(texts[0], top_k=None)}
    assert every == pytest.approx(pred[0].probabilities, abs=1e-5)
    pair = pipe({"text": "a1", "text_pair": "a2"})
    assert pair["score"] == pytest.approx(calibrated.predict([("a1", "a2")])[0].confidence, abs=1e-5)


def test_uncalibrated_it_is_the_plain_mean_over_passes(build: Callable[..., UncertaintyClassifier]) -> None:
    clf = build("uat:samples=2")
    pipe = pipeline("text-classification", model=clf.as_model(), tokenizer=clf.tokenizer, device="cpu")
    assert pipe("a1 a2")[0]["score"] == pytest.approx(clf.predict(["a1 a2"])[0].confidence, abs=1e-5)


def test_it_is_not_saved_by_mistake(build: Callable[..., UncertaintyClassifier], tmp_path: object) -> None:
    with pytest.raises(ModelError, match="save the classifier"):
        build().as_model().save_pretrained(tmp_path)
