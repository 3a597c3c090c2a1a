"""The limits of the service, and the check of the texts of a request against them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from uatlite.errors import ConfigurationError
from uatlite.serve.http import Refusal, invalid
from uatlite.values import Text, strings

MOST_FAULTS = 10
"""Faulty fields that a refusal names."""

Fault = Callable[[Text], str | None]
"""Why the model cannot take a text, in a few words; None where it can."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of every body, queue and wait, so that no client can fill the memory. A request beyond them is refused."""

    body: int = 2**20
    """bytes of a request's body"""
    texts: int = 128
    """texts of a request"""
    characters: int = 20_000
    """characters of a text, with all parts of a pair or a question"""
    explained: int = 2_000
    """characters of a text to explain: attention grows with the square of its tokens"""
    batch: int = 32
    """texts in a batch of the model"""
    waiting: int = 512
    """texts that may wait for the model; then requests are refused"""
    explaining: int = 8
    """explanations that may wait"""
    gather: float = 0.005
    """seconds that a text waits at most for as many others as the latest batch had"""
    deadline: float = 30.0
    """seconds after which a request is given up"""
    requests: int = 1024
    """requests under way at the same time"""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least = 0 if name == "gather" else 1
            number, spelt = (int | float, "a number") if name in ("gather", "deadline") else (int, "a whole number")
            if isinstance(value, bool) or not isinstance(value, number) or not least <= value < float("inf"):
                raise ConfigurationError(f"{name}={value!r} is not {spelt} of {least} or more.")
        if self.waiting < self.texts:
            raise ConfigurationError(
                f"waiting={self.waiting} is less than texts={self.texts}: the largest request could never be accepted. "
                "Raise waiting, or lower texts."
            )

    def check_texts(self, texts: Sequence[Text], fault: Fault) -> None:
        """Raise a `Refusal` that names the faulty texts of a request, if there are any."""
        if len(texts) > self.texts:
            raise invalid("texts", f"{len(texts)} texts, but a request may have at most {self.texts}")
        checked = [(f"texts[{i}]", _fault(text, fault, self.characters)) for i, text in enumerate(texts)]
        if faults := [(field, message) for field, message in checked if message is not None]:
            raise Refusal(422, fields=faults[:MOST_FAULTS])

    def check_explained(self, text: Text, fault: Fault) -> None:
        """Raise a `Refusal` where a text to explain is faulty."""
        if message := _fault(text, fault, self.explained):
            raise invalid("text", message)


def characters(text: Text) -> int:
    """How many characters a text has, with all parts of a pair or a question."""
    return sum(map(len, strings(text)))


def _fault(text: Text, fault: Fault, most: int) -> str | None:
    if (size := characters(text)) > most:
        return f"{size} characters, but a text may have at most {most}"
    if message := fault(text):
        return message
    return None if all(map(_is_unicode, strings(text))) else "half of a surrogate pair, which is not a character"


def _is_unicode(string: str) -> bool:
    try:
        string.encode()
    except UnicodeEncodeError:
        return False
    return True
