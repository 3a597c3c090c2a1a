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
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from uatlite.classifier.classifiers import UncertaintyLabeler, UncertaintyTagger
from uatlite.classifier.classifiers import load as load_product
from uatlite.classifier.record import Calibration
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.models import Sets, absolute
from uatlite.lab.evaluate.outcomes import (
    OUTCOMES,
    AnswerOutcome,
    AnswerScores,
    GoldRows,
    JudgedAnswers,
    PromiseCheck,
    check_promise,
)
from uatlite.lab.evaluate.plan import Contender, Plan
from uatlite.lab.evaluate.results import Answers, SetFacts
from uatlite.lab.evaluate.runs import BASE_METHOD, Job, Model, Remote, Runs, nothing
from uatlite.lab.evaluate.store import FEWEST_ROWS, PIECES, Arrays, Store, kept_arrays
from uatlite.methods.registry import method_to_dict
from uatlite.metrics.intervals import Estimates, Resampling
from uatlite.model.load import Checkpoint
from uatlite.text.write import Pieces

SeveralProduct = UncertaintyTagger | UncertaintyLabeler


class GivenProduct(Sets):
    """The source of an evaluation of several answers a text: a model, and the sets of a plan."""

    def __init__(self, product: SeveralProduct, name: str, plan: Plan) -> None:
        super().__init__(plan, name, product.runtime.hash)
        self.product = product

    @property
    def elsewhere(self) -> "Callable[[], GivenProduct]":
        return partial(load_source, absolute(self.name), self.name, self.plan)

    @property
    def scores(self) -> AnswerScores:
        """What is scored of the answers, and how."""
        scores = OUTCOMES[self.product.kind.name]
        assert isinstance(scores, AnswerScores)
        return scores

    def load(self, model: Model) -> Checkpoint:
        return Checkpoint(self.name, self.product.model, self.product.tokenizer)


def load_source(path: str, name: str, plan: Plan) -> GivenProduct:
    """The source of an evaluation on another machine that sees the same files."""
    product: Any = load_product(path, method=BASE_METHOD, calibrated=False)
    return GivenProduct(product, name, plan)


