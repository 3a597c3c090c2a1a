"""What the Trainer does to a process, undone: it seeds every generator and sets the log level of transformers."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from uatlite.backbone.quiet import quiet_transformers


@contextmanager
def isolated() -> Iterator[None]:
    """Leave the generators of Python, NumPy and torch and transformers' logging as they were, also after an error."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global state is what is kept
    with torch.random.fork_rng(), quiet_transformers():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
