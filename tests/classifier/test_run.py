"""Texts are run in one place: one pass serves several ends, and rows come back in the order asked for."""

from collections.abc import Callable

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.runtime import run, run_tokens
from uatlite.model.tokens import tokenize


@pytest.mark.parametrize("method", ["base", "distilled"])
def test_one_pass_serves_prediction_and_shift(
    build: Callable[..., UncertaintyClassifier], texts_of: Callable[..., list[str]], method: str
) -> None:
    clf, texts = build(method), list(texts_of(20))
    calls: list[int] = []
    handle = clf.model.base_model.register_forward_hook(lambda *_: calls.append(1))
    both = run(clf.runtime, texts, clf.settings)
    batches = len(calls)
    plain = run(clf.runtime, texts, clf.settings)
    assert len(calls) == 2 * batches
    handle.remove()
    assert both.representations is not None
    assert both.representations.shape[0] == len(texts)
    np.testing.assert_array_equal(both.logits, plain.logits)


@pytest.mark.parametrize("method", ["base", "fast", "analytic"])
def test_rows_come_in_the_order_asked_for(
    build: Callable[..., UncertaintyClassifier], texts_of: Callable[..., list[str]], method: str
) -> None:
    clf, texts = build(method), list(texts_of(20))
    tokens = tokenize(clf.tokenizer, texts, 64)
    whole, some = run_tokens(clf.model, clf.method, tokens), [13, 2, 7, 19]
    part = run_tokens(clf.model, clf.method, tokens, some)
    np.testing.assert_allclose(part.logits, whole.logits[:, some], atol=2e-5)
    np.testing.assert_array_equal(part.passes, whole.passes[some])
    np.testing.assert_allclose(whole.logits, run(clf.runtime, texts, clf.settings).logits, atol=2e-5)
    if method == "analytic":
        assert part.margin_variance is not None
        assert whole.margin_variance is not None
        np.testing.assert_allclose(part.margin_variance, whole.margin_variance[some], rtol=1e-3)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "deberta-v2", "gpt2", "llama"])
def test_a_tokenizer_that_pads_on_the_left_changes_no_answer(
    architecture: str,
    tiny: Callable[..., PreTrainedModel],
    tokenizer: BertTokenizer,
    texts_of: Callable[..., list[str]],
) -> None:
    """Padding on the left would move the positions of most models, and with them the answer of a text beside others."""
    clf = UncertaintyClassifier(tiny(architecture), BertTokenizer(vocab=tokenizer.get_vocab(), padding_side="left"))
    texts = ["a3", *texts_of(8)]
    together = run(clf.runtime, texts, clf.settings).logits
    alone = [run(clf.runtime, [text], clf.settings).logits for text in texts]
    np.testing.assert_allclose(together, np.concatenate(alone, axis=1), atol=1e-5)
