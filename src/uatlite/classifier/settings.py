"""What decides the logits besides the model: the method, its seed, the length of texts and the tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uatlite.errors import ConfigurationError, ModelError, StoreError
from uatlite.methods.method import Method
from uatlite.methods.registry import METHODS, method_from_dict, method_to_dict, parse_method
from uatlite.methods.sampling import method_of_config
from uatlite.model.tokens import TOKENIZING, tokenize
from uatlite.passes.config import UATConfig
from uatlite.values import Floats

if TYPE_CHECKING:
    from uatlite.model.tokens import Tokenizer

DEFAULT_METHOD = "distilled"

# A tokenizer that treats case, accents, digits, signs or another script differently splits it differently.
PROBE = "The Quick brown fox isn't naïve: it costs $12.50 — 你好, ÀÉÎ!"


@dataclass(frozen=True)
class Settings:
    """A calibration holds for these settings and no others."""

    method: Method
    seed: int
    max_length: int
    windows: bool
    tokenizer: str
    """a fingerprint of how the tokenizer splits"""
    aggregation_strategy: str | None = None
    """how tokens are joined to entities, one of `uatlite.classifier.tags.STRATEGIES`; None: by the text"""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        names = ("seed", "max_length", "windows", "tokenizer", "aggregation_strategy")
        own = {name: getattr(self, name) for name in names}
        return {"method": method_to_dict(self.method), **own}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], arrays: Mapping[str, Floats] | None = None) -> Settings:
        """The settings that `to_dict` described; `arrays` has what the method learned, by name among others."""
        try:
            method = method_from_dict(values["method"], arrays).seeded(int(values["seed"]))
            return cls(**{**values, "method": method})
        except (KeyError, TypeError, StoreError) as error:
            raise ModelError(
                f"the stored settings are broken or of another version ({error}); calibrate again."
            ) from error

    def difference(self, other: Settings) -> str:
        """What differs, as 'max_length 512, now 128'; empty where nothing does."""
        mine, theirs = self.to_dict(), other.to_dict()
        names = [name for name in mine if mine[name] != theirs[name]]
        return "; ".join(f"{name} {self._shown(name)}, now {other._shown(name)}" for name in names)

    def _shown(self, name: str) -> str:
        return self.method.name if name == "method" else str(getattr(self, name))[:12]


Config = UATConfig | Method | str | None


def method_of(config: Config, seed: int | None, own: Method | str | None, default: str = DEFAULT_METHOD) -> Method:
    """The method that a user named: by a configuration, a spelling such as 'uat:gate=k', or itself.

    Where none is named, it is the model's own, which it was made for, or `default`.
    """
    if config is None:
        config = own or default
    if isinstance(config, UATConfig):
        method: Method = method_of_config(config)
    elif isinstance(config, str):
        method = parse_method(config)
    elif isinstance(config, Method):
        method = config
    else:
        raise ConfigurationError(
            f"config={config!r:.80} is not a UATConfig, a method or its spelling; there are {', '.join(METHODS)}."
        )
    if isinstance(own, Method) and (own.name, own.seed) == (method.name, method.seed):
        method = own  # with what it learned
    return method if seed is None else method.seeded(seed)


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    """SHA-256 of how the tokenizer splits a text that is meant to tell tokenizers apart."""
    with TOKENIZING:
        return tokenize(tokenizer, [PROBE, (PROBE, PROBE)], 1 << 30).fingerprint
