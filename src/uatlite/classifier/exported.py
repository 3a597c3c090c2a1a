"""An exported classifier: a directory with ONNX graphs, and ONNX Runtime to compute it. It needs no torch.

model.onnx          the plain pass: logits and representations
passes.onnx         the stochastic passes of one method, where they were exported
tokenizer.json      the tokenizer
uatlite-onnx.json   what the graphs are of, and how they differ from the PyTorch model
uatlite.json, uatlite.safetensors, README.md    as in every saved classifier
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.run import gather
from uatlite.classifier.runtime import Outputs
from uatlite.errors import MissingDependency, ModelError
from uatlite.model.tokenizer import FILE, FastTokenizer, TokenizerSettings
from uatlite.model.tokens import Batch
from uatlite.passes.graph import GraphMasks, PassesGraph, alone, run_passes
from uatlite.values import Integers

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from uatlite.methods.method import Method

MANIFEST = "uatlite-onnx.json"
PLAIN = "model.onnx"
PASSES = "passes.onnx"
FORMAT = 1
PADDING = 16
"""Most tokens of padding in a batch: a forward of its own costs about as much as 10 more tokens."""
PROCESSOR = Path("/proc/cpuinfo")
INTEGER_PRODUCTS = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
"""Flags of processors with fast and safe products of int8 numbers: VNNI and AMX of x86, dot products of ARM."""


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
            f"On {self.texts:,} texts logits differ from PyTorch's by {self.mean:.2g} on average and "
            f"{self.largest:.2g} at most; {self.changed:.2%} of the labels are others."
        )


@dataclass(frozen=True)
class Manifest:
    """What the graphs of a directory are of."""

    architecture: str
    classes: tuple[str, ...]
    """none for multiple choice"""
    chooses: bool
    positions: int | None
    tokenizer: TokenizerSettings
    precision: str
    """fp32 or int8"""
    source: str
    """the hash of the checkpoint"""
    difference: Difference | None = None
    passes: PassesGraph | None = None
    """of the stochastic passes, where they were exported"""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        own = {"format": FORMAT, **asdict(self), "tokenizer": self.tokenizer.to_dict()}
        del own["passes"]
        return own if self.passes is None else {**own, "passes": self.passes.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Manifest:
        """The manifest that `to_dict` described."""
        own = {name: value for name, value in values.items() if name != "format"}
        difference = own["difference"]
        own["difference"] = None if difference is None else Difference(**difference)
        own["tokenizer"] = TokenizerSettings.from_dict(own["tokenizer"])
        own["passes"] = PassesGraph.from_dict(own["passes"]) if "passes" in own else None
        return cls(**{**own, "classes": tuple(own["classes"])})


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write what `load_exported` reads."""
    text = json.dumps(manifest.to_dict(), indent=2, ensure_ascii=False)
    (directory / MANIFEST).write_text(text + "\n", encoding="utf-8")


def is_exported(name: str | Path) -> bool:
    """Whether a name is the directory of an exported classifier."""
    return (Path(name).expanduser() / MANIFEST).is_file()


