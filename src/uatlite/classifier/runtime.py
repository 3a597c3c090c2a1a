"""What computes a classifier, PyTorch or ONNX Runtime for an exported one, and the settings that decide its logits.

Predicting, calibrating, scoring and serving know only `Runtime`. Nothing here imports torch before a
PyTorch model runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np

from uatlite.codec import Arrays, dump, load
from uatlite.errors import ConfigurationError, ModelError, StoreError
from uatlite.methods.method import Method
from uatlite.methods.registry import METHODS, STORED, method_of_weights, parse_method
from uatlite.methods.sampling import method_of_config
from uatlite.model.architectures import answering, architectures, head_of, longest_input, unwrap
from uatlite.model.tokens import BATCH_PADDING, TOKENIZING, Batch, Tokens, takes, tokenize
from uatlite.model.windows import Windows, windowed
from uatlite.passes.config import UATConfig
from uatlite.predictive import ROW_AXES, PassLogits
from uatlite.values import FP32, Floats, Integers, Kind, Marks, Text

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from uatlite.attribution.first_order import Candidates
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
    precision: str = FP32
    """of the matrix products, one of `uatlite.model.device.DTYPES`"""

    def to_dict(self, arrays: Arrays | None = None) -> dict[str, Any]:
        """Plain JSON values; what the method learned goes into `arrays`."""
        return {**vars(self), "method": dump(self.method, {} if arrays is None else arrays, kind=STORED)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], arrays: Mapping[str, Floats] | None = None) -> Settings:
        """The settings that `to_dict` described; `arrays` has what the method learned, by name among others."""
        try:
            method: Method = load(STORED, values["method"], arrays, advice="calibrate again.")
            return cls(**{**values, "method": method.seeded(int(values["seed"]))})
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


def method_of(config: Config, seed: int | None, declared: Method | str | None, default: str = DEFAULT_METHOD) -> Method:
    """The method that a user named: by a configuration, a spelling such as 'uat:gate=k', or itself.

    Where none is named, it is the model's own, which it was made for, or `default`.
    """
    if config is None:
        config = declared or default
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
    if isinstance(declared, Method) and (declared.name, declared.seed) == (method.name, method.seed):
        method = declared  # with what it learned
    return method if seed is None else method.seeded(seed)


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    """SHA-256 of how the tokenizer splits a text that is meant to tell tokenizers apart."""
    probes = [probe for probe in (PROBE, (PROBE, PROBE)) if takes(tokenizer, probe)]
    with TOKENIZING:
        return tokenize(tokenizer, probes, None).fingerprint


@dataclass(frozen=True, eq=False)
class Outputs(PassLogits):
    """What a method says about some texts, averaged over the windows of a text: a `Reading`, whose rows are texts."""

    cut: Integers | None = None
    """(rows,): tokens that were cut off each row; None where that was not counted"""

    unit: ClassVar[str] = "texts"
    """what the rows of `lesson` are: texts or entities"""

    @property
    def passes(self) -> Integers:
        """(texts,): passes run for each text."""
        return np.full(self.logits.shape[1], len(self.logits))

    @property
    def all_logits(self) -> Floats:
        """(passes, rows, classes): of every text, or of every token."""
        return self.logits

    @property
    def lesson(self) -> PassLogits:
        """What a method's free settings are learned from: texts, or the weakest words of entities."""
        return self

    def taught(self, variance: Floats) -> Self:
        """The same with these variances of the rows of `lesson`."""
        return replace(self, given_variance=variance)

    @property
    def scope_logits(self) -> Floats:
        """(rows, classes): the logits that a scope reads; a single label is one against nothing."""
        logits = self.mean_logits
        return logits if logits.shape[1] > 1 else np.column_stack([logits, np.zeros(len(logits))])


TokenChoice = Callable[[int, Floats], Sequence[int]]
"""From the number of a sequence and the logits of its tokens (tokens, tags) to those whose variance is asked for."""


def chosen_tokens(logits: Floats, tokens: TokenChoice, numbers: Sequence[int]) -> Marks:
    """The chosen tokens of the sequences with these numbers, (rows, tokens): logits (rows, tokens, tags)."""
    mask = np.zeros(logits.shape[:2], dtype=np.bool_)
    for row, number in enumerate(numbers):
        mask[row, list(tokens(number, logits[row]))] = True
    return mask


MANIFEST, SCORES_MANIFEST = "uatlite-onnx.json", "uatlite-scores.json"
"""The files by which the directory of an exported classifier, and of one by scores, is known."""


