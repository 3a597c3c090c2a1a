"""Windows of long texts: logits are averaged pass by pass."""

from collections.abc import Callable

import numpy as np

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.model.windows import windowed
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import sample
from uatlite.values import Text

WORDS = [f"a{number % 56}" for number in range(100)]


def test_logits_are_averaged_over_the_windows_of_each_pass(build: Callable[..., UncertaintyClassifier]) -> None:
    config = UATConfig(samples=3)
    clf = build(config, windows=True, max_length=18)
    texts: list[Text] = ["a5 a6", " ".join(WORDS[:45]), "a7"]
    windows = windowed(clf.tokenizer, texts, 18)
    by_hand, start = [], 0
    for count in windows.counts:
        inputs = windows.tokens.pad(list(range(start, start + count)))
        by_hand.append(sample(clf.model, inputs, config).logits.mean(dim=1).numpy())
        start += count
    mean_logits = np.stack(by_hand, axis=1).mean(axis=0)
    expected = np.exp(mean_logits) / np.exp(mean_logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(texts), expected, atol=1e-5)


def test_short_texts_do_not_care(
    build: Callable[..., UncertaintyClassifier], texts_of: Callable[..., list[str]]
) -> None:
    texts = texts_of(8)
    assert np.array_equal(build(windows=True).predict_proba(texts), build().predict_proba(texts))
