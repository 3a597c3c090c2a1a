"""Whole files: rows in, rows out, in bounded memory, each row exactly once even if a run is killed and resumed."""

from uatlite.scoring.job import Job, Progress, Summary
from uatlite.scoring.run import score_file

__all__ = ["Job", "Progress", "Summary", "score_file"]
