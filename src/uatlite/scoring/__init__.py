"""Whole files: rows in, rows out, in bounded memory, each row exactly once even if a run is killed and resumed."""

from uatlite.scoring.job import Job, Summary, Tally
from uatlite.scoring.run import score_file

__all__ = ["Job", "Summary", "Tally", "score_file"]
