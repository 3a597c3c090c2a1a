"""What a user's own model costs on a user's own texts: contenders that take turns, cost ratios, how they grow."""

from uatlite.bench.results import Results
from uatlite.bench.run import Plan, run_bench

__all__ = ["Plan", "Results", "run_bench"]
