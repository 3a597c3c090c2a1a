"""Models of other libraries, the real ones: their own probabilities before calibration, our promises after it."""

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from reference import refuses
from uatlite import load, wrap
from uatlite.errors import ConfigurationError, InputError, ModelError

CLASSES = ["bad", "fair", "good"]


@pytest.fixture(scope="module")
def rows(made_texts):
    """Texts, and labels that some of their words make likely: for training, calibrating and testing."""

    def make(count, seed):
        texts = made_texts(count, seed)
        words = np.array([[text.split().count(word) for word in ("a1", "a2", "a3")] for text in texts])
        noise = np.random.default_rng(seed).gumbel(size=words.shape)
        return texts, [CLASSES[column] for column in (4.0 * words + noise).argmax(axis=1)]

    return make(400, 0), make(300, 1), make(80, 2)


def fitted(rows, *steps, names=CLASSES):
    """A pipeline of counts and these steps, trained; labels that are no names are 'other'."""
    texts, labels = rows[0]
    return make_pipeline(CountVectorizer(), *steps).fit(texts, [n if n in names else "other" for n in labels])


@pytest.mark.parametrize("case", ["counts", "embeddings", "zeros"])
def test_a_pipeline_of_scikit_learn(rows, case, tmp_path):
    """Where a probability is 0 it counts as half of the smallest."""
    head = RandomForestClassifier(20, random_state=0) if case == "zeros" else LogisticRegression(C=10)
    model = fitted(rows, *([TruncatedSVD(8, random_state=0)] if case == "embeddings" else []), head)
    _, held_out, (new, _) = rows
    clf, expected = wrap(model), model.predict_proba(new)
    assert clf.predict_proba(new) == pytest.approx(expected, abs=0.5 / 20 if case == "zeros" else 1e-9)
    pred = clf.calibrate(*held_out, target_risk=0.6).predict(new)
    assert (pred.labels == model.predict(new)).all()
    assert (pred.scope is not None) == (case == "embeddings")
    assert int((~pred.abstain).sum()) > 0
    assert np.array_equal(model.predict_proba(new), expected)  # it is left as it is
    clf.save_pretrained(tmp_path / "saved")
    again = wrap(model, calibrated=tmp_path / "saved")
    assert np.array_equal(again.predict(new).probabilities, pred.probabilities)
    assert load(tmp_path / "saved").predict(list(pred.texts)).abstain.tolist() == pred.abstain.tolist()


def test_a_decision_function_of_two_classes_and_of_more(rows):
    _, (held_out, gold), (new, _) = rows
    for names in (CLASSES, ["bad", "other"]):
        model = fitted(rows, LinearSVC(), names=names)
        given = [name if name in names else "other" for name in gold]
        pred, margins = (
            wrap(model).calibrate(held_out, given, target_risk=0.6).predict(new),
            model.decision_function(new),
        )
        expected = np.abs(margins) if margins.ndim == 1 else np.diff(np.sort(margins, axis=1))[:, -1]
        assert pred.logit_margin == pytest.approx(expected)
        assert (pred.labels == model.predict(new)).all()


def test_an_estimator_of_numbers():
    """What it takes in the place of texts is the embedding."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 5))
    y = (x[:, 0] + 0.5 * rng.normal(size=600) > 0).astype(int)
    model = LogisticRegression().fit(x[:200], y[:200])
    clf = wrap(model).calibrate(x[200:500], y[200:500], target_risk=0.2)
    assert clf.predict(x[500:]).labels.astype(int).tolist() == model.predict(x[500:]).tolist()
    assert clf.predict(x[500:] + 50.0, check_shift=False).out_of_scope.all()


def test_an_encoder_with_a_head_and_setfit_models(rows, tiny, tokenizer, tmp_path):
    library, setfit = pytest.importorskip("sentence_transformers"), pytest.importorskip("setfit")
    from sentence_transformers.sentence_transformer import modules

    tiny("bert").bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    parts = [modules.Transformer(str(tmp_path), max_seq_length=32), modules.Pooling(32)]
    encoder = library.SentenceTransformer(modules=parts, device="cpu")
    (texts, labels), held_out, (new, _) = rows
    head = LogisticRegression(C=100.0, max_iter=1000).fit(encoder.encode(texts), labels)
    expected = head.predict_proba(encoder.encode(new))
    for clf in (wrap(encoder, head=head), wrap(setfit.SetFitModel(model_body=encoder, model_head=head))):
        assert clf.predict_proba(new) == pytest.approx(expected, abs=1e-5)
        pred = clf.calibrate(*held_out, target_risk=0.7, reference=texts).predict(new)
        assert pred.scope is not None
        assert "Scope by 400 reference texts, and the energy of the logits" in "".join(clf.calibration_.describe())
    head = setfit.SetFitHead(in_features=32, out_features=3, device="cpu")
    clf = wrap(setfit.SetFitModel(model_body=encoder, model_head=head, labels=CLASSES)).calibrate(*held_out)
    assert clf.predict(new[:3], check_shift=False).probabilities.sum(axis=1) == pytest.approx(1.0)
    several = setfit.SetFitModel(model_body=encoder, model_head=head, multi_target_strategy="one-vs-rest")
    refuses(
        (ModelError, "several labels a text", lambda: wrap(several)),
        (ConfigurationError, "cannot be wrapped", lambda: wrap(encoder)),
    )


@pytest.mark.parametrize("form", ["array", "named", "top", "embedded"])
def test_a_function_of_texts(rows, form):
    model, (_, held_out, (new, _)) = fitted(rows, LogisticRegression(C=10)), rows

    def classify(given):
        probs = model.predict_proba(given)
        pairs = [list(zip(CLASSES, row, strict=True)) for row in probs.tolist()]
        named = [[{"label": name, "score": p} for name, p in row] for row in pairs]
        top = [dict([max(row, key=lambda pair: pair[1])]) for row in pairs]
        return {"array": probs, "named": named, "top": top, "embedded": (probs, probs[:, :2])}[form]

    clf = wrap(classify, classes=CLASSES).calibrate(*held_out, target_risk=0.6)
    pred = clf.predict(new)
    assert (pred.labels == model.predict(new)).all()
    assert (pred.scope is not None) == (form == "embedded")
    assert "classify" in repr(clf)


def test_what_cannot_be_wrapped_says_why(rows, tmp_path):
    wrap(fitted(rows, LogisticRegression())).calibrate(*rows[1]).save_pretrained(tmp_path / "saved")
    two, numbered = fitted(rows, LogisticRegression(), names=["bad"]), LogisticRegression().fit([[0], [1]], [1, 2])
    twice, once = (wrap(lambda texts, p=p: p, classes=["a", "b"]) for p in ([[1, 1]] * 2, [[0.5, 0.5]]))
    refuses(
        (ConfigurationError, "str cannot be wrapped; give an estimator", lambda: wrap("my-model")),
        (ConfigurationError, "cannot be wrapped", lambda: wrap(lambda texts: texts)),
        (ModelError, "LogisticRegression has no classes_: fit it first", lambda: wrap(LogisticRegression())),
        (ConfigurationError, "the classes are the numbers 1, 2, and a number means", lambda: wrap(numbered)),
        (ModelError, "calibrated for the classes bad, fair, good", lambda: wrap(two, calibrated=tmp_path / "saved")),
        (InputError, "the probabilities sum to 2, not to 1", lambda: twice.predict(["x", "y"])),
        (InputError, r"the shape \(1, 2\) for 2 texts and 2 classes", lambda: once.predict(["x", "y"])),
    )
