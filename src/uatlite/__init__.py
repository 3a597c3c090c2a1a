"""UAT-Lite: know when not to trust a text classifier.

The public names are loaded on first use, so that importing a part (the metrics, say) does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uatlite.errors import UATLiteError as UATLiteError

__version__ = "0.1.0"

# public name -> the module that defines it
_HOME = {
    "UATLiteError": "uatlite.errors",
}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'uatlite' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
