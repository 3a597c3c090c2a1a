"""The queue alone: order, batches, bounds, failures, what is withdrawn, and a stop that finishes its work."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from uatlite.serve.batching import Batcher

pytestmark = pytest.mark.anyio


class Squares:
    """Answers with squares, remembers its batches, fails on 13, and can be held back."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, numbers: list[int]) -> list[int]:
        self.batches.append(numbers)
        assert self.go.wait(20)
        if 13 in numbers:
            raise ZeroDivisionError("13")
        return [number * number for number in numbers]


@asynccontextmanager
async def started(*, held: bool = False, **options: Any):
    squares, settings = Squares(), {"most": 4, "waiting": 8, "gather": 0.01} | options
    if held:
        squares.go.clear()
    with ThreadPoolExecutor(settings.get("workers", 1)) as executor:
        batcher = Batcher(squares, executor, **settings)
        loop = asyncio.create_task(batcher.run())
        yield squares, batcher
        batcher.close()
        await loop


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


async def test_workers_share_what_waits_and_run_side_by_side() -> None:
    async with started(held=True, workers=2, waiting=20, gather=0.05) as (squares, batcher):
        asked = [asyncio.create_task(batcher.submit([n], 10)) for n in range(6)]
        await until(lambda: len(squares.batches) == 2)  # the first has not been answered
        assert sorted(map(len, squares.batches)) == [3, 3]
        squares.go.set()
        assert await asyncio.gather(*asked) == [[n * n] for n in range(6)]
        assert await batcher.submit([7], 10) == [49]
    assert sorted(number for batch in squares.batches for number in batch) == [*range(6), 7]


async def test_questions_of_many_callers_share_batches_and_each_gets_its_own_answer() -> None:
    async with started(gather=0.1, waiting=20) as (squares, batcher):
        answers = await asyncio.gather(*(batcher.submit([n, n + 100], 10) for n in range(5)))
    assert answers == [[n * n, (n + 100) ** 2] for n in range(5)]
    assert [len(batch) for batch in squares.batches] == [4, 4, 2]


async def test_a_full_queue_refuses_at_once_and_takes_again_when_it_has_emptied() -> None:
    async with started(held=True, most=1, gather=0.0, waiting=3) as (squares, batcher):
        first = asyncio.create_task(batcher.submit([1], 10))
        await until(lambda: squares.batches)  # it is with the worker now, and no longer in the queue
        others = asyncio.create_task(batcher.submit([2, 3, 4], 10))
        await until(lambda: len(batcher) == 3)
        with pytest.raises(asyncio.QueueFull):
            await batcher.submit([5], 10)
        squares.go.set()
        assert [await first, await others, await batcher.submit([5], 10)] == [[1], [4, 9, 16], [25]]


@pytest.mark.parametrize("leave", ["timeout", "cancel"])
async def test_who_stops_waiting_takes_its_questions_out(leave: str) -> None:
    async with started(held=True, most=1, gather=0.0) as (squares, batcher):
        first = asyncio.create_task(batcher.submit([1], 10))
        await until(lambda: squares.batches)
        left = asyncio.create_task(batcher.submit([2, 3], 0.05 if leave == "timeout" else 10))
        await until(lambda: len(batcher) == 2)
        if leave == "cancel":
            left.cancel()
        await asyncio.wait([left])
        assert isinstance(left.exception(), TimeoutError) if leave == "timeout" else left.cancelled()
        assert len(batcher) == 0
        squares.go.set()
        assert await first == [1]
    assert squares.batches == [[1]]


async def test_a_question_that_fails_does_not_spoil_the_others() -> None:
    async with started(gather=0.05) as (_, batcher):
        asked: list[Awaitable[list[int]]] = [batcher.submit([n], 10) for n in (2, 13, 3)]
        good, bad, also_good = await asyncio.gather(*asked, return_exceptions=True)
    assert (good, also_good) == ([4], [9])
    assert isinstance(bad, ZeroDivisionError)


async def test_a_stop_answers_what_was_accepted_and_takes_no_more() -> None:
    async with started(held=True, most=1, gather=0.0) as (squares, batcher):
        asked = asyncio.create_task(batcher.submit([1, 2, 3], 10))
        await until(lambda: squares.batches)
        batcher.close()
        with pytest.raises(asyncio.QueueFull):
            await batcher.submit([4], 10)
        squares.go.set()
    assert await asked == [1, 4, 9]


async def test_a_question_alone_does_not_wait_for_others() -> None:
    async with started(gather=1000.0) as (squares, batcher):
        assert [await batcher.submit([n], 10) for n in (2, 3)] == [[4], [9]]
    assert squares.batches == [[2], [3]]


async def test_a_worker_waits_for_as_many_as_came_last_time_and_no_more() -> None:
    async with started(held=True, gather=1000.0) as (squares, batcher):
        first = asyncio.create_task(batcher.submit([1], 10))
        await until(lambda: squares.batches)
        together = asyncio.create_task(batcher.submit([2, 3, 4], 10))  # they wait for the worker
        await until(lambda: len(batcher) == 3)
        squares.go.set()
        assert [await first, await together] == [[1], [4, 9, 16]]
        again = [asyncio.create_task(batcher.submit([n], 10)) for n in (5, 6)]
        await until(lambda: len(batcher) == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(batcher) == 2  # of three that are to be expected
        again.append(asyncio.create_task(batcher.submit([7], 10)))
        assert await asyncio.gather(*again) == [[25], [36], [49]]
    assert squares.batches == [[1], [2, 3, 4], [5, 6, 7]]


async def test_fewer_than_last_time_are_answered_after_a_while() -> None:
    async with started(gather=0.01) as (squares, batcher):
        assert await batcher.submit([2, 3, 4], 10) == [4, 9, 16]
        assert await batcher.submit([5], 10) == [25]
    assert squares.batches == [[2, 3, 4], [5]]


async def test_a_batch_has_the_longest_waiting_question_and_those_of_similar_length() -> None:
    async with started(held=True, most=32, waiting=50, length=lambda number: number) as (squares, batcher):
        asked = [asyncio.create_task(batcher.submit([100], 10))]
        await until(lambda: squares.batches)
        numbers = [120, *range(100, 120), *range(121, 140)]
        asked += [asyncio.create_task(batcher.submit([number], 10)) for number in numbers]
        await until(lambda: len(batcher) == len(numbers))
        squares.go.set()
        assert await asyncio.gather(*asked) == [[n * n] for n in (100, *numbers)]
    first, *others = squares.batches[1:]
    assert first[0] == 120
    assert sorted(first) == list(range(110, 130))  # half of them: one worker is free, and part is left
    assert others[0][0] == 100  # then the one that waits longest
    assert sorted(number for batch in others for number in batch) == [*range(100, 110), *range(130, 140)]


async def test_a_few_questions_are_not_divided() -> None:
    async with started(held=True, most=32, waiting=50, length=lambda number: number) as (squares, batcher):
        asked = [asyncio.create_task(batcher.submit([1], 10))]
        await until(lambda: squares.batches)
        asked += [asyncio.create_task(batcher.submit([number], 10)) for number in range(20, 28)]
        await until(lambda: len(batcher) == 8)
        squares.go.set()
        await asyncio.gather(*asked)
    assert [len(batch) for batch in squares.batches] == [1, 8]
