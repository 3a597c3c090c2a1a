"""What decides the logits besides the model: the method, its seed, the length of texts and the tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from uatlite.classifier.predictions import CONFIDENCE, SHARE_FOUND, Predictions
from uatlite.codec import Arrays
from uatlite.errors import ConfigurationError, ModelError, StoreError, check_choice
from uatlite.methods.method import Method
from uatlite.methods.registry import METHODS, method_from_dict, method_to_dict, parse_method
from uatlite.methods.sampling import method_of_config
from uatlite.model.tokens import TOKENIZING, tokenize
from uatlite.passes.config import UATConfig
from uatlite.trust.calibrators import check_calibrator
from uatlite.trust.rule import Wanted
from uatlite.values import Floats, check_share

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

    def to_dict(self, arrays: Arrays | None = None) -> dict[str, Any]:
        """Plain JSON values; what the method learned goes into `arrays`."""
        return {**vars(self), "method": method_to_dict(self.method, arrays)}

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


_TARGETS = ("target_risk", "target_coverage", "threshold", "target_precision", "target_wrong", "target_recall")
_SHARES_RIGHT = ("target_precision", "target_recall")
"""Targets that are shares of what is right; rules are about what is wrong."""


class AskedOfAll(TypedDict, total=False):
    """What every `calibrate` may be asked for: fields of `CalibrationOptions`, as those of the classes below."""

    confidence: float
    score: str | None
    second_look: str | None
    menu: bool
    false_alarm: float
    seed: int


class AskedOfClasses(AskedOfAll, total=False):
    """Of one class a text."""

    target_risk: float | None
    target_coverage: float | None
    threshold: float | None
    per_class: bool
    calibrator: str | None
    label_sets: float | None


class AskedOfLabels(AskedOfAll, total=False):
    """Of many labels."""

    target_precision: float | None
    target_wrong: float | None


class AskedOfEntities(AskedOfAll, total=False):
    """Of entities."""

    target_risk: float | None
    target_recall: float | None


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """What calibration is asked for; each product takes its own of them (see its `calibrate`)."""

    target_risk: float | None = None
    """at most this share of the answers, or of the reported entities, is wrong"""
    target_coverage: float | None = None
    """at least this share of texts is answered"""
    threshold: float | None = None
    target_precision: float | None = None
    """at least this share of the reported labels is right"""
    target_wrong: float | None = None
    """at most so many wrong labels are reported a text, on average; 0.1 is one in ten texts"""
    target_recall: float | None = None
    """at least this share of the gold entities is found in the texts that are answered"""
    confidence: float = 0.95
    per_class: bool = False
    """whether a target risk holds among the answers of each class, and not only among all"""
    score: str | None = None
    """None: the raw score, which no label has fitted; or the confidence where a threshold is given"""
    calibrator: str | None = None
    """None: input-temperature where the method knows the variance of its margin, else temperature"""
    label_sets: float | None = None
    """the share of texts whose label set holds the true label"""
    second_look: str | None = None
    """a further method for the texts that are abstained on"""
    menu: bool = False
    """whether to list which risks can be promised"""
    false_alarm: float = 0.01
    """the share of texts in scope that may be called out of scope"""
    seed: int = 0

    def __post_init__(self) -> None:
        targets = [name for name in _TARGETS if getattr(self, name) is not None]
        for name in (*targets, "false_alarm", "confidence"):
            if name != "threshold":
                check_share(name, getattr(self, name))
        if self.calibrator is not None:
            check_calibrator(self.calibrator)
        if self.per_class and self.target_risk is None:
            raise ConfigurationError("per_class=True is about a target risk; give one, as in target_risk=0.05.")
        thresholds = [name for name in targets if name != "target_recall"]
        if len(thresholds) > 1:
            given = " and ".join(thresholds)
            raise ConfigurationError(f"{given} were given together; there is one threshold, so choose one of them.")

    def wanted(self, said: type[Predictions], classes: tuple[str, ...]) -> tuple[Wanted, ...]:
        """What shall be promised: first about the answers, which may be nothing, then about the texts."""
        score = self.score or (said.ranked_by[0] if self.threshold is None else CONFIDENCE)
        check_choice("score", score, said.ranked_by)
        names = classes if self.per_class else None
        wanted = [Wanted(score=score, confidence=self.confidence, classes=names, seed=self.seed)]
        for name, kind in said.promises.items():
            if (target := getattr(self, name)) is not None:
                about = replace(wanted[0], kind=kind, target=1.0 - target if name in _SHARES_RIGHT else target)
                if kind == "recall":
                    wanted.append(replace(about, score=SHARE_FOUND))
                else:
                    wanted[0] = about
        return tuple(wanted)


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
        return tokenize(tokenizer, [PROBE, (PROBE, PROBE)], None).fingerprint
