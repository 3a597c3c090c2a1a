"""A classifier behind bounded queues and worker threads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from uatlite import __version__
from uatlite.classifier.product import Predictor, Product
from uatlite.classifier.scores import ScoresRuntime
from uatlite.errors import ConfigurationError, InputError, ModelError
from uatlite.passes.config import GATES
from uatlite.scoring.watch_state import WatchState
from uatlite.serve.batching import Batcher
from uatlite.serve.http import Refusal, invalid, overloaded
from uatlite.serve.inspector import inspect_class, inspect_entity, inspect_label, used_settings
from uatlite.serve.limits import Limits
from uatlite.serve.schema import (
    Answer,
    DecideRequest,
    EntitiesAnswer,
    LabelsAnswer,
    PredictRequest,
    ServedModel,
    TagRequest,
    Watched,
)
from uatlite.serve.traffic import Traffic
from uatlite.values import Choices, Kind, ScoredText, Text, strings

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Row = dict[str, Any]

MOST_FAULTS = 10
"""Faulty fields that a refusal names."""


def characters(text: Text) -> int:
    """How many characters a text has, with all parts of a pair or a question."""
    return sum(map(len, strings(text)))


@dataclass(frozen=True)
class ServedKind:
    """How texts are sent to a model of a kind, what is answered, how a text is explained; with words for OpenAPI."""

    request: type[PredictRequest] | type[TagRequest] | type[DecideRequest]
    answer: type[Answer] | type[LabelsAnswer] | type[EntitiesAnswer]
    predicts: str
    explain: Callable[[Predictor, Any, Any], BaseModel] | None
    """of a predictor, a text and the request; its annotations say what the address takes and answers"""
    explains: str
    path: str = "/predict"
    chooses: bool = False
    """whether texts are questions with options"""


CLASSES = ServedKind(PredictRequest, Answer, "Classify texts", inspect_class, "Explain one text")
ANSWERS: dict[Kind, ServedKind] = {
    "one": CLASSES,
    "choice": replace(CLASSES, chooses=True),
    "labels": ServedKind(PredictRequest, LabelsAnswer, "Label texts", inspect_label, "Explain one label of a text"),
    "entities": ServedKind(
        TagRequest, EntitiesAnswer, "Find entities in texts", inspect_entity, "Explain one entity of a text"
    ),
}
"""What a model says about a text -> what the addresses take and answer."""
OF_SCORES = ServedKind(DecideRequest, Answer, "Decide on scores", None, "", path="/decide")


class Service:
    """Answers many callers at once; each gets the answer that the classifier would give to it alone.

    Texts of several requests share batches; explanations run one by one. On CPUs there is one worker for each core,
    and each computes with one thread, because the batches are too small for several threads.
    """

    def __init__(self, classifier: Product[Any], limits: Limits | None = None, *, watch: Path | None = None) -> None:
        self.predictor = classifier.predictor()
        runtime = self.predictor.runtime
        self._columns = runtime.columns if type(runtime) is ScoresRuntime else None
        self.answers = ANSWERS[self.predictor.kind.name] if self._columns is None else OF_SCORES
        self.limits = Limits() if limits is None else limits
        self.traffic = Traffic(self.predictor.calibration, watch)
        self._open = False
        self._workers = self.predictor.runtime.workers
        self._executor = ThreadPoolExecutor(max_workers=self._workers, thread_name_prefix="uatlite-model")
        self._texts: Batcher[Text, _Row] = Batcher(
            self._predict_batch,
            self._executor,
            most=self.limits.batch,
            waiting=self.limits.waiting,
            gather=self.limits.gather,
            workers=self._workers,
            on_batch=self.traffic.counters.batches.observe,
            length=characters,
        )
        self._explanations: Batcher[tuple[Text, BaseModel], BaseModel] = Batcher(
            lambda asked: [self.answers.explain(self.predictor, *each) for each in asked if self.answers.explain],
            self._executor,
            most=1,
            waiting=self.limits.explaining,
            gather=0.0,
        )
        self.traffic.counters.waiting.set_function(lambda: len(self._texts))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Process requests until the block ends, and then those accepted before."""
        queues: tuple[Batcher[Any, Any], ...] = (self._texts, self._explanations)
        with self.predictor.runtime.one_thread() if self._workers > 1 else nullcontext():
            loops = [asyncio.create_task(queue.run()) for queue in queues]
            counting = asyncio.create_task(self.traffic.run())
            self._open = True
            try:
                yield
            finally:
                self._open = False
                for queue in queues:
                    queue.close()
                await asyncio.gather(*loops)
                counting.cancel()
                await asyncio.to_thread(self.traffic.count)
                self._executor.shutdown()

    def warm_up(self) -> None:
        """Predict once, so that everything is loaded, and a model that cannot predict fails at the start."""
        options = tuple(self.predictor.class_names or "AB")
        text: Text = Choices("warm", options) if self.answers.chooses else "warm"
        if self._columns is not None:
            text = ScoredText((0.0,) * len(options), bytes(4 * self._columns.width))
        self.predictor.predict([text])

    @property
    def ready(self) -> bool:
        """Whether another text would be accepted."""
        return self._open and len(self._texts) < self.limits.waiting

    async def predict(self, given: Sequence[Any]) -> list[_Row]:
        """The rows of texts, in order, each with the fields of its answer; that of a faulty text says what is wrong.

        Raises a `Refusal` where all texts are faulty, or the service is full or too slow.
        """
        name = "texts" if self._columns is None else "scores"
        if len(given) > (most := self.limits.texts):
            raise invalid(name, f"{len(given)} {name}, but a request may have at most {most}")
        texts, faults = zip(*map(self._taken, given), strict=True)
        taken = [text for text, fault in zip(texts, faults, strict=True) if fault is None]
        if not taken:
            raise Refusal(422, fields=[(f"{name}[{i}]", str(fault)) for i, fault in enumerate(faults)][:MOST_FAULTS])
        rows = iter(await self._submit(self._texts, taken))
        return [next(rows) if fault is None else {"error": {"code": "invalid", "message": fault}} for fault in faults]

    async def explain(self, text: Text, asked: BaseModel) -> BaseModel:
        """What explains a text; raises a `Refusal` where the text or the settings do not allow it."""
        if fault := self._fault(text, self.limits.explained):
            raise invalid("text", fault)
        try:
            return (await self._submit(self._explanations, [(text, asked)]))[0]
        except (ConfigurationError, InputError, ModelError) as error:
            raise invalid("text" if isinstance(error, InputError) else "settings", str(error)) from None

    def about(self, watched: WatchState | None = None) -> ServedModel:
        """What is served: model, classes, method, calibration, the verdict on the traffic, and limits."""
        calibration, method = self.predictor.calibration, self.predictor.settings.method
        return ServedModel.model_validate(
            {
                "kind": self.predictor.kind.name,
                "architecture": self.predictor.runtime.architecture,
                "classes": self.predictor.class_names,
                "multiple_choice": self.answers.chooses,
                "method": method.name,
                "passes": method.passes,
                "settings": used_settings(method),
                "gates": GATES,
                "calibration": calibration and calibration.describe(),
                "rule": calibration and calibration.rule,
                "menu": calibration and calibration.menu,
                "comparison": calibration and calibration.comparison and calibration.comparison.describe(),
                "watch": watched and calibration and Watched.of(watched, calibration),
                "limits": asdict(self.limits),
                "version": __version__,
            }
        )

    async def _submit(self, queue: Batcher[_Item, _Result], items: Sequence[_Item]) -> list[_Result]:
        try:
            return await queue.submit(items, self.limits.deadline)
        except asyncio.QueueFull:
            raise overloaded(queue.retry_after) from None
        except TimeoutError:
            raise Refusal(504) from None

    def _predict_batch(self, texts: list[Text]) -> list[_Row]:
        """Runs in a worker thread. Questions with different numbers of options cannot share a batch."""
        by_options: dict[int, list[int]] = {}
        for i, text in enumerate(texts):
            by_options.setdefault(len(text.options) if isinstance(text, Choices) else 0, []).append(i)
        rows: dict[int, _Row] = {}
        for numbers in by_options.values():
            predictions = self.predictor.predict([texts[i] for i in numbers])
            answered = self.answers.answer.rows(predictions, self.predictor.calibrator)
            rows |= dict(zip(numbers, answered, strict=True))
        return [rows[i] for i in range(len(texts))]

    def _taken(self, given: Any) -> tuple[Any, str | None]:
        """A text, or a row of scores in its place, and why it cannot be taken."""
        try:
            text = given if self._columns is None else self._columns.read(given)
        except InputError as error:
            return given, str(error)
        return text, self._fault(text, self.limits.characters)

    def _fault(self, text: Text, most: int) -> str | None:
        """Why a text cannot be taken, in a few words; None where it can."""
        if (size := characters(text)) > most:
            return f"{size} characters, but a text may have at most {most}"
        if fault := self.predictor.kind.fault(text, self.predictor.class_names):
            return fault
        try:
            "\n".join(strings(text)).encode()
        except UnicodeEncodeError:
            return "half of a surrogate pair, which is not a character"
        return None
