"""A classifier behind bounded queues and worker threads."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch

from uatlite import __version__
from uatlite.backbone.checks import unwrap
from uatlite.classifier import Prediction, UncertaintyClassifier
from uatlite.classifier.prediction import MEASURES
from uatlite.decision import AbstentionRule, ShiftReport, trust
from uatlite.errors import ConfigurationError, InputError
from uatlite.passes.config import GATES
from uatlite.serve.batching import Batcher
from uatlite.serve.counting import Counts
from uatlite.serve.inspecting import Inspection, inspect, used
from uatlite.serve.limits import Limits
from uatlite.serve.refusals import Refusal, invalid, overloaded
from uatlite.serve.schema import ExplainResponse, Rule, ServedModel
from uatlite.values import Choices, Text

Question = TypeVar("Question")
Reply = TypeVar("Reply")


class Service:
    """Answers for many callers at once, each as the classifier alone would have answered it.

    Texts of several requests run together, explanations one by one. On CPUs there is a worker for each core, and each
    computes with one thread: batches of a few texts are too small for several threads not to wait for each other.
    """

    def __init__(self, classifier: UncertaintyClassifier, limits: Limits | None = None) -> None:
        classifier.checked_calibration()  # a calibration of other settings is an error now and not at the first text
        self.classifier = classifier
        self.limits = Limits() if limits is None else limits
        self.counts = Counts()
        self._open = False
        on_cpu = next(classifier.model.parameters()).device.type == "cpu"
        self._workers = torch.get_num_threads() if on_cpu else 1
        self._executor = ThreadPoolExecutor(max_workers=self._workers, thread_name_prefix="uatlite-model")
        self._texts: Batcher[Text, Prediction] = Batcher(
            self._predict_all,
            self._executor,
            most=self.limits.batch,
            waiting=self.limits.waiting,
            gather=self.limits.gather,
            workers=self._workers,
            on_batch=self.counts.batch,
        )
        self._explanations: Batcher[Inspection, ExplainResponse] = Batcher(
            self._inspect_all, self._executor, most=1, waiting=self.limits.explaining, gather=0.0
        )
        self.counts.watch("uatlite_waiting_texts", "Texts that wait for the model", lambda: len(self._texts))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While this is entered questions are answered; at the end those that were accepted are answered first."""
        queues: tuple[Batcher[Any, Any], ...] = (self._texts, self._explanations)
        if self._workers > 1:
            torch.set_num_threads(1)
        loops = [asyncio.create_task(queue.run()) for queue in queues]
        self._open = True
        try:
            yield
        finally:
            self._open = False
            for queue in queues:
                queue.close()
            await asyncio.gather(*loops)
            self._executor.shutdown()
            if self._workers > 1:
                torch.set_num_threads(self._workers)

    @property
    def ready(self) -> bool:
        """Whether another text would be taken."""
        return self._open and len(self._texts) < self.limits.waiting

    async def predict(self, texts: Sequence[Text]) -> list[Prediction]:
        """What the classifier says of texts, in their order; raises a `Refusal` where it cannot say it now."""
        return await self._ask(self._texts, texts)

    async def explain(self, asked: Inspection) -> ExplainResponse:
        """One text from all sides; a `Refusal` where the settings or the text do not allow it."""
        try:
            return (await self._ask(self._explanations, [asked]))[0]
        except (ConfigurationError, InputError) as error:
            raise invalid("settings" if isinstance(error, ConfigurationError) else "text", str(error)) from None

    def about(self) -> ServedModel:
        """What is served, for a client that has never seen it."""
        classifier = self.classifier
        calibration, method = classifier.calibration_, classifier.method
        rule = None if calibration is None else calibration.rule
        return ServedModel(
            architecture=type(unwrap(classifier.model)).__name__,
            classes=list(classifier.class_names),
            multiple_choice=classifier.chooses,
            method=method.name,
            passes=method.passes,
            settings=used(method),
            gates=list(GATES),
            calibration=None if calibration is None else calibration.describe(),
            rule=None if rule is None else _as_json(rule),
            limits=asdict(self.limits),
            version=__version__,
        )

    async def shift(self, predictions: Sequence[Prediction]) -> ShiftReport | None:
        """Whether the texts of a request are like the calibration rows; None where nothing is known of these."""
        calibration = self.classifier.calibration_
        if calibration is None or calibration.shift is None:
            return None
        columns = {name: np.array([getattr(one, name) for one in predictions]) for name in MEASURES}
        scores = trust(calibration.shift.score, SimpleNamespace(**columns))
        known = [one.among.distances[one.row] for one in predictions if one.among.distances is not None]
        # An exact test takes milliseconds, in which the event loop would answer nobody.
        return await asyncio.to_thread(calibration.shift.check, scores, distances=known or None)

    async def _ask(self, queue: Batcher[Question, Reply], questions: Sequence[Question]) -> list[Reply]:
        try:
            return await queue.ask(questions, self.limits.deadline)
        except asyncio.QueueFull:
            raise overloaded(queue.busy_for) from None
        except TimeoutError:
            raise Refusal(504) from None

    def _inspect_all(self, asked: list[Inspection]) -> list[ExplainResponse]:
        """In a worker thread."""
        return [inspect(self.classifier, one) for one in asked]

    def _predict_all(self, texts: list[Text]) -> list[Prediction]:
        """In a worker thread. Questions with unlike numbers of options cannot share a batch."""
        found: dict[int, Prediction] = {}
        sizes = [len(text.options) if isinstance(text, Choices) else 0 for text in texts]
        for size in set(sizes):
            places = [place for place, own in enumerate(sizes) if own == size]
            predictions = self.classifier.predict([texts[place] for place in places], check_shift=False)
            found |= dict(zip(places, predictions, strict=True))
        return [found[place] for place in range(len(texts))]


def warm_up(classifier: UncertaintyClassifier) -> None:
    """Predict once: what is loaded on first use is loaded, and a model that cannot predict says so now."""
    options = tuple(classifier.class_names or "AB")
    classifier.predict([Choices("warm", options) if classifier.chooses else "warm"], check_shift=False)


def _as_json(rule: AbstentionRule) -> Rule:
    known = rule.threshold if math.isfinite(rule.threshold) else None
    return Rule(score=rule.score, threshold=known, promise=rule.describe())


def plain(report: ShiftReport) -> dict[str, Any]:
    """The parts of a shift report that an answer carries."""
    return {"shifted": report.shifted, "p_value": report.p_value, "verdict": report.describe()}
