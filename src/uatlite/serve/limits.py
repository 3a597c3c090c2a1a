"""The limits of the service; `uatlite serve` has an option for some of them."""

from dataclasses import asdict, dataclass

from uatlite.errors import ConfigurationError


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
