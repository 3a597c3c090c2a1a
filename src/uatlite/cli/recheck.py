"""Keeping the promise: rows to label, whether it still holds by their labels, and the versions of a classifier."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, echo

from uatlite.cli import options as shared
from uatlite.values import counted


def pick(
    scored: Annotated[str, Argument(help="Rows that 'uatlite predict' scored, with the text (--keep-text).")],
    output: Annotated[Path, Option("--output", "-o", help="Rows to label: JSONL, CSV or Parquet, by extension.")],
    budget: Annotated[int, Option(help="How many rows to label.")] = 100,
    random_share: Annotated[
        float, Option(help="Share drawn at random from the answers; the others are doubtful or out of scope.")
    ] = 0.75,
    of: Annotated[str, Option(help="What is drawn from at random: answers, or all rows.")] = "answers",
    errors: Annotated[
        bool, Option("--errors", help="Instead: rows of a labelled file that are probably mislabelled.")
    ] = False,
    label: Annotated[str, shared.in_columns(help="Column of the given label, for --errors.")] = "input_label",
    seed: Annotated[int, Option(help="Seed of the draw.")] = 0,
    show_prediction: Annotated[
        bool, Option("--show-prediction", help="Also write label and confidence; who sees them agrees too often.")
    ] = False,
    text: shared.KnownText = None,
    text_pair: shared.PairColumn = None,
    options: shared.Options = None,
    id: Annotated[str, shared.in_columns(help="Column of the id.")] = "id",
    format: shared.Format = None,
) -> None:
    """Choose rows to label: answers at random with known probabilities, and rows whose labels help most."""
    from uatlite.scoring import pick as picking
    from uatlite.scoring.mislabelled import suspects
    from uatlite.text.write import write_rows

    console = shared.messages()
    if errors:
        suspected = suspects(scored, label, format=format)
        write_rows(output, suspected)
        console.print(f"Wrote {output}: {counted(len(suspected))} probably mislabelled, the surest first.")
        return
    asked = {"text": text, "pair": text_pair, "options": options}
    rows = picking.read_candidates(scored, asked, id=id, format=format)
    picked = picking.pick(rows, budget, random_share=random_share, of=of, seed=seed)
    write_rows(output, (row.as_row(predicted=show_prediction) for row in picked))
    console.print(*picking.describe(picked, len(rows)), sep="\n")
    console.print(f"Wrote {output}. Fill the column label, then: uatlite recheck DIR {output}")


def recheck(
    directory: Annotated[Path, Argument(help="Directory of the calibrated classifier.")],
    labelled: Annotated[str, Argument(help=f"Rows of today with labels, as pick chose them. {shared.INPUT_HELP}")],
    update: Annotated[
        bool, Option("--update", help="Make a new promise from these rows: a new version beside the old one.")
    ] = False,
    target_risk: Annotated[
        float | None, Option(help="Check this risk instead of the promised one; with --update, promise it.")
    ] = None,
    scored: Annotated[
        str | None, Option(help="Scored rows of today, unlabelled: where a search starts, and what shift is told by.")
    ] = None,
    seed: Annotated[int, Option(help="Seed of folds and splits.")] = 0,
    strict: shared.Strict = False,
    text: shared.KnownText = None,
    text_pair: shared.PairColumn = None,
    options: shared.Options = None,
    label: shared.KnownLabel = None,
    embeddings: shared.Embeddings = None,
    format: shared.Format = None,
    device: shared.Device = "auto",
) -> None:
    """Tell whether the promise still holds, by labels of today; with --update, make a new one: exit code 5 if it would
    answer less than half as much, and is not put in use."""
    from uatlite.classifier import recheck as checking
    from uatlite.classifier.classifiers import load
    from uatlite.classifier.saving import write_version
    from uatlite.scoring.pick import current_scores, inclusion_of
    from uatlite.scoring.source import Source

    console = shared.messages()
    classifier = load(directory, device=device)
    asked = {"text": text, "pair": text_pair, "options": options, "label": label}
    rows = Source(labelled, format=format, embeddings=embeddings).labelled_for(
        classifier, asked, strict=strict, filled=True
    )
    with console.status(f"Scoring {counted(len(rows.texts))} …"):
        now = checking.read_now(classifier, rows.texts, rows.gold, inclusion_of(rows.meta))
    calibration = classifier.calibration_
    assert calibration is not None
    first, *others = calibration.rules
    checks = [checking.recheck(now, first, target=target_risk), *(checking.recheck(now, rule) for rule in others)]
    results = [line for check in checks for line in check.describe()]
    out = counted(len(rows.rejects))
    said = [f"{out} left out; the first: line {reject.line}, {reject.reason}." for reject in rows.rejects[:1]]
    said += results
    if not update:
        console.print(*said, sep="\n")
        return
    current = None if scored is None else current_scores(scored, now.predictions.text_score(first.score))
    new = checking.update(calibration, now, target=target_risk, current_scores=current, seed=seed)
    classifier.calibration_ = new
    poorer = checking.poorer(new, calibration, answers_only=now.answers_only)
    made = write_version(classifier, directory, results[1], use=not poorer)
    use = f"uatlite history {directory} --use"
    if poorer:
        refused = f"Version {made.number} is not put in use: {poorer} Take it anyway: {use} {made.number}"
        console.print(refused, style=shared.WARNING)
    console.print(*said, *(line for line in new.describe() if line not in poorer), made.describe(), sep="\n")
    if poorer:
        console.print(f"Version {made.parent} stays in use.")
        raise Exit(shared.NO_PROMISE)
    console.print(f"Version {made.number} is in use; go back with: {use} {made.parent}")


def history(
    directory: Annotated[Path, Argument(help="Directory of the calibrated classifier.")],
    use: Annotated[int | None, Option(help="Go back to the version of this number.")] = None,
) -> None:
    """List the versions of a classifier, or go back to one; nothing is overwritten."""
    from uatlite.classifier import saving

    if use is not None:
        saving.use_version(directory, use)
    for version in saving.history(directory):
        echo(version.describe())
    echo(f"Version {saving.version_in_use(directory)} is in use.")
