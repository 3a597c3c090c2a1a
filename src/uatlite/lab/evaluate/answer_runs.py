"""The runs of a model with several answers a text: what each contender says, in pieces that are written once.

    base              the usual confidence: of an entity the mean probability of its words' tags, of a label the sigmoid
    METHOD            what the method says without calibration
    METHOD+answers    calibrated on the calibration rows, as `uatlite calibrate` does it

STORE/answers=KEY/    one contender with one seed over one set: its answers, and what it promises; over the
                      calibration rows also what it learned from them
"""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import cache, lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from uatlite.classifier.classifiers import PRODUCTS, AnyProduct
from uatlite.classifier.product import KINDS
from uatlite.classifier.record import Calibration
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.models import BASE_METHOD, GivenModels, Job
from uatlite.lab.evaluate.outcomes import OUTCOMES, GoldRows, JudgedAnswers, PromiseCheck, check_promise
from uatlite.lab.evaluate.plan import Contender
from uatlite.lab.evaluate.results import SetScores
from uatlite.lab.evaluate.runs import Remote, Runs, nothing
from uatlite.lab.evaluate.store import Arrays, Store, kept_arrays, parts_of
from uatlite.methods.registry import method_to_dict
from uatlite.metrics.intervals import Estimates, Resampling
from uatlite.text.write import Pieces


class AnswerRuns(Runs):
    """The stored runs of an evaluation of several answers a text. The rows of an outcome are answers."""

    source: GivenModels

    def __init__(self, source: GivenModels, store: Store, remote: Remote | None = None) -> None:
        super().__init__(source, store, remote)
        kind = source.plan.test.task.kind
        scores = OUTCOMES[kind].answers
        assert scores is not None
        self.scores = scores
        product = next(product for product in PRODUCTS if KINDS[kind] in product.kinds)
        self.product = partial(product, source.plain.model, source.plain.tokenizer)
        names = self.product(BASE_METHOD).class_names
        self.gold = lru_cache(maxsize=12)(lambda job: GoldRows.of(self.dataset(job), names))
        self.ready = cache(self._calibrated)
        self._answers: dict[Job, JudgedAnswers] = {}

    def jobs(self, cell: CellSpec) -> list[Job]:
        """A cell's contender on its rows, for each seed."""
        return [replace(job, contender=cell.contender) for job in super().jobs(cell)]

    def _compute_remotely(self, jobs: Sequence[Job], advance: Callable[[float], None]) -> None:
        if self._remote is not None:
            here = self.source, self.store.directory.absolute()
            missing = [job for job in jobs if not self._pieces(job).finished]
            self._remote.run([partial(compute_elsewhere, *here, job) for job in missing], advance)

    def fill(self, job: Job, advance: Callable[[int], None] = nothing) -> None:
        self.run(job, advance)

    def run(self, job: Job, advance: Callable[[int], None] = nothing) -> JudgedAnswers:
        """What is said in a job; only pieces that the store does not have are computed."""
        if job not in self._answers:
            pieces, rows, said = self._pieces(job), self.gold(job), []
            for number, indices in enumerate(parts_of(range(len(rows.texts)))):
                say = partial(self._say, job, slice(indices[0], indices[-1] + 1))
                said.append(JudgedAnswers(**kept_arrays(pieces, f"piece-{number:05}.npz", say)))
                advance(len(indices))
            if not pieces.finished:
                pieces.finish({"texts": len(rows.texts), "pieces": len(said)})
            self._answers[job] = JudgedAnswers.joined(said)
        return self._answers[job]

    def _say(self, job: Job, some: slice) -> Arrays:
        """What the contender says about some texts."""
        product, rows, begun = self.ready(job.home), self.gold(job), time.perf_counter()
        said: Any = product.predict(rows.texts[some], check_shift=False)
        seconds = time.perf_counter() - begun
        gold = product.kind.gold(rows.gold[some], said.texts, said.classes)
        confidence = self.scores.usual(said) if contender_of(job).name == BASE_METHOD else said.sure
        columns = self.scores.gold(gold, len(said.classes))
        return vars(JudgedAnswers.of(said, gold, columns, confidence, seconds))

    def _pieces(self, job: Job) -> Pieces:
        """Where the answers of a job are; what determines them is their record, and its hash the name."""
        contender, plan = contender_of(job), self.source.plan
        record = {
            "model": self.source.plain.hash, "data": self.dataset(job).fingerprint,
            "calibration": self.dataset(job.home).fingerprint if contender.calibrated else None,
            "method": method_to_dict(job.method), "calibrator": contender.calibrator, "target": plan.target,
            "seed": job.seed, "max_length": plan.max_length, "uatlite": version("uatlite"),
            "columns": [field.name for field in fields(JudgedAnswers)],
        }  # fmt: skip
        key = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]
        pieces = self.store.answers(key)
        if not pieces.begun:
            pieces.begin(record)
        return pieces

    def _calibrated(self, home: Job) -> AnyProduct:
        """The product of a job over the calibration rows; what is learned from these is kept with the answers to them.

        It is calibrated where the contender is.
        """
        plan = self.source.plan
        product = self.product(home.method, seed=home.seed, max_length=plan.max_length)
        if contender_of(home).calibrated:
            pieces, name = self._pieces(home), "calibration.npz"
            learned = pieces.read(name, Calibration.read)
            if learned is None:
                rows = self.gold(home)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # a rule that promises nothing says so in the results
                    learned = product.calibrate(rows.texts, rows.gold, target_risk=plan.target).calibration_
                assert learned is not None
                with pieces.write(name) as file:
                    learned.write(file)
            product.calibration_ = learned
        return product

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    def estimates(self, cell: CellSpec) -> list[Estimates]:
        return [self.scores.estimates(self.run(job)) for job in self.jobs(cell)]

    def keys(self, jobs: Iterable[Job]) -> tuple[str, ...]:
        return tuple(self._pieces(job).directory.name.removeprefix("answers=") for job in jobs)

    def facts(self, cell: CellSpec) -> SetScores:
        job = self.jobs(cell)[0]
        dataset, cut = self.dataset(job), self.run(job).cut
        return SetScores(
            name=job.set_name,
            source=dataset.source,
            alignment=self.gold(job).note,
            rows=len(dataset),
            left_out=0,
            truncated_texts=int((cut > 0).sum()),
            truncated_tokens=int(cut.sum()),
        )

    def promises(self, cell: CellSpec, how: Resampling) -> list[PromiseCheck]:
        """Whether what a cell's contender promises is kept on its rows, by the first seed."""
        job = self.jobs(cell)[0]
        calibration = self.ready(job.home).calibration_
        if calibration is None or calibration.rule is None:
            return []
        said = self.run(job)
        return [check_promise(cell.contender.name, job.set_name, calibration.rule, said, self.scores.pairs, how)]

    def cost(self, cell: CellSpec) -> tuple[float, float]:
        jobs = self.jobs(cell)
        seconds = np.concatenate([self.run(job).seconds for job in jobs]).mean()
        return float(self.ready(jobs[0].home).method.cost), float(seconds)


def contender_of(job: Job) -> Contender:
    """Whose answers a job stores."""
    assert job.contender is not None
    return job.contender


def compute_elsewhere(source: GivenModels, store: Path, job: Job) -> float:
    """Compute a run on another machine that sees the directory of the store; returns the work done, in passes."""
    runs = AnswerRuns(source, Store(store))
    runs.run(job)
    return runs.work(job)
