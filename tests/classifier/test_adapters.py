"""scikit-learn's tools and transformers' pipeline take the classifier as one of theirs."""

import numpy as np
import pytest
from transformers import pipeline

from uatlite.errors import ConfigurationError, ModelError

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone, is_classifier  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.frozen import FrozenEstimator  # noqa: E402
from sklearn.metrics import accuracy_score, classification_report, make_scorer  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402


def test_a_clone_is_new_and_uncalibrated_over_the_same_model(calibrated):
    twin = clone(calibrated.set_params(windows=True))
    assert twin is not calibrated
    assert twin.get_params() == calibrated.get_params()
    assert twin.model is calibrated.model
    assert twin.calibration_ is None
    assert is_classifier(twin)
    check_is_fitted(twin)


def test_parameters_are_those_of_init(build):
    clf = build()
    assert clf.set_params(seed=3, max_length=12).get_params()["seed"] == 3
    with pytest.raises(ConfigurationError, match=r"no parameter 'max_lenght'.*Did you mean 'max_length'"):
        clf.set_params(max_lenght=3)


@pytest.mark.parametrize("indices", [False, True])
def test_cross_validation_and_scorers(build, labelled, indices):
    clf = build("base", indices=indices)
    texts, names = labelled(120)
    labels = [clf.class_names.index(name) for name in names] if indices else names
    assert clf.classes_.tolist() == ([0, 1, 2] if indices else ["bad", "fair", "good"])
    scorers = {"own": None, "theirs": make_scorer(accuracy_score), "loss": "neg_log_loss"}
    scorers["own"] = lambda estimator, rows, gold: estimator.score(rows, gold)
    scores = cross_validate(clf, texts, labels, cv=2, scoring=scorers)
    assert np.array_equal(scores["test_own"], scores["test_theirs"])
    assert np.isfinite(scores["test_loss"]).all()
    assert "accuracy" in classification_report(labels, clf.predict(texts), zero_division=0.0)


def test_score_is_accuracy_also_with_weights(build, labelled):
    clf, (texts, labels) = build("base"), labelled(70)
    assert cross_val_predict(clf, texts, labels, cv=2, method="predict_proba").shape == (70, 3)
    weights = np.arange(70.0)
    expected = accuracy_score(labels, clf.predict(texts), sample_weight=weights)
    assert clf.score(texts, labels, sample_weight=weights) == pytest.approx(expected)


def test_a_grid_search_may_choose_the_method(build, labelled):
    search = GridSearchCV(build(), {"config": ["base", "uat:samples=2"]}, cv=2, scoring="neg_log_loss")
    search.fit(*labelled(80))
    assert search.best_params_["config"] in ("base", "uat:samples=2")
    assert search.best_estimator_.calibration_ is not None


def test_frozen_inside_another_calibrator_and_in_a_pipeline(build, labelled):
    texts, labels = labelled(90)
    outer = CalibratedClassifierCV(FrozenEstimator(build("base"))).fit(texts, labels)
    assert outer.predict_proba(texts).shape == (90, 3)
    steps = make_pipeline(FunctionTransformer(lambda rows: [row.lower() for row in rows]), build("base"))
    assert steps.fit(texts, labels).score(texts, labels) > 0.3


def test_the_pipeline_gives_the_calibrated_scores(calibrated, made_texts):
    texts = made_texts(6)
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


def test_uncalibrated_it_is_the_plain_mean_over_passes(build):
    clf = build("uat:samples=2")
    pipe = pipeline("text-classification", model=clf.as_model(), tokenizer=clf.tokenizer, device="cpu")
    assert pipe("a1 a2")[0]["score"] == pytest.approx(clf.predict(["a1 a2"])[0].confidence, abs=1e-5)


def test_it_is_not_saved_by_mistake(build, tmp_path):
    with pytest.raises(ModelError, match="save the classifier"):
        build().as_model().save_pretrained(tmp_path)