def load_exported(name: str | Path, method: Method | str | None = None) -> OnnxRuntime:
    """The exported classifier in a directory; `method` is the one that was saved with it."""
    directory = Path(name).expanduser()
    try:
        values = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ModelError(
                f"{directory}/{MANIFEST} has the format {values['format']}, this version of uatlite reads {FORMAT}; "
                "export again."
            )
        manifest = Manifest.from_dict(values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{directory}/{MANIFEST} is broken ({error!r}); export again.") from error
    for graph in (PLAIN,) if manifest.passes is None else (PLAIN, PASSES):
        if not (directory / graph).is_file():
            raise ModelError(f"{directory} holds no {graph}; copy the whole directory, or export again.")
    if manifest.precision == "int8":
        _warn_of_slow_int8()
    return OnnxRuntime(directory, manifest, FastTokenizer(directory, manifest.tokenizer), method)


def available_threads() -> int:
    """The threads to compute with: OMP_NUM_THREADS, which PyTorch follows too, or the cores that this process has."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else len(os.sched_getaffinity(0))


_OPENING = threading.Lock()
"""Threads that need the same session at first wait for one of them to open it."""


@dataclass(eq=False)
class OnnxRuntime:
    """An exported classifier, ready to run."""

    directory: Path
    manifest: Manifest
    tokenizer: FastTokenizer
    method: Method | str | None = None
    _threads: int = field(default_factory=available_threads)
    _sessions: dict[tuple[str, int], InferenceSession] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return self.manifest.architecture

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.manifest.classes

    @property
    def chooses(self) -> bool:
        return self.manifest.chooses

    @property
    def positions(self) -> int | None:
        return self.manifest.positions

    @property
    def padding(self) -> int:
        return PADDING

    @property
    def workers(self) -> int:
        return self._threads

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the graphs and of what says how to feed and to read them."""
        own = self.manifest.to_dict()
        del own["difference"], own["source"]
        digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode())
        for path in self._files():
            if path.suffix == ".onnx":
                with path.open("rb") as stream:
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

    def run(self, method: Method, batch: Batch) -> Outputs:
        arrays = {"attention_mask": np.ones_like(batch.arrays["input_ids"]), **batch.arrays}
        if self.manifest.precision != "int8":
            return self._outputs(method, arrays, self._threads)
        # Activations are quantised by the largest of a forward: with other texts in it, a text would have many answers.
        texts = [Batch((row,), text) for row, text in enumerate(alone(arrays))]
        if len(texts) == 1 or self._threads == 1:
            return gather([self._outputs(method, text.arrays, self._threads) for text in texts], texts)
        with ThreadPoolExecutor(self._threads) as pool:
            return gather(list(pool.map(lambda text: self._outputs(method, text.arrays, 1), texts)), texts)

    def _outputs(self, method: Method, arrays: Mapping[str, Integers], threads: int) -> Outputs:
        """What the method says about texts that share their forwards."""
        if method.sampled is not None and self._masks is not None:
            logits, read = run_passes(self._masks, partial(self._run, PASSES, threads), arrays, method.sampled)
            return Outputs(logits, representations=read)
        logits, read = (values.astype(np.float64) for values in self._run(PLAIN, threads, arrays))
        said = method.read_from(Outputs(logits[None], representations=read))
        if isinstance(said, Outputs):
            return said
        kept = "" if self.manifest.passes is None else f" and the passes of {self.manifest.passes.config.to_json()}"
        raise ModelError(
            f"{self.directory} holds one plain pass{kept}, for the methods base and distilled once it is calibrated; "
            f"{method.name} needs others. Run it with the PyTorch checkpoint, or export that with its --passes."
        )

    @cached_property
    def _masks(self) -> GraphMasks | None:
        return None if self.manifest.passes is None else GraphMasks(self.manifest.passes)

    def save(self, directory: Path) -> None:
        for path in self._files():
            if path.resolve() != (directory / path.name).resolve():
                shutil.copyfile(path, directory / path.name)

    def _files(self) -> list[Path]:
        return [*sorted(self.directory.glob("*.onnx")), self.directory / FILE, self.directory / MANIFEST]

    def _run(self, graph: str, threads: int, arrays: Mapping[str, NDArray[Any]]) -> list[Any]:
        session = self._session(graph, threads)
        return list(session.run(None, {one.name: arrays[one.name] for one in session.get_inputs()}))

    def _session(self, graph: str, threads: int) -> InferenceSession:
        with _OPENING:
            if (graph, threads) not in self._sessions:
                self._sessions[graph, threads] = _session_of(self.directory / graph, threads)
            return self._sessions[graph, threads]


def _session_of(path: Path, threads: int) -> InferenceSession:
    try:
        from onnxruntime import InferenceSession, SessionOptions
    except ModuleNotFoundError as error:
        raise MissingDependency("onnxruntime", "onnx") from error
    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Idle threads that spin take the cores from everything else in the process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return InferenceSession(path, options, providers=["CPUExecutionProvider"])


def multiplies_int8(processor: Path = PROCESSOR) -> bool | None:
    """Whether the processor has instructions for products of int8 numbers; None where that is not known."""
    try:
        text = processor.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    flags = next((line for line in text.splitlines() if line.lower().startswith(("flags", "features"))), "")
    return bool(set(flags.split()) & set(INTEGER_PRODUCTS)) if flags else None


_WARNED: set[str] = set()


def _warn_of_slow_int8() -> None:
    if multiplies_int8() is False and "int8" not in _WARNED:
        _WARNED.add("int8")
        warnings.warn(
            "this processor has no instructions for int8 products (VNNI): int8 may be no faster than fp32, and sums "
            "may saturate. Calibrate on this machine, or export without --int8.",
            stacklevel=4,
        )
