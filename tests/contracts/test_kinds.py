"""What one kind of answer can do, all can: the same tests over `KINDS`, on tiny models."""

import ast
import copy
import json
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from fake_device import DEVICE, fake_device
from reference import BLOCKED
from uatlite import Layers, UATConfig, attribute
from uatlite.classifier.answer_kind import AnswerKind
from uatlite.classifier.classifiers import PRODUCTS, UncertaintyClassifier, UncertaintyTagger, load
from uatlite.classifier.display import ABSTAINING, BELOW, NO_PROMISE, NO_RULE, OUT_OF_SCOPE
from uatlite.classifier.export import export
from uatlite.classifier.product import KINDS, Product
from uatlite.classifier.recheck import read_now, recheck, update
from uatlite.errors import CalibrationError, ConfigurationError, InputError, ModelError
from uatlite.methods.distilled import FEATURES
from uatlite.model import device as devices
from uatlite.model.architectures import HEADS
from uatlite.scoring.job import Job
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.serve.service import ANSWERS
from uatlite.text.gold import GOLD
from uatlite.trust.rule import Wanted
from uatlite.trust.shift import Share
from uatlite.values import Choices, Kind, Text

SOURCE = Path(__file__).parents[2] / "src" / "uatlite"
ROWS = 240


@dataclass(frozen=True)
class Case:
    """What to ask of the calibration of a kind."""

    asked: dict[str, Any]
    refused: object
    """no text of its model"""
    said: str
    """the attribute of predictions that is said of each text"""
    strict: dict[str, Any]
    """what asks for more, so that texts are abstained on"""
    columns: str
    """of a row of output"""
    hopeless: dict[str, Any] = field(default_factory=lambda: {"target_risk": 0.001})
    """what cannot be promised"""


ENDING = "passes cut_tokens scope out_of_scope"
MEASURES = f"confidence margin logit_margin entropy expected_entropy mutual_information variance {ENDING}"
HALF = {"target_risk": None, "review_share": 0.5}
CASES = {
    "one": Case(
        {"target_risk": 0.6, "label_sets": 0.8, "score": "confidence"},
        3,
        "labels",
        HALF,
        f"label abstain reason above_threshold label_set {MEASURES} p_bad p_fair p_good",
    ),
    "choice": Case(
        {"target_risk": 0.6},
        "no options",
        "labels",
        HALF,
        f"label abstain reason above_threshold {MEASURES} p_A p_B p_C",
    ),
    "labels": Case(
        {"target_risk": 0.5},
        3,
        "labels",
        {"target_risk": 0.05},
        f"labels abstain withheld reason above_threshold confidence log_odds {ENDING} p_anger p_joy p_fear "
        "p_relief variance_anger variance_joy variance_fear variance_relief",
        {"target_risk": 0.001},
    ),
    "entities": Case(
        {"target_risk": 0.5, "target_recall": 0.3},
        ("a", ""),
        "entities",
        {"target_risk": 0.05},
        f"entities abstain reason above_threshold confidence log_odds missed missed_at {ENDING}",
    ),
}


