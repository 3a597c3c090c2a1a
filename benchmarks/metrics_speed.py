"""Time of 1,000 resamples of 10,000 rows for all metrics, by counts and by drawing rows.

    OPENBLAS_NUM_THREADS=1 python benchmarks/metrics_speed.py
        [--rows 10000] [--resamples 1000] [--classes 3] [--loop 10]

The plain loop draws rows with replacement and calls each metric on them, as one writes it at first; it runs for
`--loop` resamples and is scaled up. Every metric's statistic is the same code in both, so the ratio says what counting
saves: it does not flatter us with a slower metric. CPU seconds, which with one thread on an idle machine are seconds
of waiting. Prints Markdown.
"""

import argparse
import time

import numpy as np

from uatlite.metrics.intervals import METRICS, Resampling, intervals, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.predictive import softmax


def seconds(run):
    """CPU time of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, default in (("rows", 10_000), ("resamples", 1000), ("classes", 3), ("loop", 10)):
        parser.add_argument(f"--{option}", type=int, default=default)
    given = parser.parse_args()
    generator = np.random.default_rng(0)
    probabilities = softmax(2 * generator.normal(size=(given.rows, given.classes)))
    labels = (probabilities.cumsum(axis=1) < generator.random((given.rows, 1))).sum(axis=1)
    labels = np.minimum(labels, given.classes - 1)

    def by_rows(metrics):
        for _ in range(given.loop):
            drawn = generator.integers(given.rows, size=given.rows)
            for metric in metrics.values():
                metric(probabilities[drawn], labels[drawn])

    def compare(metrics):
        counted = seconds(lambda: intervals(metric_estimates(rows, metrics), Resampling(given.resamples)))
        return counted, seconds(lambda: by_rows(metrics)) * given.resamples / given.loop

    rows = Rows.of(probabilities, labels)
    intervals(metric_estimates(rows), Resampling(2))  # warm the BLAS threads and the cosines
    print("| metric | by counts, s | by rows, s | ratio |\n|---|---:|---:|---:|")
    for name, metric in {"all": None, **METRICS}.items():
        counted, looped = compare(METRICS if metric is None else {name: metric})
        title = f"all {len(METRICS)} metrics" if metric is None else name
        print(f"| {title} | {counted:.2f} | {looped:.1f} | {looped / counted:.0f}× |", flush=True)


if __name__ == "__main__":
    main()
