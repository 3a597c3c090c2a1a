"""What is said of an explanation in words, the same in a terminal, on a page and under an image."""

from uatlite.classifier import Explanation

HOW = {
    "delta": "first order, from one forward and one backward pass",
    "isolated": "each layer alone drops units, {samples} passes each",
    "total-variance": "law of total variance, {samples} pairs of passes for each component",
}


def verdict(explanation: Explanation) -> str:
    """'negative, 83.5% sure, and abstains'"""
    prediction = explanation.prediction
    said = f"{prediction.label}, {prediction.confidence:.1%} sure"
    if prediction.among.rule is None:
        return said
    return f"{said}, and {'abstains' if prediction.abstain else 'answers'}"


def sources(explanation: Explanation) -> str:
    """What the bars are: the variance, and by which estimator."""
    found = explanation.attribution
    error = "" if found.total_error is None else f" ± {float(found.total_error[0]):.3f}"
    how = HOW[found.estimator].format(samples=found.samples)
    return f"Variance of the margin {float(found.total[0]):.3f}{error}; {found.estimator}: {how}."


def masked(explanation: Explanation) -> str:
    """What masking the word that matters most does; empty where no word was masked."""
    moved = [word for word in explanation.words if word.confidence_change is not None]
    if not moved:
        return ""
    most = max(moved, key=lambda word: abs(word.confidence_change or 0.0))
    before = explanation.quiet_confidence
    return (
        f"Without dropout it is {before:.1%} sure of {explanation.quiet_label}; "
        f"with “{most.word.text}” masked, {before + (most.confidence_change or 0.0):.1%}."
    )


def notes(explanation: Explanation) -> list[str]:
    """What the reader must not miss."""
    found = []
    if explanation.truncated_tokens:
        found.append(f"{explanation.truncated_tokens:,} tokens of the text were cut off and are not explained.")
    if explanation.quiet_label != str(explanation.prediction.among.classes[_column(explanation)]):
        found.append(f"The pass without dropout, which is explained, says {explanation.quiet_label}.")
    return found


def _column(explanation: Explanation) -> int:
    return int(explanation.prediction.among.predicted[explanation.prediction.row])
