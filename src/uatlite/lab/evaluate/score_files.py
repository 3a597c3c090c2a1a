"""Several files of scores of the same task: which of my models, at which promise?

Each file is calibrated as `uatlite calibrate --scores` does; what its labelled rows can promise is its menu.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

from uatlite.classifier.record import Calibration
from uatlite.errors import StoreError
from uatlite.scoring.source import Source, of_scores
from uatlite.text.write import make_directory, write_text
from uatlite.trust.rule import RiskLine


def compare_files(files: Sequence[str], output: Path, label: str | None, *, overwrite: bool = False) -> list[str]:
    """The files side by side, as lines of a Markdown table, which is also written into a directory."""
    if (output / "scores.md").exists() and not overwrite:
        raise StoreError(f"{output} holds a comparison of scores; give another directory, or --overwrite.")
    records = {name: _calibrated(name, label) for name in dict.fromkeys(files)}
    table = [["", *(Path(name).name for name in records)], ["---"] * (1 + len(records))]
    measured = [record.figures.table() if record.figures else [] for record in records.values()]
    for rows in list(zip(*measured, strict=False))[1:]:  # without the header
        table.append([rows[0][0], *(f"{before} → {after}" for _, before, after in rows)])
    for lines in zip(*(record.menu.lines for record in records.values() if record.menu), strict=False):
        table.append([f"answered at a promised risk of {lines[0].target:.0%}", *map(_answered, lines)])
    said = [f"| {' | '.join(cells)} |" for cells in table]
    said += [f"\n{name}: {record.ties}" for name, record in records.items() if record.ties]
    make_directory(output)
    write_text(output / "scores.md", "\n".join(said) + "\n")
    return said


def _calibrated(name: str, label: str | None) -> Calibration:
    source = Source(name)
    classifier = of_scores(source, label)
    rows = source.labelled_for(classifier, {"label": label})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # is said below the table
        calibration = classifier.calibrate(rows.texts, rows.gold).calibration_
    assert calibration is not None
    return calibration


def _answered(line: RiskLine) -> str:
    low, high = (0.0, 0.0) if line.rule is None else line.rule.coverage_interval
    return "no promise" if line.rule is None else f"{line.rule.coverage:.1%} ({low:.1%} to {high:.1%})"
