"""What of a variance should count in the input temperature: all of it, what is usual for such logits, or a share.

    python benchmarks/input_temperature.py --models DIR --data DIR --cache DIR [--settings sst2,mnli] [--seeds 0,1,2]

Reads what benchmarks/evidence.py has kept in --cache, and computes what is missing. First table: NLL less that of
temperature scaling, in domain and on the shifted set, with the share fixed and learned, the mean over seeds. Second
table: the same in domain for few calibration rows, drawn at random, for `distilled` on SST-2.
"""

from collections import defaultdict

import numpy as np

from evidence import SETTINGS, Bench, Said
from harness import head, line, numbers, parser_of_models
from uatlite.errors import CalibrationError
from uatlite.metrics.accuracy import nll
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


def gap(ours: InputTemperature, plain: Temperature, said: Said) -> float:
    """The NLL of an input temperature less that of temperature scaling."""
    passes = said.passes
    losses = [
        nll(calibrator.probabilities(passes.mean_logits, passes.margin_variance), said.labels)
        for calibrator in (ours, plain)
    ]
    return losses[0] - losses[1]


def share_line(bench: Bench, name: str, seeds: list[int], method: str) -> None:
    setting, chosen = SETTINGS[name], []
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    for seed in (seed for seed in seeds if bench.has(setting.task, seed)):
        said = bench.outputs(setting, seed, method)
        home, labels = said("calibration").passes, said("calibration").labels
        plain = Temperature.fit(home.mean_logits, labels)
        kinds = {f"{share:g}": fitted(home, labels, (share,)) for share in FIXED}
        kinds["learned"] = fitted(home, labels, SHARES)
        chosen.append(f"{kinds['learned'].share:g}" if kinds["learned"].widening else "–")
        for which in (which for which in ("test", "shift") if getattr(setting, which) is not None):
            for kind, calibrator in kinds.items():
                cells[which, kind].append(gap(calibrator, plain, said(which)))
    if chosen:
        order = [(which, kind) for which in ("test", "shift") for kind in (*map("{:g}".format, FIXED), "learned")]
        means = [f"{np.mean(cells[key]):+.4f}" if key in cells else "" for key in order]
        line(name, method, *means, ", ".join(chosen))


def few_rows_lines(bench: Bench, seed: int, method: str) -> None:
    said = bench.outputs(SETTINGS["sst2"], seed, method)
    home, away = said("calibration"), said("test")
    logits, variance = home.passes.mean_logits, home.passes.margin_variance
    assert variance is not None
    for count in ROWS:
        rng, gaps = np.random.default_rng(count), []
        while len(gaps) < DRAWS:
            rows = rng.permutation(len(home.labels))[:count]
            try:
                plain = Temperature.fit(logits[rows], home.labels[rows])
                ours = InputTemperature.fit(logits[rows], home.labels[rows], variance[rows])
            except CalibrationError:  # rows of one class
                continue
            gaps.append(gap(ours, plain, away))
        line(count, f"{np.mean(gaps):+.4f}", f"{max(gaps):+.4f}")


def main() -> None:
    parser = parser_of_models(__doc__, cache=True, settings=",".join(SETTINGS), seeds="0,1,2")
    parser.add_argument("--methods", default="distilled,analytic")
    options = parser.parse_args()
    bench, seeds = Bench(options.models, options.data, options.cache), numbers(options.seeds)
    columns = [f"b = {share:g}" for share in FIXED]
    columns = [f"in domain: {columns[0]}", *columns[1:], "learned", f"shifted: {columns[0]}", *columns[1:], "learned"]
    head("setting", "method", *columns, "b learned, by seed", left=2)
    for name in options.settings.split(","):
        for method in options.methods.split(","):
            share_line(bench, name, seeds, method)
    head("calibration rows", "NLL less temperature scaling's, mean of draws", "worst draw", left=0)
    few_rows_lines(bench, seeds[0], "distilled")


if __name__ == "__main__":
    main()
