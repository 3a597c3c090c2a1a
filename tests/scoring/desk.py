"""A desk: a model of a kind, a directory, and what tests of scoring do with them."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pytest

from uatlite.classifier.classifiers import load
from uatlite.scoring.job import Job
from uatlite.scoring.run import score_file
from uatlite.text.rows import read_rows
from uatlite.text.schema import Layout

LAYOUTS = {"one": Layout(label=None), "entities": Layout(text="tokens", label=None, gold="tags")}
LAYOUTS["labels"] = LAYOUTS["one"]


class Stop(Exception):
    """What a test interrupts a run with."""


@dataclass(frozen=True)
class Desk:
    """A model of a kind, a directory, and what is done with them: rows are written, scored and read."""

    kind: str
    model: Path
    directory: Path
    made_texts: Callable[..., list[str]]

    @cached_property
    def classifier(self):
        """The model, loaded."""
        return load(self.model)

    def rows(self, texts, name="in.jsonl", **columns):
        """A JSONL file of texts, or of so many random ones, with ids r0, r1, … and other columns."""
        made = self.made_texts(texts) if isinstance(texts, int) else texts
        field, of = ("tokens", str.split) if self.kind == "entities" else ("text", str)
        others = zip(*columns.values(), strict=True) if columns else [()] * len(made)
        rows = [
            {"id": f"r{i}", field: of(text), **dict(zip(columns, other, strict=True))}
            for i, (text, other) in enumerate(zip(made, others, strict=True))
        ]
        return self.lines([json.dumps(row) for row in rows], name)

    def lines(self, lines, name="in.jsonl"):
        """A file of these lines."""
        path = self.directory / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def job(self, source, output="out.jsonl", *keep, **options):
        """A job over a file, which keeps some columns."""
        return Job(str(source), self.directory / output, replace(LAYOUTS[self.kind], meta=keep), **options)

    def run(self, job):
        """The summary of a job that was run."""
        return score_file(self.classifier, job)

    def score(self, source, output="out.jsonl", *keep, **options):
        """The same, from its parts."""
        return self.run(self.job(source, output, *keep, **options))

    def seen(self, job):
        """The counts after each block of a job."""
        seen = []
        score_file(self.classifier, job, seen.append)
        return seen

    def interrupted(self, job, after):
        """Run a job and stop it once so many rows were seen."""

        def stop(tally):
            if tally.seen >= after:
                raise Stop

        with pytest.raises(Stop):
            score_file(self.classifier, job, stop)

    def output(self, name="out.jsonl"):
        """The rows of a file that was written."""
        return [dict(row.values) for row in read_rows(self.directory / name)]

    def bytes(self, name):
        """What a file holds."""
        return (self.directory / name).read_bytes()

    @property
    def names(self):
        """The names of the files in the directory."""
        return sorted(path.name for path in self.directory.iterdir())
