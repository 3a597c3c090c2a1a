"""What the Trainer does to a process, undone: it seeds every generator and sets the log level of transformers."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from transformers.utils import logging


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


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Transformers reports errors only and draws no bars; afterwards it is as talkative as before."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
