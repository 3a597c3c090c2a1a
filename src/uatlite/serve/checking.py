"""Texts of a request, checked against the limits and the model before anything waits for the model."""

from collections.abc import Iterator, Sequence

from uatlite.classifier import UncertaintyClassifier
from uatlite.classifier.inputs import text_fault
from uatlite.serve.limits import Limits
from uatlite.serve.refusals import Refusal
from uatlite.serve.schema import Question, text_of
from uatlite.values import Text, strings

MOST_FAULTS = 10
"""Fields that a refusal names; a client repairs its way of asking and not one text after the other."""


def checked(
    given: Sequence[str | tuple[str, str] | Question], classifier: UncertaintyClassifier, limits: Limits
) -> list[Text]:
    """The texts that a classifier takes, or a refusal that names the first that it does not."""
    if len(given) > limits.texts:
        raise Refusal(422, fields=[("texts", f"{len(given)} texts, where at most {limits.texts} are taken at once")])
    texts = [text_of(one) for one in given]
    faults = [
        (f"texts[{place}]", fault)
        for place, text in enumerate(texts)
        for fault in _faults(text, classifier, limits.characters)
    ]
    if faults:
        raise Refusal(422, fields=faults[:MOST_FAULTS])
    return texts


def checked_one(given: str | tuple[str, str] | Question, classifier: UncertaintyClassifier, limits: Limits) -> Text:
    """The text to explain, or a refusal."""
    text = text_of(given)
    for fault in _faults(text, classifier, limits.explained):
        raise Refusal(422, fields=[("text", fault)])
    return text


def _faults(text: Text, classifier: UncertaintyClassifier, most: int) -> Iterator[str]:
    size = sum(len(part) for part in strings(text))
    if size > most:
        yield f"{size} characters, where at most {most} are taken"
        return
    options = len(classifier.class_names) if classifier.chooses and classifier.calibration_ is not None else None
    fault = text_fault(text, chooses=classifier.chooses, options=options)
    if fault is not None:
        yield fault
    elif not all(_is_unicode(part) for part in strings(text)):
        yield "half of a surrogate pair, which is no character"


def _is_unicode(part: str) -> bool:
    try:
        part.encode()
    except UnicodeEncodeError:
        return False
    return True
