"""What was found, in a few plain sentences. Every number and every verdict in them is read off the results."""

from uatlite.experiments.comparison import Score
from uatlite.experiments.results import Results
from uatlite.report.abstention import Abstention

METRIC = "nll"
"""The proper score by which contenders are ranked in words."""


def findings(results: Results, abstention: Abstention | None) -> list[str]:
    """At most three sentences: who is best in domain, what shift does to calibration, what abstaining buys."""
    found = [_in_domain(results), _under_shift(results), _abstaining(abstention)]
    return [sentence for sentence in found if sentence]


def _in_domain(results: Results) -> str:
    first = results.sets[0]
    if METRIC not in results.metrics or len(results.contenders) < 2:
        return ""
    base = results.contenders[0]
    best = min(results.contenders, key=lambda name: first.scores[name][METRIC].mean)
    own, start = first.scores[best][METRIC], first.scores[base][METRIC]
    if best == base:
        return f"On {first.name} no method has a lower NLL than {base} ({start.mean:.3f})."
    return (
        f"On {first.name} {best} has the lowest NLL, {own.mean:.3f} against {start.mean:.3f} for {base}"
        f"{_accuracy(results, best)}: {_verdict(own)}."
    )


def _accuracy(results: Results, best: str) -> str:
    scores = results.sets[0].scores[best]
    return f", at an accuracy of {scores['accuracy'].mean:.1%}" if "accuracy" in scores else ""


def _verdict(score: Score) -> str:
    """Whether a difference from the first contender is more than chance, by its paired interval."""
    assert score.difference is not None
    low, high = score.difference.low, score.difference.high
    interval = f"the paired interval of the difference is {low:+.3f} to {high:+.3f}".replace("-", "−")
    sure = "it excludes 0" if score.difference.excludes(0.0) else "it includes 0, so this may be chance"
    return f"{interval}, and {sure}"


def _under_shift(results: Results) -> str:
    if len(results.sets) < 2 or "ece" not in results.metrics:
        return ""
    first, shifted = results.sets[0], results.sets[1]
    steady = min(results.contenders, key=lambda name: shifted.scores[name]["ece"].mean)
    before, after = first.scores[steady]["ece"].mean, shifted.scores[steady]["ece"]
    sentence = (
        f"Under shift, on {shifted.name}, the best calibrated is {steady} with an ECE of {after.mean:.3f} "
        f"({after.low:.3f} to {after.high:.3f}), after {before:.3f} in domain"
    )
    if "accuracy" in results.metrics:
        old, new = (one.scores[steady]["accuracy"].mean for one in (first, shifted))
        sentence += f"; its accuracy went from {old:.1%} to {new:.1%}"
    return sentence + "."


def _abstaining(abstention: Abstention | None) -> str:
    if abstention is None:
        return ""
    rule, first = abstention.rule, abstention.sets[0]
    if not rule.promised:
        return f"With {abstention.contender} no threshold can promise an error of {rule.target:.0%}: {rule.reason}"
    sentence = (
        f"Told to keep errors at {rule.target:.0%} or less, {abstention.contender} answers {first.coverage:.0%} of "
        f"{first.name} and errs on {first.risk:.1%} of its answers (answering all it would err on "
        f"{first.risk_without:.1%})"
    )
    for shifted in abstention.sets[1:2]:
        sentence += f"; on {shifted.name}, which the promise does not cover, on {shifted.risk:.1%}"
    return sentence + "."