def is_exported(name: str | Path, manifest: str = MANIFEST) -> bool:
    """Whether a name is the directory of an exported classifier, or of one with another manifest."""
    return (Path(name).expanduser() / manifest).is_file()


class Runtime(ABC):
    """A classifier, ready to run. It says what it knows of texts: logits, and representations and variances if it does.

    What a derived class does not say itself is that of a classifier that reads no tokens.
    """

    tokenizer: Any = None
    """how texts become tokens; None where it reads none"""
    frozen: bool = False
    """whether its representations were made for no classes of its own, as those of a sentence encoder"""
    example: str = '"a text"'
    """a text as it takes it, for the model card"""
    usage: str
    """how a directory that it was saved in is loaded, a sentence of the model card"""
    columns_read: Mapping[str, Any] = MappingProxyType({})
    """the columns that its own files must have, as `Layout.columns`, beside those of the calibration rows"""

    @property
    @abstractmethod
    def architecture(self) -> str:
        """What computes the logits: the name of the model's class in transformers, or of another library."""

    @property
    @abstractmethod
    def hash(self) -> str:
        """SHA-256 of everything that decides the logits and the meaning of their columns."""

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called, by column; none for multiple choice."""

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """What it says about a text, a key of `KINDS`."""

    @property
    def positions(self) -> int | None:
        """The most tokens that the model takes; None if it has no limit."""
        return None

    @property
    def method(self) -> Method | str | None:
        """The method that the model was made for; None if it was made for no special one."""
        return None

    @property
    def dropless(self) -> bool:
        """Whether it is known that the model has no dropout of its own, as one that was trained without."""
        return False

    @property
    def workers(self) -> int:
        """How many threads may run batches at the same time, each with `one_thread`."""
        return 1

    def one_thread(self) -> AbstractContextManager[None]:
        """Inside the block every batch is computed by the thread that runs it."""
        return nullcontext()

    def taken(self, given: Iterable[Any], *, learn: bool = False) -> Iterable[Any]:
        """What a user gives as texts, as texts; `learn` from those that calibrate."""
        return given

    @abstractmethod
    def outputs(self, texts: Sequence[Text], settings: Settings) -> Outputs:
        """What the method of the settings says about texts, one or more."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write what it runs into a directory that exists."""


class TokenRuntime(Runtime):
    """A transformer with its tokenizer."""

    @property
    @abstractmethod
    def batching(self) -> dict[str, int]:
        """The bounds of a batch, as `Tokens.batches` takes them."""

    @abstractmethod
    def run(self, method: Method, batches: Sequence[Batch], tokens: TokenChoice | None = None) -> Iterator[PassLogits]:
        """The method's passes over each batch.

        Of a token classifier rows are (batch, tokens) in every shape, and a method that knows variances without
        sampling gives those of the chosen tokens, NaN elsewhere.
        """

    def outputs(self, texts: Sequence[Text], settings: Settings) -> Outputs:
        windows = tokenized(self.tokenizer, texts, settings)
        batches = list(windows.tokens.batches(None, **self.batching))
        return over_windows(gather(list(self.run(settings.method, batches)), batches), windows)


_HASHES: WeakKeyDictionary[Any, tuple[str, str]] = WeakKeyDictionary()
"""Model -> what its hash was computed from, in short, and the hash: weights take a second to read."""


