"""Texts are run in one place: rows come in the order asked for, and logits of windows are averaged pass by pass."""

import numpy as np
import pytest
from transformers import BertTokenizer

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.runtime import run, run_tokens
from uatlite.model.tokens import tokenize
from uatlite.model.windows import windowed
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import sample

WORDS = [f"a{number % 56}" for number in range(100)]


@pytest.mark.parametrize("method", ["base", "fast", "analytic"])
def test_rows_come_in_the_order_asked_for(build, made_texts, method):
    clf, texts = build(method), list(made_texts(20))
    tokens = tokenize(clf.tokenizer, texts, 64)
    whole, some = run_tokens(clf.model, clf.method, tokens), [13, 2, 7, 19]
    part = run_tokens(clf.model, clf.method, tokens, some)
    np.testing.assert_allclose(part.logits, whole.logits[:, some], atol=2e-5)
    np.testing.assert_array_equal(part.passes, whole.passes[some])
    assert len(whole.representations) == len(texts)  # of the same pass
    np.testing.assert_allclose(whole.logits, run(clf.runtime, texts, clf.settings).logits, atol=2e-5)
    if method == "analytic":
        assert part.margin_variance is not None
        np.testing.assert_allclose(part.margin_variance, whole.margin_variance[some], rtol=1e-3)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "deberta-v2", "gpt2", "llama"])
def test_a_tokenizer_that_pads_on_the_left_changes_no_answer(architecture, tiny, tokenizer, made_texts):
    """Padding on the left would move the positions of most models, and with them the answer of a text beside others."""
    clf = UncertaintyClassifier(tiny(architecture), BertTokenizer(vocab=tokenizer.get_vocab(), padding_side="left"))
    texts = ["a3", *made_texts(8)]
    together = run(clf.runtime, texts, clf.settings).logits
    alone = [run(clf.runtime, [text], clf.settings).logits for text in texts]
    np.testing.assert_allclose(together, np.concatenate(alone, axis=1), atol=1e-5)


def test_logits_are_averaged_over_the_windows_of_each_pass(build):
    config = UATConfig(samples=3)
    clf = build(config, windows=True, max_length=18)
    texts = ["a5 a6", " ".join(WORDS[:45]), "a7"]
    windows = windowed(clf.tokenizer, texts, 18)
    by_hand, start = [], 0
    for count in windows.counts:
        inputs = windows.tokens.pad(list(range(start, start + count)))
        by_hand.append(sample(clf.model, inputs, config).logits.mean(dim=1).numpy())
        start += count
    mean_logits = np.stack(by_hand, axis=1).mean(axis=0)
    expected = np.exp(mean_logits) / np.exp(mean_logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(texts), expected, atol=1e-5)


def test_short_texts_do_not_care(build, made_texts):
    texts = made_texts(8)
    assert np.array_equal(build(windows=True).predict_proba(texts), build().predict_proba(texts))
