"""How much the service takes at once. Every queue, body and wait has a bound, so that no client can fill the memory.

Texts of a request, checked against the limits and the model before anything waits for the model.

The risk–coverage curve of rows that a client classified and knows the truth of.

A classifier behind bounded queues and worker threads.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from uatlite import __version__
from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.predictions import MEASURES, Prediction
from uatlite.errors import ConfigurationError, InputError
from uatlite.metrics.ranking import Ranking
from uatlite.model.architectures import unwrap
from uatlite.passes.config import GATES
from uatlite.serve.batching import Batcher
from uatlite.serve.counters import Counts
from uatlite.serve.http import Refusal, invalid, overloaded
from uatlite.serve.inspector import Inspection, inspect, used
from uatlite.serve.schema import CurveResponse, ExplainResponse, Question, Rule, ServedModel, text_of
from uatlite.text.examples import text_fault
from uatlite.trust.rule import AbstentionRule, trust
from uatlite.trust.shift import ShiftReport
from uatlite.values import Choices, Text, strings


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is beyond these is refused at once, with a status that says so."""

    body: int = 2**20
    """bytes of a request's body"""
    texts: int = 128
    """texts of a request"""
    characters: int = 20_000
    """characters of a text, all parts of a pair or a question together"""
    explained: int = 2_000
    """characters of a text that is explained: attention grows with the square of its tokens"""
    batch: int = 32
    """texts that the model reads at once"""
    waiting: int = 512
    """texts that wait for the model; a request that does not fit is refused"""
    explaining: int = 8
    """explanations that wait"""
    gather: float = 0.005
    """seconds that a text waits for others to share its batch"""
    deadline: float = 30.0
    """seconds in which a request is answered or given up"""
    requests: int = 1024
    """requests at the same time"""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            least = 0 if name == "gather" else 1
            whole = name not in ("gather", "deadline")
            kinds = int if whole else int | float
            if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < float("inf"):
                what = "a whole number" if whole else "a number"
                raise ConfigurationError(f"{name}={value!r} is not {what} of {least} or more.")
        if self.waiting < self.texts:
            raise ConfigurationError(
                f"waiting={self.waiting} is less than texts={self.texts}: the largest request could never be taken. "
                "Raise waiting, or lower texts."
            )


MOST_FAULTS = 10
"""Fields that a refusal names; a client repairs its way of asking and not one text after the other."""


def checked(
    given: Sequence[str | tuple[str, str] | Question], classifier: UncertaintyClassifier, limits: Limits
) -> list[Text]:
    """The texts that a classifier takes, or a refusal that names the first that it does not."""
    if len(given) > limits.texts:
        raise Refusal(422, fields=[("texts", f"{len(given)} texts, where at most {limits.texts} are taken at once")])
    texts = [text_of(one) for one in given]
    faults = [
        (f"texts[{place}]", fault)
        for place, text in enumerate(texts)
        for fault in _faults(text, classifier, limits.characters)
    ]
    if faults:
        raise Refusal(422, fields=faults[:MOST_FAULTS])
    return texts


def checked_one(given: str | tuple[str, str] | Question, classifier: UncertaintyClassifier, limits: Limits) -> Text:
    """The text to explain, or a refusal."""
    text = text_of(given)
    for fault in _faults(text, classifier, limits.explained):
        raise Refusal(422, fields=[("text", fault)])
    return text


def _faults(text: Text, classifier: UncertaintyClassifier, most: int) -> Iterator[str]:
    size = sum(len(part) for part in strings(text))
    if size > most:
        yield f"{size} characters, where at most {most} are taken"
        return
    options = len(classifier.class_names) if classifier.chooses and classifier.calibration_ is not None else None
    fault = text_fault(text, chooses=classifier.chooses, options=options)
    if fault is not None:
        yield fault
    elif not all(_is_unicode(part) for part in strings(text)):
        yield "half of a surrogate pair, which is no character"


def _is_unicode(part: str) -> bool:
    try:
        part.encode()
    except UnicodeEncodeError:
        return False
    return True


MOST_POINTS = 500
"""Points of a curve that is drawn; more than a screen has cannot be seen."""


def risk_coverage(scores: NDArray[np.float64], right: NDArray[np.bool_]) -> CurveResponse:
    """The curve over the rows from the highest score down, (rows,) each; ties share their errors evenly.

    The area is the mean over k = 1..n of E_k / k, as `uatlite.metrics.aurc` defines it for the confidence.
    """
    once, ranks = np.ones((1, len(scores))), np.arange(1, len(scores) + 1)
    ranking = Ranking.of(scores)
    kept, errors = ranking.cumulate(once)[0], ranking.cumulate(once, (~right).astype(np.float64))[0]
    risks = np.interp(ranks, kept, errors) / ranks
    shown = np.unique(np.linspace(0, len(ranks) - 1, min(len(ranks), MOST_POINTS)).round().astype(np.intp))
    return CurveResponse(
        coverage=(ranks[shown] / len(ranks)).tolist(),
        risk=risks[shown].tolist(),
        aurc=float(risks.mean()),
        accuracy=float(right.mean()),
    )


Asked = TypeVar("Asked")
Reply = TypeVar("Reply")


class Service:
    """Answers for many callers at once, each as the classifier alone would have answered it.

    Texts of several requests run together, explanations one by one. On CPUs there is a worker for each core, and each
    computes with one thread: batches of a few texts are too small for several threads not to wait for each other.
    """

    def __init__(self, classifier: UncertaintyClassifier, limits: Limits | None = None) -> None:
        classifier.predictor()  # a calibration of other settings is an error now and not at the first text
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

    async def _ask(self, queue: Batcher[Asked, Reply], questions: Sequence[Asked]) -> list[Reply]:
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
