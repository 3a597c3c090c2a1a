"""Questions of many callers, gathered into batches for worker threads.

All bookkeeping happens on the event loop, so there are no locks; only `answer` runs in the worker threads. A batch is
whatever waits when a worker is free, shared with the other workers that are, and where that is less than a full one,
what comes in a few milliseconds more.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")

_MEMORY = 0.8
"""How much of the estimate of a question's time is kept when a batch brings a new one."""


@dataclass(frozen=True, eq=False)
class _Ticket(Generic[Question, Answer]):
    question: Question
    answer: "asyncio.Future[Answer]"
    entered: float


class Batcher(Generic[Question, Answer]):
    """A bounded queue before workers that answer `most` questions at a time, in the order in which they came."""

    def __init__(
        self,
        answer: Callable[[list[Question]], Sequence[Answer]],
        executor: Executor,
        *,
        most: int,
        waiting: int,
        gather: float,
        workers: int = 1,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._answer = answer
        self._executor = executor
        self._most = most
        self._waiting = waiting
        self._gather = gather
        self._workers = workers
        self._busy = 0
        self._on_batch = on_batch
        self._tickets: deque[_Ticket[Question, Answer]] = deque()
        self._news = asyncio.Event()
        self._closing = False
        self._seconds = 0.0

    def __len__(self) -> int:
        """How many questions wait."""
        return len(self._tickets)

    @property
    def busy_for(self) -> int:
        """In about how many whole seconds what waits now will be answered, 1 or more."""
        return max(1, math.ceil(len(self._tickets) * self._seconds / self._workers))

    async def ask(self, questions: Sequence[Question], seconds: float | None) -> list[Answer]:
        """The answers in order. Raises asyncio.QueueFull at once, or TimeoutError after so many seconds.

        Whoever stops waiting, by timeout or by being cancelled, takes its questions back out of the queue.
        """
        if self._closing or len(self._tickets) + len(questions) > self._waiting:
            raise asyncio.QueueFull
        loop = asyncio.get_running_loop()
        tickets = [_Ticket[Question, Answer](one, loop.create_future(), loop.time()) for one in questions]
        self._tickets.extend(tickets)
        self._news.set()
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.gather(*(ticket.answer for ticket in tickets))
        finally:
            self._withdraw(tickets)

    async def run(self) -> None:
        """Answer until closed, and then what was accepted before."""
        await asyncio.gather(*(self._work() for _ in range(self._workers)))

    async def _work(self) -> None:
        while batch := await self._next():
            self._on_batch(len(batch))
            begun = asyncio.get_running_loop().time()
            self._busy += 1
            await self._answer_batch(batch)
            self._busy -= 1
            taken = (asyncio.get_running_loop().time() - begun) / len(batch)
            self._seconds = _MEMORY * self._seconds + (1 - _MEMORY) * taken if self._seconds else taken

    def close(self) -> None:
        """Take no more questions; `run` ends when those that wait are answered."""
        self._closing = True
        self._news.set()

    def _withdraw(self, tickets: Sequence[_Ticket[Question, Answer]]) -> None:
        for ticket in tickets:
            ticket.answer.cancel()  # does nothing to one that was given
        if any(ticket.answer.cancelled() for ticket in tickets):
            self._tickets = deque(ticket for ticket in self._tickets if not ticket.answer.done())

    async def _next(self) -> list[_Ticket[Question, Answer]]:
        """The next batch; empty when closed and nothing waits."""
        while True:
            if not self._tickets:
                if self._closing:
                    return []
                await self._wait(None)
                continue
            left = self._tickets[0].entered + self._gather - asyncio.get_running_loop().time()
            if left <= 0 or len(self._tickets) >= self._most or self._closing:
                size = min(self._most, math.ceil(len(self._tickets) / (self._workers - self._busy)))
                return [self._tickets.popleft() for _ in range(size)]
            await self._wait(left)

    async def _wait(self, seconds: float | None) -> None:
        """Until something happens, or so many seconds."""
        self._news.clear()
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return

    async def _answer_batch(self, batch: list[_Ticket[Question, Answer]]) -> None:
        """Answer a batch. Where it fails its questions are asked one by one, so that none spoils the others'."""
        error = await self._try(batch)
        if error is None:
            return
        for ticket in batch:
            alone = error if len(batch) == 1 else await self._try([ticket])
            if alone is not None and not ticket.answer.done():
                ticket.answer.set_exception(alone)

    async def _try(self, batch: list[_Ticket[Question, Answer]]) -> BaseException | None:
        """Give each question its answer, or return what went wrong."""
        asked = asyncio.wrap_future(self._executor.submit(self._answer, [ticket.question for ticket in batch]))
        await asyncio.wait([asked])
        error = asked.exception()
        if error is not None:
            return error
        for ticket, answer in zip(batch, asked.result(), strict=True):
            if not ticket.answer.done():
                ticket.answer.set_result(answer)
        return None
