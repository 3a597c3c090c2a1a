"""How much the service takes at once. Every queue, body and wait has a bound, so that no client can fill the memory."""

from dataclasses import dataclass, fields

from uatlite.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is beyond these is refused at once, with a status that says so."""

    body: int = 2**20
    """bytes of a request's body"""
    texts: int = 128
    """texts of a request"""
    characters: int = 20_000
    """characters of a text, all parts of a pair or a question together"""
    explained: int = 2_000
    """characters of a text that is explained: attention grows with the square of its tokens"""
    batch: int = 32
    """texts that the model reads at once"""
    waiting: int = 512
    """texts that wait for the model; a request that does not fit is refused"""
    explaining: int = 8
    """explanations that wait"""
    gather: float = 0.005
    """seconds that a text waits for others to share its batch"""
    deadline: float = 30.0
    """seconds in which a request is answered or given up"""
    requests: int = 1024
    """requests at the same time"""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            least = 0 if name == "gather" else 1
            whole = name not in ("gather", "deadline")
            kinds = int if whole else int | float
            if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < float("inf"):
                what = "a whole number" if whole else "a number"
                raise ConfigurationError(f"{name}={value!r} is not {what} of {least} or more.")
        if self.waiting < self.texts:
            raise ConfigurationError(
                f"waiting={self.waiting} is less than texts={self.texts}: the largest request could never be taken. "
                "Raise waiting, or lower texts."
            )