@dataclass(frozen=True)
class Made:
    """Products of one kind, and rows to calibrate them on."""

    kind: Kind
    case: Case
    product: Callable[..., Product[Any]]
    texts: list[Text]
    gold: list[Any]

    def calibrated(self, method="base", **options):
        product = self.product(method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return product.calibrate(self.texts, self.gold, **(self.case.asked | options))

    @property
    def new(self):
        return self.texts[:40]


def gold_of(kind, predictions):
    """What predictions say, and of every third text something else."""
    rng = np.random.default_rng(0)
    if kind in ("one", "choice"):
        columns = predictions.predicted.copy()
        columns[::3] = (columns[::3] + 1) % len(predictions.classes)
        return list(columns)
    if kind == "labels":
        return list((predictions.probabilities > 0.5) ^ (rng.random(predictions.probabilities.shape) < 0.2))
    spans = [[(e.start, e.end, e.label) for e in entities] for entities in predictions.entities]
    firsts = [(0, text.index(" "), "place") for text in predictions.texts]  # of random words one may be missed
    gold = zip(spans, firsts, strict=True)
    return [[some[1:], sorted({*some, first}), some][i % 3] for i, (some, first) in enumerate(gold)]


@pytest.fixture(scope="module", params=KINDS)
def made(request, product_of, made_texts):
    kind = request.param
    texts = list(made_texts(ROWS))
    if kind == "choice":
        texts = [Choices(text, ("a1 a2", "a3 a9 a4", "a5")) for text in made_texts(ROWS)]
    product = partial(product_of, kind)
    return Made(kind, CASES[kind], product, texts, gold_of(kind, product("base").predict(texts)))


def same(found, expected):
    """Rows whose numbers differ by rounding alone."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=2e-3)
    else:
        assert found == expected


def test_every_kind_has_a_case_and_a_product():
    assert CASES.keys() == KINDS.keys()
    assert {kind.name for product in PRODUCTS for kind in product.kinds} == set(KINDS)
    for name, kind in KINDS.items():
        assert kind.name == name


def test_the_seam_has_at_most_a_dozen_members():
    members = {name for name in (*vars(AnswerKind), *AnswerKind.__annotations__) if not name.startswith("_")}
    assert len(members) == 11, members


@pytest.mark.parametrize(
    "table", [GOLD, HEADS, FEATURES, KINDS, ANSWERS], ids=["text", "model", "methods", "classifier", "serve"]
)
def test_the_table_of_each_room_has_every_kind(table):
    assert set(table) == set(get_args(Kind))


def test_nobody_else_asks_for_the_kind():
    """No name or call that ends in 'kind' is compared with one of the kinds."""
    asking = Counter()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                words = {value.value for value in ast.walk(node) if isinstance(value, ast.Constant)}
                sides = [side.func if isinstance(side, ast.Call) else side for side in (node.left, *node.comparators)]
                names = [ast.unparse(side).rpartition(".")[2] for side in sides]
                kinds = any(name in ("kind", "kind_of", "name", "gold") or "answering" in name for name in names)
                asking[str(path.relative_to(SOURCE))] += bool(kinds and words & set(get_args(Kind)))
    assert not +asking


def test_what_is_saved_says_the_same(made, tmp_path):
    product = made.calibrated("distilled")
    product.save_pretrained(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert type(again) is type(product)
    assert again.kind is product.kind
    assert list(again.predict(made.new).rows()) == list(product.predict(made.new).rows())
    assert again.calibration_.describe() == product.calibration_.describe()
    assert product.kind.predictions.words.task in (tmp_path / "saved" / "README.md").read_text()


def test_the_layers_with_the_largest_variance_are_chosen_on_calibration_rows(made, tmp_path):
    product = made.calibrated("mc-component:samples=2,layers=top-1")
    layers = product.method.config.layers
    assert layers in (Layers.only("1"), Layers.only("2"))
    (reason,) = product.calibration_.spending
    assert product.method.name == "mc-component:samples=2,layers=top-1"
    assert product.method.changed(samples="3").name == "mc-component:samples=3,layers=top-1"
    assert product.method.changed(layers="2").name == "mc-component:samples=2,layers=2"
    shares = [int(share) for share in re.findall(r"(\d+)%", reason)]
    assert 1 + shares.index(max(shares)) == int(layers.rate_layers)
    product.save_pretrained(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.calibration_.settings == product.calibration_.settings
    assert list(again.predict(made.new).rows()) == list(product.predict(made.new).rows())
    with pytest.raises(ConfigurationError, match="chosen on calibration rows"):
        made.product("uat:layers=top-1").predict(made.new)
    if made.kind == "one":
        encoded = [product.tokenizer(text, return_tensors="pt") for text in made.texts]
        every = UATConfig(gate="none")
        parts = [attribute(product.model, dict(text), every, output="margin").contributions for text in encoded]
        expected = torch.cat(parts).mean(dim=0)[1:-1]
        assert shares == pytest.approx((100 * expected / expected.sum()).tolist(), abs=0.51)


def test_slices_are_what_was_said_of_their_texts(made):
    pred = made.calibrated().predict(made.new)
    rows = list(pred.rows())
    json.dumps(rows)
    assert [prediction.as_row() for prediction in pred] == rows
    assert list(pred[5:9].rows()) == rows[5:9]
    assert list(pred[::-1].rows()) == rows[::-1]
    assert list(pred[[7, 2]].rows()) == list(pred[np.array([7, 2])].rows()) == [rows[7], rows[2]]
    assert pred.shift is not None
    assert pred[5:9].shift is None
    wrong = [chance for row in rows for chance in ScoredRow(row).wrong]
    np.testing.assert_allclose(wrong, 1.0 - pred.sure[pred.reports])
    assert pred.shift.expected == Share.expected(float((1.0 - pred.sure[pred.reports]).sum()), len(wrong))
    assert list(pred[pred.abstain].rows()) == [row for row in rows if row["abstain"]]
    assert pred[3].as_row() == rows[3]
    for prediction, row in zip(pred, rows, strict=True):
        assert (row["reason"] in ABSTAINING) == row["abstain"]
        assert row["reason"] != BELOW or prediction.why.endswith("below the threshold")
    assert len(repr(pred).splitlines()) > 3


def test_the_table_has_the_columns_of_the_rows(made):
    pred = made.calibrated("analytic").predict(made.new, check_shift=False)
    table = pred.to_pandas()
    assert list(next(pred.rows())) == made.case.columns.split()
    assert list(table.columns) == ["text", *made.case.columns.split()]
    assert list(table["text"]) == made.new
    assert table["abstain"].tolist() == pred.abstain.tolist()
    chances = [name for name in table.columns if name.startswith("p_")]
    assert not chances or np.array_equal(table[chances].to_numpy(), pred.probabilities)


def test_no_texts_give_no_predictions(made):
    for product in (made.product("base"), made.calibrated()):
        none = product.predict([])
        assert (len(none), list(none), none.reasons) == (0, [], [])
        assert repr(none).startswith("0 predictions")
        assert none._repr_html_()
        assert len(none.to_pandas()) == 0
    assert made.calibrated().predict([]).abstain.tolist() == []


def test_what_the_model_cannot_take_is_named(made):
    product = made.product("base")
    with pytest.raises(InputError, match=r"texts\[1\]"):
        product.predict([made.texts[0], made.case.refused])
    assert product.kind.fault(made.texts[0], product.class_names) is None
    with pytest.raises(InputError, match=f"{ROWS} texts came with 3"):
        product.calibrate(made.texts, made.gold[:3])
    with pytest.raises(CalibrationError, match="no calibration rows"):
        product.calibrate([], [])


def test_without_a_rule_nobody_abstains_and_it_says_how_to_get_one(made):
    for product in (made.product("base"), made.calibrated(**dict.fromkeys(made.case.asked))):
        pred = product.predict(made.new, check_shift=False)
        for said in (pred, pred[0]):
            advice = product.kind.predictions.words.advice
            with pytest.raises(CalibrationError, match=re.escape(f"there is no rule to {advice}")):
                said.abstain  # noqa: B018
        assert set(pred.reasons) <= {NO_RULE, OUT_OF_SCOPE}
        assert "abstain" not in pred.columns


def test_what_cannot_be_promised_is_abstained_on(made):
    product = made.product("base")
    with pytest.warns(UserWarning, match="Abstain on all: .*risk|Report nothing: "):
        product.calibrate(made.texts[:60], made.gold[:60], **made.case.hopeless)
    pred, rule = product.predict(made.new, check_shift=False), product.calibration_.rule
    assert rule.describe() in product.calibration_.describe()
    assert rule.describe() == repr(pred).splitlines()[-1]
    assert not pred.reports.any()
    some = np.isin(np.arange(len(pred)), pred.answers.text)  # of a text without an entity nothing is withheld
    assert pred.abstain[some].all()
    for prediction in pred[some & ~pred.out_of_scope] if product.calibration_.scope else pred[some]:
        assert (prediction.reason, prediction.why) == (NO_PROMISE, "no risk can be promised")
        assert prediction.above_threshold is None


@pytest.mark.parametrize("method", ["base", "fast", "uat:samples=3", "analytic"])
def test_a_text_has_one_answer_in_any_company(made, method):
    product, texts = made.calibrated(method), made.new[:12]
    together = list(product.predict(texts, check_shift=False).rows())
    backwards = list(product.predict(texts[::-1], check_shift=False).rows())[::-1]
    alone = [product.predict([text], check_shift=False)[0].as_row() for text in texts[:6]]
    for found, expected in [*zip(backwards, together, strict=True), *zip(alone, together, strict=False)]:
        same(found | {"scope": 0.0}, expected | {"scope": 0.0})  # a rank among calibration rows may be another


def test_one_answer_is_explained(made):
    product = made.calibrated("analytic")
    text = next(text for text in made.new if len(product.predict([text], check_shift=False).answers))
    explanation = product.explain(text)
    assert explanation.prediction.as_row() == product.predict([text], check_shift=False)[0].as_row()
    assert sum(layer.share for layer in explanation.layers) == pytest.approx(1, abs=1e-4)
    head = 0.0 if made.kind == "entities" else explanation.layers[-1].share  # every site of a token model is a token's
    words = sum(word.share for word in (*explanation.words, *explanation.special_tokens))
    assert words + head == pytest.approx(1, abs=1e-3)
    plain = json.loads(json.dumps(explanation.to_dict()))
    assert plain["variance"] == explanation.variance > 0
    assert plain["prediction"] == json.loads(json.dumps(explanation.prediction.as_row()))
    assert explanation.label in repr(explanation)


def test_calibrated_again_it_is_the_same_so_that_a_killed_run_goes_on(made, tmp_path):
    """What a run of `predict` records of the classifier, by which it is resumed."""
    first, job = made.calibrated("distilled"), Job("rows.csv", tmp_path / "out.csv")
    first.save_pretrained(tmp_path / "saved")
    others = (made.calibrated("distilled"), load(tmp_path / "saved"))
    assert [job.record(product.predictor()) for product in others] == [job.record(first.predictor())] * 2


@pytest.mark.parametrize("int8", [False, True], ids=["fp32", "int8"])
def test_an_exported_classifier_says_the_same_and_is_calibrated(made, int8, tmp_path):
    product = made.calibrated()
    texts = made.texts[:12]
    difference = export(product, tmp_path / "out", int8=int8, texts=texts)
    assert difference.texts == 12
    exported = load(tmp_path / "out")
    assert type(exported) is type(product)
    other = UncertaintyClassifier if product.kind.name in ("labels", "entities") else UncertaintyTagger
    with pytest.raises(ModelError, match=f"{other.__name__} is for other models; use {type(product).__name__}"):
        other.from_pretrained(tmp_path / "out")
    if int8:
        assert exported.calibration_ is None
        alone = [exported.predict([text])[0].as_row() for text in texts]
        assert alone == list(exported.predict(texts).rows())  # a text has one answer in any company
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported.calibrate(made.texts, made.gold, **made.case.asked)
        exported.save_pretrained(tmp_path / "again")
        again = load(tmp_path / "again")
        assert list(again.predict(texts).rows()) == list(exported.predict(texts).rows())
        return
    assert difference.changed == 0
    decided = {"scope", "out_of_scope", "abstain", "reason"}  # a rank among calibration rows may be another
    for found, expected in zip(exported.predict(texts).rows(), product.predict(texts).rows(), strict=True):
        assert found.keys() == expected.keys()
        same(*({name: row[name] for name in row if name not in decided} for row in (found, expected)))


def test_the_promise_is_rechecked_and_renewed(made):
    product = made.calibrated()
    calibration = product.calibration_
    now = read_now(product, made.texts, made.gold)
    for rule in calibration.rules:
        found = recheck(now, rule)
        ((_, risk),) = found.now
        assert risk.low <= risk.risk <= risk.high
        assert risk.errors <= rule.errors + 0.2 * risk.rows  # the calibration texts themselves
        assert recheck(now, rule, target=0.99).verdict == "holds"
        assert found.describe()[0].startswith("Promised: at most")
        assert ("are missed" in found.describe()[1]) == (rule.kind == "recall")
    product.calibration_ = new = update(calibration, now)
    assert [rule.kind for rule in new.rules] == [rule.kind for rule in calibration.rules]
    assert new.rows == ROWS
    assert len(product.predict(made.new, check_shift=False)) == len(made.new)


def test_wrong_answers_are_promised_of_all_texts(made):
    product = made.calibrated(**dict.fromkeys(made.case.asked), target_errors=0.6)
    rule, now = product.calibration_.rule, read_now(product, made.texts, made.gold)
    wrong = now.predictions.labelled(now.gold, Wanted(score=rule.score)).errors & now.predictions.reports
    assert (rule.kind in ("errors", "per-text"), rule.promised) == (True, True)
    ((_, risk),) = recheck(now, rule).now
    assert risk.risk == pytest.approx(wrong.sum() / ROWS)
    assert recheck(now, rule).verdict != "broken"
    told = recheck(now, rule).describe()
    assert told[0].startswith("Promised: at most ")
    with pytest.raises(CalibrationError, match=r"takes 2,?995 labelled texts without an error"):
        made.calibrated(**dict.fromkeys(made.case.asked), target_errors=0.001)


def test_a_second_look_stands_beside_the_first(made, tmp_path):
    once = made.calibrated(**made.case.strict).predict(made.new, check_shift=False)
    product = made.calibrated(**made.case.strict, second_look="uat:samples=2")
    twice = product.predict(made.new, check_shift=False)
    assert twice.abstain.sum() > 0
    assert twice.reasons == once.reasons
    assert twice.passes.tolist() == [3 if abstains else 1 for abstains in twice.abstain]
    rows = list(twice.rows())
    assert [row["second_confidence"] is not None for row in rows] == twice.abstain.tolist()
    assert list(twice[3:9].rows()) == rows[3:9]
    product.save_pretrained(tmp_path / "saved")
    same(list(load(tmp_path / "saved").predict(made.new, check_shift=False).rows()), rows)


def test_with_indices_classes_are_numbers_in_and_out(made):
    named, numbered = made.calibrated(), made.product("base", indices=True)
    numbers = (
        [[(s, e, named.class_names.index(n)) for s, e, n in some] for some in made.gold]
        if made.kind == "entities"
        else made.gold
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbered.calibrate(made.texts, numbers, **made.case.asked)
    names, columns = (product.predict(made.new, check_shift=False) for product in (named, numbered))
    assert columns.outcomes == names.outcomes or made.kind == "labels"
    for said, number in zip(getattr(names, made.case.said), getattr(columns, made.case.said), strict=True):
        given = [said] if made.kind in ("one", "choice") else said
        got = [number] if made.kind in ("one", "choice") else number
        for one, other in zip(given, got, strict=True):
            one, other = (getattr(value, "label", value) for value in (one, other))
            assert named.class_names[other] == one


@pytest.mark.parametrize("made", ["entities"], indirect=True)
def test_a_promise_of_recall_alone_is_a_rule(made):
    product = made.calibrated(target_risk=None, target_recall=0.95)
    pred = product.predict(made.new, check_shift=False)
    assert pred.abstain.sum() > 0
    assert repr(product).endswith("abstains)")
    assert any("gold answers" in line or "Answer no text" in line for line in product.calibration_.describe())
    assert f"{int(pred.abstain.sum())} abstained" in repr(pred)


def test_it_runs_and_is_served_without_torch_and_transformers(made, tmp_path):
    export(made.calibrated(), tmp_path / "out", texts=made.texts[:5])
    given = "[Choices('a1 a2', ('a3', 'a4', 'a5'))] * 3" if made.kind == "choice" else "['a1 a2 a3', 'a4', 'a5 a6']"
    code = f"""{BLOCKED}
from uatlite.classifier.classifiers import load
from uatlite.serve.service import Service
from uatlite.values import Choices

product = load({str(tmp_path / "out")!r})
assert len(list(product.predict({given}).rows())) == 3
Service(product).warm_up()
assert not {{"torch", "transformers", "scipy", "sklearn"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("method", ["distilled", "uat:samples=2"])
def test_each_says_the_same_on_another_device(made, method):
    expected = made.calibrated(method)
    rows, text = list(expected.predict(made.new, check_shift=False).rows()), made.new[3]
    explained, tokens = expected.explain(text).to_dict(), expected.predictor().tokens(made.new[:3])
    model = expected.model
    with fake_device() as device:
        moved = made.product(method)
        moved.model = copy.deepcopy(model).to(DEVICE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            moved.calibrate(made.texts, made.gold, **made.case.asked)
        same(list(moved.predict(made.new, check_shift=False).rows()), rows)
        same(moved.explain(text).to_dict(), explained)
        same(moved.predictor().tokens(made.new[:3]), tokens)
    assert device.operations > 1000


@pytest.fixture
def bf16(monkeypatch):
    """A CPU that has bf16, without the library whose products crash on some."""
    monkeypatch.setattr(devices, "precisions_of", lambda device: ["fp32", "bf16"])
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def test_a_calibration_holds_for_its_precision(made, bf16, tmp_path):
    fp32, half = made.calibrated("distilled"), made.product("distilled", precision="bf16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        half.calibrate(made.texts, made.gold, **made.case.asked)
    assert half.calibration_.settings.precision == "bf16"
    near, far = (np.ravel(each.predict(made.new, check_shift=False).confidence) for each in (half, fp32))
    if made.kind == "one":  # of the other kinds answers may come and go
        assert 0 < np.abs(near - far).max() < 0.1
    half.explain(made.new[3])
    half.save_pretrained(tmp_path / "half")
    again = load(tmp_path / "half", device="cpu")
    assert again.precision == "bf16"
    said, before = (list(each.predict(made.new, check_shift=False).rows()) for each in (again, half))
    same(said, before)
    fp32.precision = "bf16"
    with pytest.raises(CalibrationError, match="calibrated with precision fp32, now bf16; calibrate it again"):
        fp32.predict(made.new)


def test_a_precision_that_the_device_has_not_is_refused(made):
    product = made.product("base", precision="bf16")
    for ask in (lambda: product.predict(made.new), lambda: product.calibrate(made.texts, made.gold)):
        with pytest.raises(ConfigurationError, match=r"precision='bf16': cpu computes in fp32 only"):
            ask()
    assert product.predictor(here=False).settings.precision == "bf16"  # another machine may have it
