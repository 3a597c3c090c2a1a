"""A worker by itself, without Ray: the blocks that it makes parts, and what it refuses."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.errors import ConfigurationError, DataError, ModelError, StoreError
from uatlite.scoring.blocks import Block
from uatlite.scoring.job import Job
from uatlite.scoring.run import Run
from uatlite.values import Example

REASON = "ray is not installed, so scoring on a cluster is NOT tested: pip install 'uatlite[ray]'"
scoring = pytest.importorskip("uatlite.scoring.on_ray", reason=REASON)
pa = pytest.importorskip("pyarrow")

Load = Callable[[], UncertaintyClassifier]


@pytest.fixture
def load(saved: Path) -> Load:
    return partial(UncertaintyClassifier.from_pretrained, str(saved))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(str(tmp_path / "in.jsonl"), tmp_path / "out.jsonl")


def handed(scorer: object, *texts: str, number: int = 0) -> object:
    block = Block(number, 0, tuple(Example(f"r{place}", text) for place, text in enumerate(texts)))
    answer = scorer(pa.table({scoring.BLOCK: [pickle.dumps(block)]}))  # type: ignore[operator]
    return pickle.loads(answer[scoring.SCORED][0].as_py())


def test_a_block_handed_out_twice_is_one_part(load: Load, job: Job) -> None:
    run = Run(load(), job)
    scorer = scoring.Scorer(load, job, job.describe(load()))
    first = handed(scorer, "a1 a2", "a3")
    part = run.parts.path(0).read_bytes()
    again = handed(scorer, "a1 a2", "a3")
    assert (first.counts, first.resumed, again.resumed) == (again.counts, False, True)  # type: ignore[attr-defined]
    assert first.glimpse.places.tolist() == [0, 1]  # type: ignore[attr-defined]
    assert run.parts.path(0).read_bytes() == part
    with pytest.raises(StoreError, match="is not what it was"):
        handed(scorer, "a1 a2", "a4")


def test_a_worker_writes_only_where_its_own_run_is(load: Load, job: Job) -> None:
    scorer = scoring.Scorer(load, job, job.describe(load()))
    with pytest.raises(DataError, match=r"out\.jsonl\.unfinished is not on .* a file system that driver and workers"):
        handed(scorer, "a1")
    Run(load(), replace(job, input="other.jsonl"))  # a later run has taken the place
    with pytest.raises(DataError, match="is of another run"):
        handed(scorer, "a1")


def test_another_model_under_the_same_name_is_refused(load: Load, job: Job) -> None:
    described = job.describe(load()) | {"model": "0" * 64}
    with pytest.raises(ModelError, match=r"another classifier was loaded than on the driver: model differ"):
        scoring.Scorer(load, job, described)


def test_standard_input_stays_with_the_local_engine(load: Load, job: Job) -> None:
    with pytest.raises(ConfigurationError, match="Standard input cannot be read by other machines"):
        scoring.score_file(load, replace(job, input="-"), None)
