"""The queue alone: order, batches, bounds, failures, what is withdrawn, and a stop that finishes its work."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from uatlite.serve.batching import Batcher

pytestmark = pytest.mark.anyio


class Desk:
    """A queue whose worker answers with squares, remembers its batches, fails on 13, and can be held back."""

    def __init__(self, executor, **settings):
        self.queue = Batcher(self.squares, executor, **settings)
        self.batches = []
        self.go = threading.Event()
        self.first = None

    def squares(self, numbers):
        self.batches.append(numbers)
        assert self.go.wait(20)
        if 13 in numbers:
            raise ZeroDivisionError("13")
        return [number * number for number in numbers]

    def ask(self, *numbers, seconds=10):
        return asyncio.create_task(self.queue.submit(numbers, seconds))

    async def until_waiting(self, count):
        await until(lambda: len(self.queue) == count)


@asynccontextmanager
async def started(*, busy=False, workers=1, **options):
    """A queue at work; a `busy` one is held back over a 1, the question `first`, until `go` is set."""
    settings = {"most": 4, "waiting": 8, "gather": 0.01, "workers": workers} | options
    with ThreadPoolExecutor(workers) as executor:
        desk = Desk(executor, **settings)
        loop = asyncio.create_task(desk.queue.run())
        if busy:
            desk.first = desk.ask(1)
            await until(lambda: desk.batches)
        else:
            desk.go.set()
        yield desk
        desk.queue.close()
        await loop


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


async def test_workers_share_what_waits_and_run_side_by_side():
    async with started(workers=2, waiting=20, gather=0.05) as desk:
        desk.go.clear()
        asked = [desk.ask(n) for n in range(6)]
        await until(lambda: len(desk.batches) == 2)  # the first has not been answered
        assert sorted(map(len, desk.batches)) == [3, 3]
        desk.go.set()
        assert await asyncio.gather(*asked) == [[n * n] for n in range(6)]
        assert await desk.ask(7) == [49]
    assert sorted(number for batch in desk.batches for number in batch) == [*range(6), 7]


async def test_questions_of_many_callers_share_batches_and_each_gets_its_own_answer():
    async with started(gather=0.1, waiting=20) as desk:
        answers = await asyncio.gather(*(desk.ask(n, n + 100) for n in range(5)))
    assert answers == [[n * n, (n + 100) ** 2] for n in range(5)]
    assert [len(batch) for batch in desk.batches] == [4, 4, 2]


async def test_a_full_queue_refuses_at_once_and_takes_again_when_it_has_emptied():
    async with started(busy=True, most=1, gather=0.0, waiting=3) as desk:  # what a worker has waits no longer
        others = desk.ask(2, 3, 4)
        await desk.until_waiting(3)
        with pytest.raises(asyncio.QueueFull):
            await desk.ask(5)
        desk.go.set()
        assert [await desk.first, await others, await desk.ask(5)] == [[1], [4, 9, 16], [25]]


@pytest.mark.parametrize("leave", ["timeout", "cancel"])
async def test_who_stops_waiting_takes_its_questions_out(leave):
    async with started(busy=True, most=1, gather=0.0) as desk:
        left = desk.ask(2, 3, seconds=0.05 if leave == "timeout" else 10)
        await desk.until_waiting(2)
        if leave == "cancel":
            left.cancel()
        await asyncio.wait([left])
        assert isinstance(left.exception(), TimeoutError) if leave == "timeout" else left.cancelled()
        assert len(desk.queue) == 0
        desk.go.set()
        assert await desk.first == [1]
    assert desk.batches == [[1]]


async def test_a_question_that_fails_does_not_spoil_the_others():
    async with started(gather=0.05) as desk:
        good, bad, also_good = await asyncio.gather(*map(desk.ask, (2, 13, 3)), return_exceptions=True)
    assert (good, also_good) == ([4], [9])
    assert isinstance(bad, ZeroDivisionError)


async def test_a_stop_answers_what_was_accepted_and_takes_no_more():
    async with started(busy=True, most=1, gather=0.0) as desk:
        asked = desk.ask(2, 3)
        await desk.until_waiting(2)
        desk.queue.close()
        with pytest.raises(asyncio.QueueFull):
            await desk.ask(4)
        desk.go.set()
    assert [await desk.first, await asked] == [[1], [4, 9]]


async def test_a_question_alone_does_not_wait_for_others():
    async with started(gather=1000.0) as desk:
        assert [await desk.ask(n) for n in (2, 3)] == [[4], [9]]
    assert desk.batches == [[2], [3]]


async def test_a_worker_waits_for_as_many_as_came_last_time_and_no_more():
    async with started(busy=True, gather=1000.0) as desk:
        together = desk.ask(2, 3, 4)  # they wait for the worker
        await desk.until_waiting(3)
        desk.go.set()
        assert [await desk.first, await together] == [[1], [4, 9, 16]]
        again = [desk.ask(n) for n in (5, 6)]
        await desk.until_waiting(2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(desk.queue) == 2  # of three that are to be expected
        assert await asyncio.gather(*again, desk.ask(7)) == [[25], [36], [49]]
    assert desk.batches == [[1], [2, 3, 4], [5, 6, 7]]


async def test_fewer_than_last_time_are_answered_after_a_while():
    async with started(gather=0.01) as desk:
        assert [await desk.ask(2, 3, 4), await desk.ask(5)] == [[4, 9, 16], [25]]
    assert desk.batches == [[2, 3, 4], [5]]


async def test_a_batch_has_the_longest_waiting_question_and_those_of_similar_length():
    async with started(busy=True, most=32, waiting=50, length=lambda number: number) as desk:
        numbers = [120, *range(100, 120), *range(121, 140)]
        asked = [desk.ask(number) for number in numbers]
        await desk.until_waiting(len(numbers))
        desk.go.set()
        assert await asyncio.gather(*asked) == [[n * n] for n in numbers]
    first, *others = desk.batches[1:]
    assert first[0] == 120
    assert sorted(first) == list(range(110, 130))  # half of them: one worker is free, and part is left
    assert others[0][0] == 100  # then the one that waits longest
    assert sorted(number for batch in others for number in batch) == [*range(100, 110), *range(130, 140)]


async def test_a_few_questions_are_not_divided():
    async with started(busy=True, most=32, waiting=50, length=lambda number: number) as desk:
        asked = [desk.ask(number) for number in range(20, 28)]
        await desk.until_waiting(8)
        desk.go.set()
        await asyncio.gather(*asked)
    assert [len(batch) for batch in desk.batches] == [1, 8]
