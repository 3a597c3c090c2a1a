"""Which rows a cell is about: all of a set, or those that a condition names."""

from collections.abc import Callable

from uatlite.data.buckets import buckets_of
from uatlite.data.splits import sample
from uatlite.errors import ConfigurationError, check_choice
from uatlite.values import Dataset, Example

AND = "&"


def _bucket(example: Example, value: str, labels: tuple[str, ...]) -> bool:
    return value in buckets_of(example.text)


def _label(example: Example, value: str, labels: tuple[str, ...]) -> bool:
    return example.label is not None and labels[example.label] == value


def _heuristic(example: Example, value: str, labels: tuple[str, ...]) -> bool:
    return example.meta.get("heuristic") == value


CONDITIONS: dict[str, Callable[[Example, str, tuple[str, ...]], bool]] = {
    "bucket": _bucket,
    "label": _label,
    "heuristic": _heuristic,
}


def chosen(dataset: Dataset, subset: str | None, rows: int | None) -> frozenset[str]:
    """The ids of the rows that meet every condition of 'label=no&bucket=hedges'; then at most so many of them."""
    examples = list(dataset.examples)
    for condition in (subset or "").split(AND) if subset else ():
        name, equals, value = condition.partition("=")
        if not equals:
            raise ConfigurationError(f"{condition!r} in {subset!r} is no condition; as in 'bucket=negation'.")
        check_choice("condition", name, CONDITIONS)
        examples = [one for one in examples if CONDITIONS[name](one, value, dataset.labels)]
    return frozenset(example.id for example in sample(examples, rows))
