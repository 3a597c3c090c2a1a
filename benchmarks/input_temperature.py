"""What of a variance should count in the input temperature: all of it, what is usual for such logits, or a share.

    python benchmarks/input_temperature.py --models DIR --data DIR --cache DIR [--settings sst2,mnli] [--seeds 0,1,2]

Reads what benchmarks/evidence.py has kept in --cache, and computes what is missing. First table: NLL less that of
temperature scaling, in domain and on the shifted set, with the share fixed and learned, the mean over seeds. Second
table: the same in domain for few calibration rows, drawn at random, for `distilled` on SST-2.
"""

import argparse
from pathlib import Path

import numpy as np

from evidence import METRICS, SETTINGS, Bench, Setting, outputs
from uatlite.errors import CalibrationError
from uatlite.predictive import PassLogits
from uatlite.trust import calibrators
from uatlite.trust.calibrators import SHARES, InputTemperature, Temperature

FIXED = (0.0, 0.5, 1.0)
ROWS = (30, 60, 200, 500)
DRAWS = 40


def fitted(passes: PassLogits, labels: np.ndarray, shares: tuple[float, ...]) -> InputTemperature:
    """An input temperature that may choose among these shares only."""
    calibrators.SHARES = shares
    try:
        return InputTemperature.fit(passes.mean_logits, labels, passes.margin_variance)
    finally:
        calibrators.SHARES = SHARES


def loss(calibrator: InputTemperature | Temperature, passes: PassLogits, labels: np.ndarray) -> float:
    return METRICS["NLL"](calibrator.probabilities(passes.mean_logits, passes.margin_variance), labels)


def share_lines(bench: Bench, name: str, seeds: list[int], methods: list[str]) -> list[str]:
    setting, lines = SETTINGS[name], []
    for method in methods:
        cells: dict[tuple[str, str], list[float]] = {}
        chosen = []
        for seed in (seed for seed in seeds if bench.has(setting.task, seed)):
            said = outputs(bench, setting, seed, method)
            home = said("calibration")
            plain = Temperature.fit(home.passes.mean_logits, home.labels)
            kinds = {f"{share:g}": fitted(home.passes, home.labels, (share,)) for share in FIXED}
            kinds["learned"] = fitted(home.passes, home.labels, SHARES)
            chosen.append(f"{kinds['learned'].share:g}" if kinds["learned"].widening else "–")
            for which in ("test", "shift"):
                if getattr(setting, which) is None:
                    continue
                away = said(which)
                for kind, one in kinds.items():
                    gap = loss(one, away.passes, away.labels) - loss(plain, away.passes, away.labels)
                    cells.setdefault((which, kind), []).append(gap)
        if not chosen:
            continue
        order = [(which, kind) for which in ("test", "shift") for kind in (*map("{:g}".format, FIXED), "learned")]
        shown = [f"{np.mean(cells[key]):+.4f}" if key in cells else "" for key in order]
        lines.append(f"| {name} | {method} | {' | '.join(shown)} | {', '.join(chosen)} |")
    return lines


def few_rows_lines(bench: Bench, setting: Setting, seed: int, method: str) -> list[str]:
    said = outputs(bench, setting, seed, method)
    home, away = said("calibration"), said("test")
    lines, variance = [], home.passes.margin_variance
    assert variance is not None
    for count in ROWS:
        rng, gaps = np.random.default_rng(count), []
        while len(gaps) < DRAWS:
            rows = rng.permutation(len(home.labels))[:count]
            logits, labels = home.passes.mean_logits[rows], home.labels[rows]
            try:
                plain = Temperature.fit(logits, labels)
                ours = InputTemperature.fit(logits, labels, variance[rows])
            except CalibrationError:  # rows of one class
                continue
            gaps.append(loss(ours, away.passes, away.labels) - loss(plain, away.passes, away.labels))
        lines.append(f"| {count} | {np.mean(gaps):+.4f} | {max(gaps):+.4f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="directory of the tasks' files; by default UATLITE_DATA")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--methods", default="distilled,analytic")
    options = parser.parse_args()
    bench = Bench(options.models, options.data, options.cache)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    columns = [f"b = {share:g}" for share in FIXED]
    print(f"| setting | method | in domain: {' | '.join(columns)} | learned | shifted: {' | '.join(columns)} | learned "
          "| b learned, by seed |")  # fmt: skip
    print("|---|---|" + "--:|" * 8 + "---|")
    for name in options.settings.split(","):
        for line in share_lines(bench, name, seeds, options.methods.split(",")):
            print(line, flush=True)
    print("\n| calibration rows | NLL less temperature scaling's, mean of draws | worst draw |\n|--:|--:|--:|")
    for line in few_rows_lines(bench, SETTINGS["sst2"], seeds[0], "distilled"):
        print(line, flush=True)


if __name__ == "__main__":
    main()
