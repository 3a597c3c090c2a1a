"""Items from many callers, gathered into batches for worker threads.

All bookkeeping happens on the event loop, so there are no locks; only `process` runs in the worker threads. When a
worker is free it takes its share of the waiting items. If these are fewer than the latest batch had, it waits a few
milliseconds for more: clients that were answered together ask again together. A client alone never waits for others.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_SMOOTHING = 0.8
"""Weight of the previous estimate of the seconds per item when a batch gives a new one."""

FEW = 8
"""Items that a worker never leaves to choose from: a smaller batch costs more than padding."""


@dataclass(frozen=True, eq=False)
class _Ticket(Generic[_Item, _Result]):
    item: _Item
    result: "asyncio.Future[_Result]"
    entered: float


@dataclass(eq=False)
class Batcher(Generic[_Item, _Result]):
    """A bounded queue before workers that process at most `most` items at a time, first the one that waits longest."""

    process: Callable[[list[_Item]], Sequence[_Result]]
    executor: Executor
    _: KW_ONLY
    most: int
    waiting: int
    gather: float
    workers: int = 1
    on_batch: Callable[[int], None] = lambda size: None
    length: Callable[[_Item], int] = lambda item: 0

    def __post_init__(self) -> None:
        self._tickets: deque[_Ticket[_Item, _Result]] = deque()
        self._changed = asyncio.Event()
        self._closing = False
        self._busy = 0
        self._seconds = 0.0
        self._latest = 1  # items of the latest batch

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._tickets)

    @property
    def retry_after(self) -> int:
        """In about how many seconds the queue will be empty, 1 or more."""
        return max(1, math.ceil(len(self._tickets) * self._seconds / self.workers))

    async def submit(self, items: Sequence[_Item], seconds: float | None) -> list[_Result]:
        """The results in order. Raises asyncio.QueueFull at once, or TimeoutError after `seconds`.

        On a timeout or when the caller is cancelled, its items are taken out of the queue.
        """
        if self._closing or len(self._tickets) + len(items) > self.waiting:
            raise asyncio.QueueFull
        loop = asyncio.get_running_loop()
        tickets = [_Ticket[_Item, _Result](item, loop.create_future(), loop.time()) for item in items]
        idle = not self._tickets
        self._tickets.extend(tickets)
        if idle or self._enough:  # between these a worker would only wake to wait again
            self._changed.set()
        try:
            async with asyncio.timeout(seconds):
                if len(tickets) == 1:  # the usual request, without the cost of gathering
                    return [await tickets[0].result]
                return await asyncio.gather(*(ticket.result for ticket in tickets))
        finally:
            for ticket in tickets:
                ticket.result.cancel()  # has no effect on a finished one
            if any(ticket.result.cancelled() for ticket in tickets):
                self._tickets = deque(ticket for ticket in self._tickets if not ticket.result.done())

    async def run(self) -> None:
        """Process items until closed, and then those accepted before."""
        await asyncio.gather(*(self._work() for _ in range(self.workers)))

    def close(self) -> None:
        """Accept no more items; `run` ends when the waiting ones are done."""
        self._closing = True
        self._changed.set()

    @property
    def _enough(self) -> bool:
        """Whether a worker need not wait for more items."""
        return len(self._tickets) >= min(self.most, self._latest)

    async def _work(self) -> None:
        while batch := await self._next():
            self._latest = len(batch)
            self.on_batch(len(batch))
            begun = asyncio.get_running_loop().time()
            self._busy += 1
            await self._process_batch(batch)
            self._busy -= 1
            taken = (asyncio.get_running_loop().time() - begun) / len(batch)
            self._seconds = _SMOOTHING * self._seconds + (1 - _SMOOTHING) * taken if self._seconds else taken

    async def _next(self) -> list[_Ticket[_Item, _Result]]:
        """The next batch; empty when closed and nothing waits."""
        while self._tickets or not self._closing:
            left = None
            if self._tickets:
                left = self._tickets[0].entered + self.gather - asyncio.get_running_loop().time()
                if left <= 0 or self._enough or self._closing:
                    return self._take()
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
        return []

    def _take(self) -> list[_Ticket[_Item, _Result]]:
        """The item that waits longest, and those whose length is nearest to its own: similar texts need little padding.

        A worker takes its share of what waits. If that is more than a few, part of it stays, to choose from next time.
        """
        free = self.workers - self._busy
        share, chosen = (math.ceil(len(self._tickets) / parts) for parts in (free, free + 1))
        size = min(self.most, share, max(FEW, chosen))
        length = self.length(self._tickets[0].item)
        nearest = sorted(self._tickets, key=lambda ticket: abs(self.length(ticket.item) - length))[:size]
        taken = set(map(id, nearest))
        self._tickets = deque(ticket for ticket in self._tickets if id(ticket) not in taken)
        return nearest

    async def _process_batch(self, batch: list[_Ticket[_Item, _Result]]) -> None:
        """Set the result of each item. A batch that fails is processed one by one, so that a bad item fails alone."""
        work = asyncio.wrap_future(self.executor.submit(self.process, [ticket.item for ticket in batch]))
        await asyncio.wait([work])
        if (error := work.exception()) is None:
            for ticket, result in zip(batch, work.result(), strict=True):
                if not ticket.result.done():
                    ticket.result.set_result(result)
        elif len(batch) > 1:
            for ticket in batch:
                await self._process_batch([ticket])
        elif not batch[0].result.done():
            batch[0].result.set_exception(error)
