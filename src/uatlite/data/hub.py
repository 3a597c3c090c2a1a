"""Rows from the Hugging Face hub, with `datasets`. The only importer of that package."""

from collections.abc import Iterator, Sequence
from typing import Any

from uatlite.data.reading import Row
from uatlite.data.schema import Hub
from uatlite.errors import DataError, MissingDependency

NO_GOLD = -1  # what the hub's data sets write where annotators found no majority, or a test label is kept back


def hub_rows(hub: Hub, splits: Sequence[str]) -> Iterator[Row]:
    """The rows of some splits of a hub data set, one after the other, integer classes as their names.

    Rows without a gold label are left out.
    """
    for split in splits:
        data = _load(hub, split)
        names = getattr(data.features.get(hub.layout.label), "names", None)
        for line, values in enumerate(data, start=1):
            label = values.get(hub.layout.label)
            if label == NO_GOLD:
                continue
            if names is not None and label is not None:
                values = values | {hub.layout.label: names[label]}
            yield Row(f"{hub.id}/{split}", line, values)


def _load(hub: Hub, split: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingDependency("datasets", "data") from error
    try:
        return datasets.load_dataset(hub.id, hub.config, split=split, revision=hub.revision)
    except (OSError, ValueError, RuntimeError) as error:  # no network, no such data set or split, a script
        raise DataError(f"{hub.id} ({split}) cannot be read from the hub: {error}") from error
