"""Rows of data sets on the Hugging Face hub.

Whether the hub answers is asked once. If it does not, only the local cache of the hub is read: the hub's libraries
would try every file again for half a minute.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from ssl import SSLError
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from uatlite.errors import DataError, MissingDependency
from uatlite.text.rows import Row
from uatlite.text.schema import Hub

NO_GOLD = -1  # the label on the hub if annotators found no majority, or if test labels are not published
TIMEOUT = 5.0
UNREACHED = (
    "The Hugging Face hub cannot be reached. It was asked once; from here on only local files and its cache are read."
)
_SWITCHES = (("huggingface_hub.constants", "HF_HUB_OFFLINE"), ("datasets.config", "HF_HUB_OFFLINE"))
"""module, name: what these libraries look at before they use the network"""


@cache
def hub_answers() -> bool:
    """Whether the hub can be reached. Only the first call asks; offline mode is a no."""
    constants = import_module("huggingface_hub.constants")
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        with urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=TIMEOUT):
            return True
    except HTTPError:
        return True
    except URLError as error:  # certificates are the libraries' own affair
        return isinstance(error.reason, SSLError)
    except OSError:
        return False


def hub_was_missed() -> bool:
    """Whether the hub was needed in this process and did not answer."""
    return hub_answers.cache_info().currsize > 0 and not hub_answers()


@contextmanager
def hub_access(name: str) -> Iterator[None]:
    """Within the block, what loads `name` uses the network only if the hub answers; a local directory needs neither."""
    if os.path.isdir(name) or hub_answers():
        yield
        return
    modules = [(sys.modules[module], switch) for module, switch in _SWITCHES if module in sys.modules]
    before = [getattr(module, switch) for module, switch in modules]
    try:
        for module, switch in modules:
            setattr(module, switch, True)
        yield
    finally:
        for (module, switch), value in zip(modules, before, strict=True):
            setattr(module, switch, value)


def hub_rows(hub: Hub, splits: Sequence[str]) -> Iterator[Row]:
    """The rows of some splits of a hub data set, one split after the other, with class names for integer classes.

    Rows without a gold label are left out.
    """
    for split in splits:
        data = _load(hub, split)
        column = data.features.get(hub.layout.label)
        names = getattr(getattr(column, "feature", column), "names", None)  # of a list, the names of what is in it
        for line, values in enumerate(data, start=1):
            label = values.get(hub.layout.label)
            if label == NO_GOLD:
                continue
            if names is not None and label is not None:
                named = [names[one] for one in label] if isinstance(label, list) else names[label]
                values = values | {hub.layout.label: named}
            yield Row(f"{hub.id}/{split}", line, values)


def _load(hub: Hub, split: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingDependency("datasets", "data") from error
    try:
        with hub_access(hub.id):
            return datasets.load_dataset(hub.id, hub.config, split=split, revision=hub.revision)
    except (OSError, ValueError, RuntimeError) as error:  # no network, an unknown data set or split, a loading script
        missed = not os.path.isdir(hub.id) and not hub_answers()
        why = "it cannot be reached, and its cache has no copy" if missed else error
        raise DataError(f"{hub.id} ({split}) cannot be read from the hub: {why}") from error
