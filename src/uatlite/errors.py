"""Every exception that UAT-Lite raises on purpose.

    UATLiteError
    ├── ConfigurationError     a setting outside what is allowed (also a ValueError)
    ├── InputError             texts, tensors or arrays that cannot be used as given (also a ValueError)
    ├── ModelError             a model that cannot be used as given
    │   ├── NotAClassifier     it returns no class logits
    │   └── UnknownArchitecture    it has no row in the architecture table
    ├── DataError              a file, column, split or label that is not as it should be
    ├── StoreError             stored predictions that are missing, broken or of another run
    ├── CalibrationError       a calibrator or threshold that cannot be fitted or applied
    └── MissingDependency      an optional package that this call needs (also an ImportError)

A message names the value that came, what is allowed, and the way out.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class UATLiteError(Exception):
    """The root of the tree: catch this to catch all that UAT-Lite raises on purpose."""


class ConfigurationError(UATLiteError, ValueError):
    """A setting is outside what is allowed."""


class InputError(UATLiteError, ValueError):
    """Texts, tensors or arrays cannot be used as they were given."""


class ModelError(UATLiteError):
    """A model cannot be used as it was given."""


class NotAClassifier(ModelError):
    """The model returns no class logits."""


class UnknownArchitecture(ModelError):
    """The model's architecture has no row in the table."""


class DataError(UATLiteError):
    """A file, a column, a split or a label is not as it should be."""


class StoreError(UATLiteError):
    """Stored predictions are missing, broken, or belong to another run."""


class CalibrationError(UATLiteError):
    """A calibrator or a threshold cannot be fitted or applied."""


class MissingDependency(UATLiteError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; this needs it: pip install 'uatlite[{extra}]'")


def nearest(value: object, allowed: Iterable[str]) -> str:
    """A hint to append to a message: the allowed name closest to `value`, or nothing."""
    close = get_close_matches(str(value).lower(), list(allowed), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise unless `value` is one of `allowed`, naming the value, the choices and the nearest of them."""
    allowed = list(allowed)
    if value not in allowed:
        choices = ", ".join(allowed)
        raise ConfigurationError(f"{name}={value!r} is not one of: {choices}.{nearest(value, allowed)}")
