"""Splits and samples: disjoint, whole, of the right size, and the same on every machine and in every order."""

import hashlib
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uatlite.errors import ConfigurationError
from uatlite.text.tasks import nearest_subset, sample, take_share
from uatlite.values import Example


def rows(count):
    return [Example(f"r{i}", f"text number {i}", i % 2) for i in range(count)]


def names(examples):
    return {example.id for example in examples}


def pin(examples):
    return hashlib.sha256("\n".join(sorted(names(examples))).encode()).hexdigest()[:12]


@pytest.mark.parametrize(("count", "halves"), [(9815, (4907, 4908)), (872, (436, 436)), (3, (1, 2)), (1, (0, 1))])
def test_halves_are_disjoint_whole_and_the_larger_one_is_the_test(count, halves):
    examples = rows(count)
    calibration, test = take_share(examples, (0, 50)), take_share(examples, (50, 100))
    assert (len(calibration), len(test)) == halves
    assert names(calibration) | names(test) == names(examples)
    assert not names(calibration) & names(test)


def test_three_shares_cover_everything_once():
    examples = rows(8530)
    parts = [take_share(examples, share) for share in ((0, 70), (70, 85), (85, 100))]
    assert [len(part) for part in parts] == [5971, 1279, 1280]
    assert len(set().union(*map(names, parts))) == 8530


def test_splits_and_samples_are_pinned():
    """These hashes may never change: published numbers hang on them."""
    examples = rows(1000)
    assert pin(take_share(examples, (0, 50))) == "e43c02d52080"
    assert pin(sample(examples, 100)) == "7088bdf137de"
    assert pin(sample(examples, 100, seed=1)) == "b9793670b0f1"


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(60)))
def test_the_order_of_the_file_does_not_matter_and_is_kept(order):
    examples = rows(60)
    shuffled = [examples[i] for i in order]
    for choose in (lambda e: take_share(e, (0, 50)), lambda e: sample(e, 20, seed=3)):
        assert names(choose(shuffled)) == names(choose(examples))
        assert [shuffled.index(example) for example in choose(shuffled)] == sorted(
            shuffled.index(example) for example in choose(shuffled)
        )


def test_ids_and_spacing_do_not_matter_but_words_do():
    examples = rows(200)
    renamed = [Example(f"other {i}", f"  text  number {i}\n", 0) for i in range(200)]
    reworded = [Example(f"r{i}", f"text no. {i}", 0) for i in range(200)]
    positions = [
        [int(example.text.split()[-1]) for example in take_share(rows_, (0, 50))]
        for rows_ in (examples, renamed, reworded)
    ]
    assert positions[0] == positions[1] != positions[2]


def test_copies_of_a_text_stay_together():
    examples = [Example(f"{i}-{copy}", f"text {i}", 0) for i in range(50) for copy in range(2)]
    calibration, test = take_share(examples, (0, 50)), take_share(examples, (50, 100))
    both = {e.text for e in calibration} & {e.text for e in test}
    assert len(both) <= 1  # the one that the cut may fall on


def test_a_larger_sample_contains_the_smaller_one():
    examples = rows(300)
    small, large = sample(examples, 50, seed=5), sample(examples, 120, seed=5)
    assert len(small) == 50
    assert names(small) < names(large)
    assert sample(examples, None) == sample(examples, 1000) == examples
    with pytest.raises(ConfigurationError, match="limit=0 must be 1 or more"):
        sample(examples, 0)


# The sizes of the 35 articles of SQuAD 2.0's dev set: 11,873 questions.
ARTICLES = [
    192, 208, 210, 219, 222, 232, 240, 244, 247, 255, 262, 275, 284, 308, 324, 325, 327, 356,
    357, 362, 364, 373, 377, 384, 402, 415, 418, 421, 424, 444, 445, 458, 486, 498, 515,
]  # fmt: skip


def test_groups_are_never_cut_and_the_halves_are_as_even_as_they_allow():
    groups = [f"article {i}" for i, size in enumerate(ARTICLES) for _ in range(size)]
    examples = rows(len(groups))
    calibration, test = (take_share(examples, share, groups) for share in ((0, 50), (50, 100)))
    assert (len(calibration), len(test)) == (5936, 5937)
    article = dict(zip((example.id for example in examples), groups, strict=True))
    assert not {article[e.id] for e in calibration} & {article[e.id] for e in test}
    assert pin(calibration) == "7ff954e4b429"


@settings(max_examples=80, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8), target=st.integers(0, 130))
def test_nearest_subset_is_as_near_as_any_subset(sizes, target):
    taken = nearest_subset(sizes, target)
    total = sum(size for size, take in zip(sizes, taken, strict=True) if take)
    sums = (sum(s for s, t in zip(sizes, choice, strict=True) if t) for choice in product((0, 1), repeat=len(sizes)))
    assert abs(total - target) == min(abs(other - target) for other in sums)
