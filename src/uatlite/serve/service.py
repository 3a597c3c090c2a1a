"""A classifier behind bounded queues and worker threads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from uatlite import __version__
from uatlite.classifier.calibrate import Calibration
from uatlite.classifier.evidence import CalibrationRecord
from uatlite.classifier.product import Product
from uatlite.errors import CalibrationError, ConfigurationError, InputError, ModelError
from uatlite.passes.config import GATES
from uatlite.scoring.blocks import TextShape
from uatlite.scoring.watch import Watch
from uatlite.scoring.watch_state import WatchState
from uatlite.serve.batching import Batcher
from uatlite.serve.http import Refusal, invalid, overloaded
from uatlite.serve.inspector import used_settings
from uatlite.serve.limits import Limits, characters
from uatlite.serve.schema import RiskMenu, Rule, ServedModel, Watched
from uatlite.serve.traffic import Counters, Readings, TrafficMonitor
from uatlite.trust.monitor import Reference
from uatlite.trust.shift import CHECKED_ROWS, ShiftReport
from uatlite.values import Choices, Kind, Text

COUNTING = 5.0
"""Seconds between two countings of the traffic; a kill loses at most these."""
PATIENCE = 2.0
"""Seconds to wait for another process that holds the state of the traffic."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Service:
    """Answers many callers at once; each gets the answer that the classifier would give to it alone.

    Texts of several requests share batches; explanations run one by one. On CPUs there is one worker for each core,
    and each computes with one thread, because the batches are too small for several threads.
    """

    def __init__(self, classifier: Product[Any], limits: Limits | None = None, *, watch: Path | None = None) -> None:
        self.predictor: Any = classifier.predictor()
        self.shape = TextShape.of(classifier)
        self.kind: Kind = classifier.kind.name
        self.limits = Limits() if limits is None else limits
        self.counters = Counters()
        calibration = self.predictor.calibration
        self.monitor = traffic_monitor(calibration, watch)
        self._open = False
        self._workers = self.predictor.runtime.workers
        self._executor = ThreadPoolExecutor(max_workers=self._workers, thread_name_prefix="uatlite-model")
        self._texts: Batcher[Text, Any] = Batcher(
            self._predict_batch,
            self._executor,
            most=self.limits.batch,
            waiting=self.limits.waiting,
            gather=self.limits.gather,
            workers=self._workers,
            on_batch=self.counters.batch,
            length=characters,
        )
        self._explanations: Batcher[Callable[[], Any], Any] = Batcher(
            _call_each, self._executor, most=1, waiting=self.limits.explaining, gather=0.0
        )
        self.counters.add_gauge("uatlite_waiting_texts", "Texts that wait for the model", lambda: len(self._texts))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Process requests until the block ends, and then those accepted before."""
        queues: tuple[Batcher[Any, Any], ...] = (self._texts, self._explanations)
        with self.predictor.runtime.one_thread() if self._workers > 1 else nullcontext():
            loops = [asyncio.create_task(queue.run()) for queue in queues]
            counting = asyncio.create_task(self._count())
            self._open = True
            try:
                yield
            finally:
                self._open = False
                for queue in queues:
                    queue.close()
                await asyncio.gather(*loops)
                counting.cancel()
                await self.watched()
                self._executor.shutdown()

    def warm_up(self) -> None:
        """Predict once, so that everything is loaded, and a model that cannot predict fails at the start."""
        options = tuple(self.predictor.class_names or "AB")
        self.predictor.predict([Choices("warm", options) if self.shape.chooses else "warm"])

    @property
    def ready(self) -> bool:
        """Whether another text would be accepted."""
        return self._open and len(self._texts) < self.limits.waiting

    async def predict(self, texts: Sequence[Text]) -> list[Any]:
        """The predictions of checked texts, in order; raises a `Refusal` where the service is full or too slow."""
        return await self._submit(self._texts, texts)

    async def explain(self, explanation: Callable[[], Result]) -> Result:
        """What a worker thread explains; raises a `Refusal` where the settings or the text do not allow it."""
        try:
            found: Result = (await self._submit(self._explanations, [explanation]))[0]
            return found
        except (ConfigurationError, InputError, ModelError) as error:
            raise invalid("text" if isinstance(error, InputError) else "settings", str(error)) from None

    async def count(self, rows: list[dict[str, Any]]) -> ShiftReport | None:
        """Count the predictions of a request, each `as_row()`; whether they are like the calibration rows, None where
        these are unknown."""
        calibration = self.predictor.calibration
        if calibration is None or calibration.shift is None:
            return None
        readings = Readings.of(calibration.shift.score, rows)
        if self.monitor is not None:
            self.monitor.add(readings)
        check = partial(calibration.shift.check, readings.scores, readings.scope)
        # An exact test takes milliseconds, which would block the event loop; so few texts are not tested.
        return check() if len(rows) < CHECKED_ROWS else await asyncio.to_thread(check)

    async def watched(self) -> WatchState | None:
        """What is known of all texts over the whole life; None where there are no rows to compare with."""
        if self.monitor is None:
            return None
        state = await asyncio.to_thread(self.monitor.count)
        self.counters.watched(state)
        return state

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNTING)
            await self.watched()

    def about(self, watched: WatchState | None = None) -> ServedModel:
        """What is served: model, classes, method, calibration, the verdict on the traffic, and limits."""
        calibration, method = self.predictor.calibration, self.predictor.settings.method
        rule = None if calibration is None else calibration.rule
        menu, comparison = None, None
        if isinstance(calibration, Calibration):
            menu, comparison = calibration.menu, calibration.comparison
        return ServedModel(
            kind=self.kind,
            architecture=self.predictor.runtime.architecture,
            classes=list(self.predictor.class_names),
            multiple_choice=self.shape.chooses,
            method=method.name,
            passes=method.passes,
            settings=used_settings(method),
            gates=list(GATES),
            calibration=None if calibration is None else calibration.describe(),
            rule=None if rule is None else Rule.of(rule),
            menu=None if menu is None else RiskMenu.of(menu),
            comparison=None if comparison is None else comparison.describe(),
            watch=None if watched is None else Watched.of(watched),
            limits=asdict(self.limits),
            version=__version__,
        )

    async def _submit(self, queue: Batcher[Item, Result], items: Sequence[Item]) -> list[Result]:
        try:
            return await queue.submit(items, self.limits.deadline)
        except asyncio.QueueFull:
            raise overloaded(queue.retry_after) from None
        except TimeoutError:
            raise Refusal(504) from None

    def _predict_batch(self, texts: list[Text]) -> list[Any]:
        """Runs in a worker thread. Questions with different numbers of options cannot share a batch."""
        found: dict[int, Any] = {}
        sizes = [len(text.options) if isinstance(text, Choices) else 0 for text in texts]
        for size in set(sizes):
            places = [place for place, own in enumerate(sizes) if own == size]
            predictions = self.predictor.predict([texts[place] for place in places])
            found |= dict(zip(places, predictions, strict=True))
        return [found[place] for place in range(len(texts))]


def _call_each(work: list[Callable[[], Any]]) -> list[Any]:
    """Runs in a worker thread."""
    return [one() for one in work]


def traffic_monitor(calibration: CalibrationRecord | None, path: Path | None) -> TrafficMonitor | None:
    """The monitor over the traffic, with its state in a file if there is a path; None without calibration rows."""
    if calibration is None or calibration.shift is None:
        if path is not None:
            raise CalibrationError(
                f"{path} cannot keep what is known of the traffic: the classifier has no calibration rows to compare "
                "with. Run: uatlite calibrate"
            )
        return None
    watch = None
    if path is not None:
        watch = Watch(calibration, path, patience=PATIENCE)
    return TrafficMonitor(Reference.of(calibration.shift, calibration.scope), watch)
