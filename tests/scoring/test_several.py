"""Files with several answers a text, entities or labels, are scored as others are: streamed, resumed, with rejects."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from uatlite.classifier.classifiers import UncertaintyTagger, load
from uatlite.errors import DataError
from uatlite.scoring.job import Job, Tally
from uatlite.scoring.run import score_file
from uatlite.text.schema import Layout

LAYOUTS = {"entities": Layout(text="tokens", label=None, gold="tags"), "labels": Layout(label=None)}
REASONS = {
    "entities": ["column 'tokens'", "column 'tokens'", "broken JSON"],
    "labels": ["no text", "holds a int", "broken JSON"],
}
Rows = Callable[..., Path]


@pytest.mark.parametrize("kind", LAYOUTS)
def test_rows_that_cannot_be_scored_are_set_aside_with_line_and_reason(
    kind: str, several: dict[str, Path], several_rows: Rows, tmp_path: Path
) -> None:
    product, source = load(several[kind]), several_rows(kind, 20)
    job = Job(str(source), tmp_path / "out.jsonl", LAYOUTS[kind])
    summary = score_file(product, job)
    assert (summary.rows, summary.rejected) == (20, 3)
    rejects = [json.loads(line) for line in job.rejects_path.read_text().splitlines()]
    assert [reject["line"] for reject in rejects] == [6, 7, 8]
    for reject, part in zip(rejects, REASONS[kind], strict=True):
        assert part in reject["reason"]
    with pytest.raises(DataError, match="line 6"):
        score_file(product, Job(str(source), tmp_path / "strict.jsonl", LAYOUTS[kind], strict=True))
    assert not (tmp_path / "strict.jsonl").exists()


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_resumed_run_gives_the_same_bytes(
    kind: str, suffix: str, several: dict[str, Path], several_rows: Rows, tmp_path: Path, small_blocks: int
) -> None:
    product, source = load(several[kind]), str(several_rows(kind, 3 * small_blocks))
    whole, killed = (Job(source, tmp_path / f"{name}.{suffix}", LAYOUTS[kind]) for name in ("whole", "killed"))
    score_file(product, whole)

    def stop(progress: Tally) -> None:
        if progress.seen >= 2 * small_blocks:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_file(product, killed, stop)
    assert not killed.output.exists()
    seen: list[Tally] = []
    score_file(product, Job(source, killed.output, LAYOUTS[kind], resume=True), seen.append)
    assert max(progress.resumed for progress in seen) > 0
    assert killed.output.read_bytes() == whole.output.read_bytes()
    assert killed.rejects_path.read_bytes() == whole.rejects_path.read_bytes()


def test_a_rule_for_recall_alone_counts_as_a_rule(several: dict[str, Path], several_rows: Rows, tmp_path: Path) -> None:
    tagger = UncertaintyTagger.from_pretrained(several["entities"])
    texts = [
        json.loads(line)["tokens"] for line in several_rows("entities", 80).read_text().splitlines() if "id" in line
    ]
    found = tagger.predict(texts, check_shift=False)
    tagger.calibrate(texts, [[(e.start, e.end, e.label) for e in one.entities] for one in found], target_recall=0.3)
    job = Job(str(several_rows("entities", 20)), tmp_path / "out.jsonl", LAYOUTS["entities"])
    summary = score_file(tagger, job)
    rows = [json.loads(line) for line in job.output.read_text().splitlines()]
    assert summary.abstained == sum(row["abstain"] for row in rows)
    assert "abstained (" in summary.describe()[0]
    assert summary.promise is not None
    assert summary.promised is True
