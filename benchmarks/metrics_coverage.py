"""How often 95 % bootstrap intervals hold the true value of a simulated classifier.

    python benchmarks/metrics_coverage.py [--sets 2000] [--rows 1000] [--resamples 1000]

A classifier of three classes gives softmax(z), z normal with deviation 2; the label is drawn from softmax(z / T).
At T = 1 it is perfectly calibrated, at T = 2 overconfident. The true value of each metric is that of 4 million rows,
and for the calibration errors of their label *probabilities* instead of drawn labels, so that it has no upward bias.
A share of 95 % of 500 sets has a standard error of 1 point; of 2,000 sets, half a point. Prints Markdown, with the
share of the first 500 sets beside that of all.
"""

import argparse

import numpy as np

from uatlite.metrics.intervals import METRICS, Resampling, intervals, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.predictive import softmax

SETTINGS = {"well calibrated": 1.0, "slightly overconfident": 1.2, "overconfident": 2.0}
NAMES = ["accuracy", "nll", "brier", "aurc", "ece", "debiased_ece"]
BLOCKS, BLOCK = 16, 250_000


def simulate(rows, temperature, generator):
    """Probabilities given, probabilities true (rows, classes), and labels drawn from the true ones (rows,)."""
    logits = 2 * generator.normal(size=(rows, 3))
    given, true = softmax(logits), softmax(logits / temperature)
    labels = (true.cumsum(axis=1) < generator.random((rows, 1))).sum(axis=1)
    return given, true, np.minimum(labels, 2)


def true_values(temperature):
    """Each metric in the population."""
    generator = np.random.default_rng(2026)
    values = {name: [] for name in NAMES[:4]}
    gaps = np.zeros(15)
    for _ in range(BLOCKS):
        given, true, labels = simulate(BLOCK, temperature, generator)
        for name, found in values.items():
            found.append(METRICS[name](given, labels))
        confidence = given.max(axis=1)
        gap = confidence - np.take_along_axis(true, given.argmax(axis=1)[:, None], axis=1)[:, 0]
        gaps += np.bincount(np.ceil(confidence * 15).astype(int) - 1, weights=gap, minlength=15)
    calibration = float(np.abs(gaps).sum() / (BLOCKS * BLOCK))
    return {name: float(np.mean(found)) for name, found in values.items()} | dict.fromkeys(NAMES[4:], calibration)


def measure(temperature, *, sets, rows, resamples, truth):
    """For each metric: the points (sets,), and whether each interval holds the truth (sets,)."""
    points, hits = {name: [] for name in NAMES}, {name: [] for name in NAMES}
    for seed in range(sets):
        # A stream of its own: from the same one, the resamples would depend on the rows.
        given, _, labels = simulate(rows, temperature, np.random.default_rng([round(10 * temperature), seed]))
        estimates = metric_estimates(Rows.of(given, labels), NAMES)
        for name, interval in intervals(estimates, Resampling(resamples, seed=seed)).items():
            points[name].append(interval.point)
            # The true error of a calibrated classifier is 0 up to rounding, and so is the end of its interval.
            hits[name].append(not interval.excludes(truth[name] if truth[name] > 1e-9 else 0.0))
    return points, hits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=1000)
    options = vars(parser.parse_args())
    print("{sets} sets of {rows} rows, {resamples} resamples each.\n".format(**options))
    print(
        "| setting | metric | true value | mean estimate | coverage | of the first 500 |\n|---|---|---:|---:|---:|---:|"
    )
    for setting, temperature in SETTINGS.items():
        truth = true_values(temperature)
        points, hits = measure(temperature, truth=truth, **options)
        for name in NAMES:
            shares = [f"{100 * np.mean(held):.1f} %" for held in (hits[name], hits[name][:500])]
            values = [f"{truth[name]:.4f}", f"{np.mean(points[name]):.4f}", *shares]
            print(f"| {setting} | {name} | " + " | ".join(values) + " |", flush=True)


if __name__ == "__main__":
    main()
