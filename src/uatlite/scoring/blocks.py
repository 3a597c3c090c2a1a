"""A stream of rows in blocks of bounded size: what is in memory at once, and sorted by length inside."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from uatlite.data.reading import Reject
from uatlite.values import Example, strings

BLOCK_ROWS = 512
"""Enough texts that batches of like length waste little padding; what a kill costs at most."""
BLOCK_CHARACTERS = 4_000_000

Item = Example | Reject


@dataclass(frozen=True)
class Block:
    """Consecutive rows of the input, and its place among the blocks."""

    number: int
    first: int
    """how many rows of the input stand before it"""
    items: tuple[Item, ...]

    @property
    def examples(self) -> list[Example]:
        """The rows that can be scored."""
        return [item for item in self.items if isinstance(item, Example)]

    @property
    def rejects(self) -> list[Reject]:
        """The rows that cannot."""
        return [item for item in self.items if isinstance(item, Reject)]

    @property
    def digest(self) -> str:
        """SHA-256 of all that its output depends on: ids, texts, kept columns, rejects."""
        digest = hashlib.sha256()
        for item in self.items:
            whole = [item.id, strings(item.text), dict(item.meta)] if isinstance(item, Example) else item.as_row()
            digest.update(json.dumps(whole, default=str).encode() + b"\n")
        return digest.hexdigest()


def blocks(items: Iterable[Item], rows: int = BLOCK_ROWS, characters: int = BLOCK_CHARACTERS) -> Iterator[Block]:
    """Cut a stream into blocks of at most so many rows, closed early where the texts are long."""
    number = first = length = 0
    held: list[Item] = []
    for item in items:
        held.append(item)
        length += sum(map(len, strings(item.text))) if isinstance(item, Example) else len(item.raw)
        if len(held) == rows or length >= characters:
            yield Block(number, first, tuple(held))
            number, first, length, held = number + 1, first + len(held), 0, []
    if held:
        yield Block(number, first, tuple(held))
