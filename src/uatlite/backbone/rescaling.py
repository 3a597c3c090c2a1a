"""Token embeddings times a factor, while a block runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError


@contextmanager
def rescaled_embeddings(model: PreTrainedModel, factor: float) -> Iterator[None]:
    """Within the block the model's word embeddings are e_j ← c·e_j; positions and segments are as ever.

    The weights are not touched: a hook on the embedding's output multiplies, and is gone afterwards, also after an
    error.
    """
    if not factor > 0:
        raise ConfigurationError(f"factor={factor} is not above 0.")

    def scale(module: nn.Module, args: object, output: Tensor) -> Tensor:
        return output * factor

    hook = model.get_input_embeddings().register_forward_hook(scale)
    try:
        yield
    finally:
        hook.remove()
