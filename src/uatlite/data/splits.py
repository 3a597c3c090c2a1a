"""Splits and samples: which rows belong where, decided by what the rows say.

A row's rank is the SHA-256 of a salt and of its words. So a split does not depend on the order of the file,
on its format, on the platform or on a generator's state, and the hub's copy of a data set is cut as a local
one is. Copies of one text have one rank and stay together, but for a pair that the cut itself falls
between.
"""

import hashlib
from collections.abc import Hashable, Sequence

from uatlite.data.conversion import content_key
from uatlite.errors import ConfigurationError
from uatlite.values import Example

SPLIT_SEED = 0  # never a user's seed: rows that calibrate must not become rows that test when a seed changes


def rank(key: str, salt: str) -> str:
    return hashlib.sha256(f"{salt}\n{key}".encode()).hexdigest()


def take_share(
    examples: Sequence[Example], share: tuple[int, int], groups: Sequence[Hashable] | None = None
) -> list[Example]:
    """The rows of `share` (hundredths, of the seeded order), in the order in which they came.

    Of n rows, (0, 50) are n // 2 and (50, 100) the others. With `groups`, one for each row, whole groups
    are taken, and the sizes come as near to that as the groups allow.
    """
    low, high = (len(examples) * bound // 100 for bound in share)
    if low == 0 and high == len(examples):
        return list(examples)
    salt = f"split:{SPLIT_SEED}"
    if groups is not None:
        early = _group_cut(groups, low or high, salt)
        return [example for example, is_early in zip(examples, early, strict=True) if is_early == (low == 0)]
    order = _ranked(examples, salt)
    chosen = set(order[low:high])
    return [example for position, example in enumerate(examples) if position in chosen]


def sample(examples: Sequence[Example], limit: int | None, seed: int = 0) -> list[Example]:
    """`limit` rows drawn by `seed`, in the order in which they came; all of them when there are no more.

    A larger sample of the same seed contains the smaller one.
    """
    if limit is None or limit >= len(examples):
        return list(examples)
    if limit < 1:
        raise ConfigurationError(f"limit={limit} must be 1 or more; leave it out for all rows.")
    chosen = set(_ranked(examples, f"sample:{seed}")[:limit])
    return [example for position, example in enumerate(examples) if position in chosen]


def _ranked(examples: Sequence[Example], salt: str) -> list[int]:
    """Positions in the seeded order; ids decide between copies of one text."""
    keys = [(rank(content_key(example.text), salt), example.id) for example in examples]
    return sorted(range(len(examples)), key=keys.__getitem__)


def _group_cut(groups: Sequence[Hashable], target: int, salt: str) -> list[bool]:
    """Which rows are before the cut: whole groups, the early ones of the seeded order first."""
    sizes: dict[Hashable, int] = {}
    for group in groups:
        sizes[group] = sizes.get(group, 0) + 1
    order = sorted(sizes, key=lambda group: rank(str(group), salt))
    taken = nearest_subset([sizes[group] for group in order], target)
    early = {group for group, is_taken in zip(order, taken, strict=True) if is_taken}
    return [group in early for group in groups]


def nearest_subset(sizes: Sequence[int], target: int) -> list[bool]:
    """Which of `sizes` to take so that their sum is nearest to `target`; of equal choices, early sizes first.

    Subset sum: bit s of `reach[i]` says that some of sizes[i:] sum to s.
    """
    reach = [1]
    for size in reversed(sizes):
        reach.append(reach[-1] | reach[-1] << size)
    reach.reverse()
    left = next(
        total
        for distance in range(target + sum(sizes) + 1)
        for total in (target - distance, target + distance)
        if total >= 0 and reach[0] >> total & 1
    )
    taken = []
    for size, later in zip(sizes, reach[1:], strict=True):
        take = left >= size and bool(later >> (left - size) & 1)
        taken.append(take)
        left -= size if take else 0
    return taken
