"""A whole evaluation of a tiny model on a file of made rows, and on a task of three classes summed to two."""

import json

import pytest

from reference import Recorded
from uatlite.errors import ConfigurationError, DataError
from uatlite.lab.evaluate.evaluate import evaluate
from uatlite.lab.evaluate.plan import Plan, SetChoice, parse_contenders
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.store import Store
from uatlite.metrics.intervals import Resampling
from uatlite.text.schema import Layout, Split, Task
from uatlite.text.tasks import task_from_file

FEW = Resampling(resamples=50)


@pytest.fixture
def plan(rows):
    methods = parse_contenders("base,ts,uat:samples=3,uat:samples=3+ts,analytic+its")
    return Plan(
        methods, SetChoice(task_from_file(rows)), perturbations=("swap",), seeds=2, metrics=("nll",), resampling=FEW
    )


def test_an_evaluation_scores_every_contender_on_every_set_and_again_the_same(plan, checkpoint, tmp_path):
    display = Recorded()
    results = evaluate(checkpoint, plan, Store(tmp_path), display)
    assert [one.name for one in results.sets] == ["reviews.jsonl/test", "reviews.jsonl+swap/test"]
    assert results.contenders == ("base", "base+ts", "uat:samples=3", "uat:samples=3+ts", "analytic+its")
    for one in results.sets:
        assert one.rows == 60
        assert {name: len(scores["nll"].values) for name, scores in one.scores.items()} == {
            "base": 1, "base+ts": 1, "uat:samples=3": 2, "uat:samples=3+ts": 2, "analytic+its": 1
        }  # fmt: skip
    assert not results.sets[0].shift
    assert set(results.sets[1].shift["uat:samples=3"]) == {"delta_ece", "robustness_score"}
    assert [len(states) for states in results.calibrators.values()] == [0, 1, 0, 2, 1]
    assert {name: about["cost"] for name, about in results.methods.items()} == {
        "base": 1, "base+ts": 1, "uat:samples=3": 3, "uat:samples=3+ts": 3, "analytic+its": 2
    }  # fmt: skip
    assert results.verdict.set == "reviews.jsonl/test"
    assert list(results.verdict.beaten_by) == ["reviews.jsonl+swap/test"]
    # 60 rows in three sets, one pass of base, one of the analytic method, and three of two seeds
    assert display.stages["predicting"] == [180 * (1 + 1 + 6)] * 2
    assert display.stages["scoring"] == pytest.approx([2, 2])
    assert "uat:samples=3, reviews.jsonl/test, seed 1" in display.done
    again = Recorded()
    values = json.dumps(evaluate(checkpoint, plan, Store(tmp_path), again).to_dict())
    assert again.stages["predicting"] == display.stages["predicting"]  # what is stored counts as done
    assert values == json.dumps(results.to_dict()) == json.dumps(Results.from_dict(json.loads(values)).to_dict())


def test_a_task_that_sums_classes_is_a_shift_without_a_calibration_split(plan, checkpoint, tmp_path):
    lines = [{"text": f"w{row} w{row + 1}", "label": ("bad", "fine")[row % 2]} for row in range(40)]
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "test.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    two = Task(
        name="two",
        title="two classes",
        labels=("bad", "fine"),
        layout=Layout(id=None),
        splits={"test": Split(("two/test",))},
        collapse={"negative": "bad", "neutral": "fine", "positive": "fine"},
    )
    contenders = parse_contenders("base,ts")
    shifted = Plan(contenders, plan.test, shifts=(SetChoice(two),), data_dir=tmp_path, metrics=("nll",), resampling=FEW)
    results = evaluate(checkpoint, shifted, Store(tmp_path / "store"))
    assert "neutral + positive → fine" in results.sets[1].alignment
    with pytest.raises(ConfigurationError, match=r"base\+ts: two has no calibration split.*--shift two"):
        Plan(contenders, SetChoice(two))


def test_labels_that_do_not_match_are_an_error_with_both_lists(checkpoint, tmp_path):
    path = tmp_path / "stars.csv"
    path.write_text("text,label\n" + "\n".join(f"w{row},{row % 3}" for row in range(30)))
    plan = Plan(parse_contenders("base"), SetChoice(task_from_file(path)), metrics=("nll",), resampling=FEW)
    with pytest.raises(DataError, match=r"task: 0, 1, 2; model: negative, neutral, positive.*--label-order"):
        evaluate(checkpoint, plan, Store(tmp_path / "store"))
    named = Plan(plan.contenders, plan.test, label_order=("0", "1", "2"), metrics=("nll",), resampling=FEW)
    assert evaluate(checkpoint, named, Store(tmp_path / "store")).sets[0].rows == 15
