"""An exported classifier: a directory with an ONNX graph, and ONNX Runtime to compute it. It needs no torch.

model.onnx          the plain pass: logits and representations
tokenizer.json      the tokenizer
uatlite-onnx.json   what the graph is of, and how it differs from the PyTorch model
uatlite.json, uatlite.safetensors, README.md    as in every saved classifier
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite import codec
from uatlite.classifier.runtime import MANIFEST, TokenChoice, TokenRuntime, chosen_tokens
from uatlite.errors import MissingDependency, ModelError, StoreError
from uatlite.model.tokens import FILE, Batch, FastTokenizer, TokenizerSettings
from uatlite.predictive import PassLogits
from uatlite.values import Kind, counted

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from uatlite.methods.method import Method

PLAIN = "model.onnx"
_FORMAT = 3
PADDING = 16
"""Most tokens of padding in a batch: a forward of its own costs about as much as 10 more tokens."""


@dataclass(frozen=True)
class Difference:
    """How an exported graph differs from the PyTorch model on some texts."""

    texts: int
    largest: float
    """of the differences of logits"""
    mean: float
    changed: float
    """the share of texts whose label is another"""

    def describe(self) -> str:
        """The difference in one sentence."""
        return (
            f"On {counted(self.texts, 'text')} logits differ from PyTorch's by {self.mean:.2g} on average and "
            f"{self.largest:.2g} at most; {self.changed:.2%} of the labels are others."
        )


@dataclass(frozen=True)
class Manifest:
    """What the graph of a directory is of."""

    architecture: str
    classes: tuple[str, ...]
    """none for multiple choice"""
    kind: Kind
    """what the model says about a text"""
    positions: int | None
    tokenizer: TokenizerSettings
    precision: str
    """fp32 or int8"""
    source: str
    """the hash of the checkpoint"""
    difference: Difference | None = None


def stored(manifest: Manifest) -> dict[str, Any]:
    """A manifest as plain JSON values."""
    return {"format": _FORMAT, **codec.dump(manifest)}


def read_manifest(name: str | Path) -> Manifest:
    """What the graph in a directory is of."""
    directory = Path(name).expanduser()
    try:
        values = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        if (written := values.pop("format")) != _FORMAT:
            raise ModelError(
                f"{directory}/{MANIFEST} has the format {written}, this version of uatlite reads {_FORMAT}; "
                "export again."
            )
        return codec.load(Manifest, values, advice="export again.")
    except (StoreError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{directory}/{MANIFEST} is broken ({error!r}); export again.") from error


def load_exported(name: str | Path, method: Method | str | None = None) -> OnnxRuntime:
    """The exported classifier in a directory; `method` is the one that was saved with it."""
    directory, manifest = Path(name).expanduser(), read_manifest(name)
    if not (directory / PLAIN).is_file():
        raise ModelError(f"{directory} holds no {PLAIN}; copy the whole directory, or export again.")
    return OnnxRuntime(directory, manifest, FastTokenizer(directory, manifest.tokenizer), method)


def available_threads() -> int:
    """The threads to compute with: OMP_NUM_THREADS, which PyTorch follows too, or the cores that this process has."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else len(os.sched_getaffinity(0))


_OPENING = threading.Lock()
"""Threads that need the same session at first wait for one of them to open it."""


@dataclass(eq=False)
class OnnxRuntime(TokenRuntime):
    """An exported classifier, ready to run."""

    usage = "These are ONNX graphs; pip install 'uatlite[onnx]' runs them without PyTorch."

    directory: Path
    manifest: Manifest
    tokenizer: FastTokenizer
    method: Method | str | None = None
    _threads: int = field(default_factory=available_threads)
    _sessions: dict[int, InferenceSession] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return self.manifest.architecture

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.manifest.classes

    @property
    def kind(self) -> Kind:
        return self.manifest.kind

    @property
    def positions(self) -> int | None:
        return self.manifest.positions

    @property
    def batching(self) -> dict[str, int]:
        """Activations of int8 are quantised by the largest of a forward: with other texts in it, a text would have many
        answers, so each text runs alone."""
        return {"most_texts": 1} if self.manifest.precision == "int8" else {"most_padding": PADDING}

    @property
    def workers(self) -> int:
        return self._threads

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the graph and of what says how to feed and to read it."""
        content = stored(self.manifest)
        del content["difference"], content["source"]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
        with (self.directory / PLAIN).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        try:
            from threadpoolctl import threadpool_limits
        except ModuleNotFoundError as error:
            raise MissingDependency("threadpoolctl", "onnx") from error
        before, self._threads = self._threads, 1
        self._sessions.clear()
        try:
            # After a product numpy's other threads spin for some 50 ms, which takes a whole core from the texts.
            with threadpool_limits(1, user_api="blas"):
                yield
        finally:
            self._threads = before

    def run(self, method: Method, batches: Sequence[Batch], tokens: TokenChoice | None = None) -> Iterator[PassLogits]:
        if self.manifest.precision == "int8" and min(len(batches), self._threads) > 1:
            with ThreadPoolExecutor(self._threads) as pool:
                yield from pool.map(lambda batch: self._passes(method, batch, tokens, threads=1), batches)
        else:
            for batch in batches:
                yield self._passes(method, batch, tokens, self._threads)

    def _passes(self, method: Method, batch: Batch, tokens: TokenChoice | None, threads: int) -> PassLogits:
        """The method's passes over one batch, of which the plain one is computed and the others are read off it."""
        arrays = {"attention_mask": np.ones_like(batch.arrays["input_ids"]), **batch.arrays}
        session = self._session(threads)
        results = session.run(None, {entry.name: arrays[entry.name] for entry in session.get_inputs()})
        logits, read = (values.astype(np.float64) for values in results)
        plain = PassLogits(logits[None], representations=read)
        if tokens is None:
            return replace(plain, given_variance=self._read(method, plain).given_variance)
        chosen = chosen_tokens(plain.logits[0], tokens, batch.rows)
        variance = self._read(method, plain.take(chosen)).given_variance
        if variance is None:
            return plain
        of_tokens = np.full((*chosen.shape, *variance.shape[1:]), np.nan)
        of_tokens[chosen] = variance
        return replace(plain, given_variance=of_tokens)

    def _read(self, method: Method, plain: PassLogits) -> PassLogits:
        """What the method says about rows whose plain pass is given."""
        said = method.read_from(plain)
        if said is None:
            raise ModelError(
                f"{self.directory} holds one plain pass, for the methods base and distilled once it is calibrated; "
                f"{method.name} needs others. Run it with the PyTorch checkpoint."
            )
        return said

    def save(self, directory: Path) -> None:
        text = json.dumps(stored(self.manifest), indent=2, ensure_ascii=False)
        (directory / MANIFEST).write_text(text + "\n", encoding="utf-8")
        for name in (PLAIN, FILE):
            if (self.directory / name).resolve() != (directory / name).resolve():
                shutil.copyfile(self.directory / name, directory / name)

    def _session(self, threads: int) -> InferenceSession:
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise MissingDependency("onnxruntime", "onnx") from error
        with _OPENING:
            if threads not in self._sessions:
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = threads
                options.inter_op_num_threads = 1
                # Idle threads that spin take the cores from everything else in the process.
                options.add_session_config_entry("session.intra_op.allow_spinning", "0")
                self._sessions[threads] = onnxruntime.InferenceSession(
                    self.directory / PLAIN, options, providers=["CPUExecutionProvider"]
                )
            return self._sessions[threads]
