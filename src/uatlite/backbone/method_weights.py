"""The weights that a method was trained to have beside the model's own, and the file that holds them.

DIR/model.safetensors, config.json …    the model as transformers saves and loads it: the mean, or the first member
    uatlite-method.safetensors          tensors of the method, and in the file's header whose they are

They are attached to the model as buffers that its state does not list. So they move with the model and `model_hash`
covers them, and what transformers saves is the plain model.
"""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import cached_file

from uatlite.backbone.checks import unwrap
from uatlite.errors import ModelError

FILE = "uatlite-method.safetensors"
FORMAT = "1"
ATTRIBUTE = "method_weights"

Made = TypeVar("Made")


class MethodWeights(nn.Module):
    """Tensors by name, and the method that they belong to.

    A model that is `headless` has no linear last layer of its own: the method's tensors are its head. While a method
    is trained its tensors are `persistent`: they are in the checkpoints that a run is resumed from.
    """

    def __init__(
        self, method: str, tensors: Mapping[str, Tensor], *, headless: bool = False, persistent: bool = False
    ) -> None:
        super().__init__()
        self.method = method
        self.headless = headless
        self._made: tuple[object, Any] | None = None
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor.detach(), persistent=persistent)

    @property
    def tensors(self) -> dict[str, Tensor]:
        return dict(self.named_buffers())

    def made(self, model: PreTrainedModel, key: object, make: Callable[[], Made]) -> Made:
        """What `make` makes of these weights and the model's, kept until the key or one of them changes.

        Weights that are drawn once for all batches (a sample of a posterior, a copy of the model) are kept here.
        """
        own = (*model.parameters(), *self.buffers())
        state = (key, tuple((tensor.data_ptr(), tensor._version) for tensor in own))
        kept = self._made  # one read: another thread may replace it
        if kept is None or kept[0] != state:
            kept = self._made = (state, make())
        result: Made = kept[1]
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        tensors = {name: copy.deepcopy(tensor, memo) for name, tensor in self.named_buffers()}
        persistent = not self._non_persistent_buffers_set
        return type(self)(self.method, tensors, headless=self.headless, persistent=persistent)


def attach(model: PreTrainedModel, weights: MethodWeights | None) -> None:
    """Make these the method weights of a model, in place of others that it had; None takes them away."""
    model = unwrap(model)
    if weights is not None:
        setattr(model, ATTRIBUTE, weights.to(model.device))
    elif attached(model) is not None:
        delattr(model, ATTRIBUTE)


def attached(model: PreTrainedModel) -> MethodWeights | None:
    """The method weights that a model has, if it has some."""
    found = getattr(unwrap(model), ATTRIBUTE, None)
    return found if isinstance(found, MethodWeights) else None


def weights_for(model: PreTrainedModel, method: str) -> MethodWeights:
    """The weights of this method, or an error that says how to train them."""
    weights = attached(model)
    if weights is None or weights.method != method:
        other = "" if weights is None else f" (it has those of {weights.method})"
        raise ModelError(
            f"{method} needs weights of its own, and this model has none{other}. Train them and name the directory: "
            f"uatlite train --method {method} --task TASK -o DIR."
        )
    return weights


def write(model: PreTrainedModel, directory: Path) -> None:
    """Write the method weights of a model beside it; where it has none, one of an earlier model is removed."""
    weights, path = attached(model), directory / FILE
    path.unlink(missing_ok=True)
    if weights is not None:
        tensors = {name: tensor.cpu().contiguous() for name, tensor in weights.tensors.items()}
        header = {"format": FORMAT, "method": weights.method, "headless": str(weights.headless).lower()}
        save_file(tensors, path, metadata=header)


def read(name: str | Path) -> MethodWeights | None:
    """The method weights beside the model in a directory or on the hub, if there are some."""
    path = file_beside(name, FILE)
    if path is None:
        return None
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise ModelError(
                    f"{name}/{FILE} has the format {header.get('format')!r}, this version of uatlite reads {FORMAT!r}; "
                    "install the version that wrote it, or train again."
                )
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is no dict
            return MethodWeights(header["method"], tensors, headless=header["headless"] == "true")
    except (SafetensorError, KeyError, OSError) as error:
        raise ModelError(f"{name}/{FILE} is broken ({error}); copy it again, or train again.") from error


def file_beside(name: str | Path, file: str) -> Path | None:
    """The path of a file beside a model, downloaded from the hub if need be; None where there is none."""
    local = Path(name).expanduser()
    if local.exists():
        return local / file if (local / file).is_file() else None
    found = cached_file(
        str(name),
        file,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)