@dataclass(frozen=True, eq=False)
class TorchRuntime(TokenRuntime):
    """A PyTorch model, as transformers loads it."""

    usage = "transformers alone loads it too, as the plain model without what was calibrated."

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    precision: str = FP32

    @property
    def architecture(self) -> str:
        return type(unwrap(self.model)).__name__

    @property
    def hash(self) -> str:
        """Computed again where a tensor was written to since, or the configuration changed."""
        from uatlite.model.load import model_hash
        from uatlite.model.weights import attached

        model = unwrap(self.model)
        tensors = [*model.parameters(), *model.buffers()]
        if any(tensor.is_inference() for tensor in tensors):  # these do not say when they were written to
            return model_hash(model)
        written = [(tensor.data_ptr(), tensor._version) for tensor in tensors]
        state = repr((written, model.config.to_dict(), id(attached(model))))
        if _HASHES.get(model, ("", ""))[0] != state:
            _HASHES[model] = state, model_hash(model)
        return _HASHES[model][1]

    @property
    def class_names(self) -> tuple[str, ...]:
        if not head_of(self.model).named:
            return ()
        names = {int(column): str(name) for column, name in self.model.config.id2label.items()}
        return tuple(names[column] for column in range(len(names)))

    @property
    def kind(self) -> Kind:
        return answering(self.model)

    @property
    def positions(self) -> int | None:
        return longest_input(self.model)

    @property
    def method(self) -> str | None:
        """The spelling of the method that the model has the weights of, if it has some."""
        from uatlite.model.weights import attached

        if (weights := attached(self.model)) is None:
            return None
        if (method := method_of_weights(weights)) is None:
            raise ModelError(
                f"the model was trained for {weights.method!r}, which this version of uatlite does not have; install "
                "the version that trained it."
            )
        return method.name

    @property
    def batching(self) -> dict[str, int]:
        return {"most_padding": BATCH_PADDING}

    @property
    def dropless(self) -> bool:
        from uatlite.model.view import dropout_sites

        if self.model.config.model_type not in architectures():
            return False
        return not any(site.own_rate for site in dropout_sites(self.model))

    @property
    def workers(self) -> int:
        import torch

        on_cpu = next(self.model.parameters()).device.type == "cpu"
        return torch.get_num_threads() if on_cpu else 1

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def run(self, method: Method, batches: Sequence[Batch], tokens: TokenChoice | None = None) -> Iterator[PassLogits]:
        from uatlite.model.device import computing_in

        for batch in batches:
            candidates = None if tokens is None else _candidates(tokens, batch)
            with computing_in(self.precision):
                passes = method.run(self.model, batch.inputs, candidates)
            yield passes.arrays()

    def save(self, directory: Path) -> None:
        from uatlite.model import weights

        model = unwrap(self.model)
        model.save_pretrained(directory)
        weights.write(model, directory)
        self.tokenizer.save_pretrained(directory)


def _candidates(tokens: TokenChoice, batch: Batch) -> Candidates:
    """The same choice on tensors, by the row of a batch."""
    import torch

    def find(rows: Tensor, logits: Tensor) -> Tensor:
        numbers = [batch.rows[row] for row in rows.tolist()]
        return torch.from_numpy(chosen_tokens(logits.cpu().double().numpy(), tokens, numbers))

    return find


def run(model: Runtime, texts: Sequence[Text], settings: Settings, like: Outputs | None = None) -> Outputs:
    """The method's passes over texts, long ones cut or in windows as the settings say; all answers of a text are there,
    so `like` asks for nothing else."""
    if not texts:
        return Outputs(np.zeros((1, 0, len(model.class_names) or 2)), cut=np.zeros(0, dtype=np.int64))
    return model.outputs(texts, settings)


def run_tokens(model: PreTrainedModel, method: Method, tokens: Tokens, rows: Sequence[int] | None = None) -> Outputs:
    """The method's passes of a PyTorch model over tokenized texts, or over those at `rows`, in their order."""
    batches = list(tokens.batches(rows))
    return gather([method.run(model, batch.inputs).arrays() for batch in batches], batches, rows)


def tokenized(tokenizer: Tokenizer, texts: Sequence[Text], settings: Settings) -> Windows:
    """Tokens of each text: of windows of the settings' length, or of one that is cut to it."""
    if settings.windows:
        return windowed(tokenizer, texts, settings.max_length)
    with TOKENIZING:
        tokens = tokenize(tokenizer, list(texts), settings.max_length)
    return Windows(tokens, np.ones(len(texts), dtype=np.int64))


def gather(parts: Sequence[PassLogits], batches: Sequence[Batch], rows: Sequence[int] | None = None) -> Outputs:
    """The outputs of all sequences from those of each batch, in the order of `rows`; by default by their place."""
    position = {row: i for i, row in enumerate(row for batch in batches for row in batch.rows)}
    order = np.array([position[row] for row in (sorted(position) if rows is None else rows)])
    joined = {}
    for name, axis in ROW_AXES.items():
        values = [getattr(outputs, name) for outputs in parts]
        if values[0] is not None:
            joined[name] = np.concatenate(values, axis=axis).take(order, axis=axis)
    return Outputs(**joined)


def over_windows(said: PassLogits, windows: Windows) -> Outputs:
    """The outputs of texts from those of their windows: means."""
    every = {name: value for name in ROW_AXES if (value := getattr(said, name)) is not None}
    if len(windows.counts) < len(windows.tokens):
        every = {name: windows.mean(value, axis=ROW_AXES[name]) for name, value in every.items()}
    return Outputs(**every, cut=np.array(windows.tokens.cut, dtype=np.int64))