class AnswerRuns(Runs):
    """The stored runs of an evaluation of several answers a text. The rows of an outcome are answers."""

    source: GivenProduct

    def __init__(self, source: GivenProduct, store: Store, remote: Remote | None = None) -> None:
        super().__init__(source, store, remote)
        self._answers: dict[Job, JudgedAnswers] = {}
        self._ready: dict[Job, SeveralProduct] = {}
        self.gold = lru_cache(maxsize=12)(self._gold)

    def jobs(self, cell: CellSpec) -> list[Job]:
        """A cell's contender on its rows, for each seed."""
        return [replace(job, contender=cell.contender) for job in super().jobs(cell)]

    def fill(self, job: Job, advance: Callable[[int], None] = nothing) -> None:
        self.run(job, advance)

    def _compute_remotely(self, jobs: Sequence[Job], advance: Callable[[float], None]) -> None:
        if self._remote is not None:
            here = self.source.elsewhere, self.store.directory.absolute()
            missing = [job for job in jobs if not self._pieces(job).finished]
            self._remote.run([partial(compute_elsewhere, *here, job) for job in missing], advance)

    def run(self, job: Job, advance: Callable[[int], None] = nothing) -> JudgedAnswers:
        """What is said in a job; only pieces that the store does not have are computed."""
        if job not in self._answers:
            pieces, rows, parts = self._pieces(job), self.gold(job), []
            if not pieces.begun:
                pieces.begin(self._record(job))
            size = max(FEWEST_ROWS, -(-len(rows.texts) // PIECES))
            for number, start in enumerate(range(0, len(rows.texts), size)):
                say = partial(self._say, job, rows, slice(start, start + size))
                parts.append(JudgedAnswers(**kept_arrays(pieces, f"piece-{number:05}.npz", say)))
                advance(len(parts[-1].passes))
            if not pieces.finished:
                pieces.finish({"texts": len(rows.texts), "pieces": len(parts)})
            self._answers[job] = JudgedAnswers.joined(parts)
        return self._answers[job]

    def _say(self, job: Job, rows: GoldRows, some: slice) -> Arrays:
        """What the contender says about some texts."""
        product, begun = self.ready(job), time.perf_counter()
        said = product.predict(rows.texts[some], check_shift=False)
        seconds = time.perf_counter() - begun
        gold = product.kind.gold(rows.gold[some], said.texts, said.classes)
        return vars(JudgedAnswers.of(said, gold, self.source.scores, contender_of(job).name == BASE_METHOD, seconds))

    def _record(self, job: Job) -> dict[str, Any]:
        """What determines the answers of a job."""
        home = self.dataset(job.home).fingerprint if contender_of(job).calibrated else None
        plan = self.source.plan
        return {
            "model": self.source.hash, "data": self.dataset(job).fingerprint, "calibration": home,
            "method": method_to_dict(job.method), "calibrator": contender_of(job).calibrator, "target": plan.target,
            "seed": job.seed, "max_length": plan.max_length, "uatlite": version("uatlite"),
            "columns": [field.name for field in fields(JudgedAnswers)],
        }  # fmt: skip

    def _pieces(self, job: Job) -> Pieces:
        key = hashlib.sha256(json.dumps(self._record(job), sort_keys=True).encode()).hexdigest()[:16]
        return Pieces(self.store.directory / f"answers={key}", record="_run.json", complete="_complete.json")

    def ready(self, job: Job) -> SeveralProduct:
        """The product with the contender's method, calibrated where the contender is."""
        key, product, plan = job.home, self.source.product, self.source.plan
        if key not in self._ready:
            made = type(product)(
                product.model, product.tokenizer, job.method, seed=job.seed, max_length=plan.max_length
            )
            if contender_of(job).calibrated:
                made.calibration_ = self._calibration(made, job.home)
            self._ready[key] = made
        return self._ready[key]

    def _calibration(self, product: SeveralProduct, home: Job) -> Calibration:
        """What a contender learns from the calibration rows; it is learned once, and kept with its answers to them."""
        pieces, name = self._pieces(home), "calibration.npz"
        learned = pieces.read(name, Calibration.read)
        if learned is None:
            rows, asked = self.gold(home), self.source.scores.promise(self.source.plan.target)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a rule that promises nothing says so in the results
                product.calibrate(rows.texts, rows.gold, **asked)  # type: ignore[arg-type]
            learned = product.calibration_
            assert learned is not None
            if not pieces.begun:
                pieces.begin(self._record(home))
            with pieces.write(name) as file:
                learned.write(file)
        return learned

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _gold(self, job: Job) -> GoldRows:
        return GoldRows.of(self.dataset(job), self.source.product.class_names)

    def estimates(self, cell: CellSpec) -> list[Estimates]:
        scores, said = self.source.scores, map(self.run, self.jobs(cell))
        return [scores.estimates(answers, answers.outcome(scores)) for answers in said]

    def answers(self, cells: Iterable[CellSpec]) -> Answers:
        """The answers of the first seed, which figures are of."""
        answers: dict[str, dict[str, AnswerOutcome]] = {}
        for cell in cells:
            job = self.jobs(cell)[0]
            answers.setdefault(job.set_name, {})[cell.contender.name] = self.run(job).outcome(self.source.scores)
        return answers

    def facts(self, cell: CellSpec) -> SetFacts:
        job = self.jobs(cell)[0]
        dataset, cut = self.dataset(job), self.run(job).cut
        return SetFacts(
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
        job, pairs = self.jobs(cell)[0], self.source.scores.pairs
        calibration = self.ready(job).calibration_
        if calibration is None or calibration.rule is None:
            return []
        return [check_promise(cell.contender.name, job.set_name, calibration.rule, self.run(job), pairs, how)]

    def cost(self, cell: CellSpec) -> tuple[float, float]:
        jobs = self.jobs(cell)
        seconds = np.concatenate([self.run(job).seconds for job in jobs]).mean()
        return float(self.ready(jobs[0]).method.cost), float(seconds)


def contender_of(job: Job) -> Contender:
    """Whose answers a job stores."""
    assert job.contender is not None
    return job.contender


def compute_elsewhere(source: Callable[[], GivenProduct], store: Path, job: Job) -> float:
    """Compute a run on another machine that sees the directory of the store; returns the work done, in passes."""
    runs = AnswerRuns(source(), Store(store))
    runs.run(job)
    return runs.work(job)
