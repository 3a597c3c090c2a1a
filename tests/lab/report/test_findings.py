"""The sentences: their numbers and verdicts are those of the results."""

from dataclasses import replace

from uatlite.lab.evaluate.results import Results
from uatlite.lab.report.abstention import abstain, findings
from uatlite.lab.report.evaluation import Evaluation
from uatlite.metrics.bootstrap import Interval


def with_difference(results: Results, contender: str, difference: Interval) -> Results:
    """The results with another paired interval of a contender's NLL on the first set."""
    first = results.sets[0]
    score = replace(first.scores[contender]["nll"], difference=difference)
    scores = {**first.scores, contender: {**first.scores[contender], "nll": score}}
    return replace(results, sets=(replace(first, scores=scores), *results.sets[1:]))


def test_three_sentences_with_the_numbers_of_the_results(opened: Evaluation) -> None:
    abstention = abstain(opened)
    assert abstention is not None
    found = findings(opened.results, abstention)
    assert len(found) == 3
    scores = opened.results.sets[0].scores
    best = min(scores, key=lambda name: scores[name]["nll"].mean)
    assert (
        f"{best} has the lowest NLL, {scores[best]['nll'].mean:.3f} against {scores['base']['nll'].mean:.3f}"
        in found[0]
    )
    shifted = opened.results.sets[1].scores
    steady = min(shifted, key=lambda name: shifted[name]["ece"].mean)
    assert f"best calibrated is {steady} with an ECE of {shifted[steady]['ece'].mean:.3f}" in found[1]
    assert f"answers {abstention.sets[0].coverage:.0%} of toy/test" in found[2]


def test_chance_is_called_chance(opened: Evaluation) -> None:
    results = opened.results
    scores = results.sets[0].scores
    best = min(scores, key=lambda name: scores[name]["nll"].mean)
    sure = findings(with_difference(results, best, Interval(-0.1, -0.2, -0.01)), None)[0]
    unsure = findings(with_difference(results, best, Interval(-0.1, -0.2, 0.01)), None)[0]
    assert "it excludes 0" in sure
    assert "may be chance" in unsure


def test_where_base_is_best_it_says_so(opened: Evaluation) -> None:
    results = opened.results
    first = results.sets[0]
    worst = dict.fromkeys(results.contenders, first.scores["base"])
    found = findings(replace(results, sets=(replace(first, scores=worst),)), None)
    assert found == [f"On toy/test no method has a lower NLL than base ({first.scores['base']['nll'].mean:.3f})."]


def test_a_promise_that_cannot_be_made_is_not_made(opened: Evaluation) -> None:
    sentence = findings(opened.results, abstain(opened, "base", target=0.001))[-1]
    assert sentence.startswith("With base no threshold can promise an error of 0%:")
