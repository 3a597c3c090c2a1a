"""Keeping the promise: rows to label, whether it still holds by their labels, and the versions of a classifier."""

from pathlib import Path

from typer import echo

from uatlite.cli import options as shared


def pick(
    scored: str,
    output: Path,
    budget: int = 100,
    random_share: float = 0.75,
    of: str = "answers",
    errors: bool = False,
    label: str = "input_label",
    seed: int = 0,
    text: str | None = None,
    text_pair: str | None = None,
    options: str | None = None,
    id: str = "id",
    format: str | None = None,
) -> None:
    """Choose rows to label: answers at random with known probabilities, and rows whose labels help most."""
    from uatlite.scoring import pick as picking
    from uatlite.scoring.mislabelled import suspects
    from uatlite.text.write import write_rows

    console = shared.messages()
    if errors:
        suspected = suspects(scored, label, format=format)
        write_rows(output, suspected)
        console.print(f"Wrote {output}: {len(suspected):,} rows are probably mislabelled, the surest first.")
        return
    asked = {"text": text, "pair": text_pair, "options": options}
    rows = picking.read_candidates(scored, asked, id=id, format=format)
    picked = picking.pick(rows, budget, random_share=random_share, of=of, seed=seed)
    write_rows(output, (row.as_row() for row in picked))
    console.print(*picking.describe(picked, len(rows)), sep="\n")
    console.print(f"Wrote {output}. Fill the column label, then: uatlite recheck DIR {output}")


def recheck(
    directory: Path,
    labelled: str,
    update: bool = False,
    target_risk: float | None = None,
    scored: str | None = None,
    seed: int = 0,
    strict: bool = False,
    text: str | None = None,
    text_pair: str | None = None,
    options: str | None = None,
    label: str | None = None,
    format: str | None = None,
) -> None:
    """Tell whether the promise still holds, by labels of today; with --update, make a new one."""
    from uatlite.classifier import recheck as checking
    from uatlite.classifier.classifiers import load
    from uatlite.classifier.saving import write_version
    from uatlite.scoring.pick import current_scores, inclusion_of
    from uatlite.scoring.source import Source
    from uatlite.text.schema import Layout

    console = shared.messages()
    classifier = load(directory)
    asked = {"text": text, "pair": text_pair, "options": options, "label": label}
    source = Source(labelled, format=format)
    layout = Layout(label=None, codes=classifier.class_names, meta=("inclusion",))
    layout = source.gold_layout(source.layout(layout, asked, classifier.columns), classifier.kind.name)
    rows = source.labelled(layout, classifier.class_names, strict=strict, filled=True)
    with console.status(f"Scoring {len(rows.texts):,} rows …"):
        now = checking.read_now(classifier, rows.texts, rows.gold, inclusion_of(rows.meta))
    calibration = classifier.calibration_
    assert calibration is not None
    if rows.rejects:
        reject = rows.rejects[0]
        console.print(f"{len(rows.rejects):,} rows left out; the first: line {reject.line}, {reject.reason}.")
    first, *others = calibration.rules
    checks = [checking.recheck(now, first, target=target_risk), *(checking.recheck(now, rule) for rule in others)]
    said = [line for check in checks for line in check.describe()]
    console.print(*said, sep="\n")
    if not update:
        return
    current = None if scored is None else current_scores(scored, first.score)
    classifier.calibration_ = checking.update(calibration, now, target=target_risk, current_scores=current, seed=seed)
    made = write_version(classifier, directory, said[1])
    console.print(*classifier.calibration_.describe(), made.describe(), sep="\n")
    console.print(f"Version {made.number} is in use; go back with: uatlite history {directory} --use {made.parent}")


def history(
    directory: Path,
    use: int | None = None,
) -> None:
    """List the versions of a classifier, or go back to one; nothing is overwritten."""
    from uatlite.classifier import saving

    if use is not None:
        saving.use_version(directory, use)
    for version in saving.history(directory):
        echo(version.describe())
    echo(f"Version {saving.version_in_use(directory)} is in use.")
