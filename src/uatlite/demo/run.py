"""The demo, step by step. Each step leaves its result on the disk and is skipped where that is already there.

DIR/model/               the fine-tuned MiniLM-L6
    store/  results.*    the logits of every pass; scores as JSON, CSV and Markdown
    classifier/          the model with its calibration: what `uatlite predict` takes
    explanations.json    a few texts, word by word
    report.html figures/ the report
"""

import json
from dataclasses import dataclass
from pathlib import Path

from uatlite.backbone.loading import Checkpoint, load_checkpoint
from uatlite.classifier import UncertaintyClassifier
from uatlite.data.loading import load
from uatlite.demo.settings import Settings
from uatlite.experiments.contenders import parse_contender
from uatlite.experiments.plan import CALIBRATION, TEST
from uatlite.experiments.results import Results
from uatlite.experiments.store import Store
from uatlite.experiments.suite import Watch, evaluate
from uatlite.report.abstention import abstain
from uatlite.report.build import build_report
from uatlite.report.evaluation import open_evaluation
from uatlite.report.explaining import explain_least_sure
from uatlite.report.explanations import FILE
from uatlite.report.findings import findings
from uatlite.report.writing import write_results
from uatlite.training.fine_tuning import fine_tune
from uatlite.training.progress import advancing
from uatlite.training.runs import Run, finished

NOTE = "demo.json"
"""Says beside the classifier what it was calibrated for; written last."""


@dataclass(frozen=True)
class Demo:
    """What the demo leaves: the results, what they say in words, and where things are."""

    results: Results
    findings: tuple[str, ...]
    report: Path
    classifier: Path


def run_demo(directory: Path, watch: Watch, settings: Settings | None = None) -> Demo:
    """Run every step that is not done yet, and the report."""
    settings = settings or Settings()
    checkpoint = train(directory / "model", settings, watch)
    results = evaluate(checkpoint, settings.plan, Store(directory / "store"), watch)
    write_results(results, directory)
    evaluation = open_evaluation(directory)
    chosen = abstain(evaluation, target=settings.target_risk)
    assert chosen is not None  # the plan calibrates, so the store has calibration rows
    calibrate(checkpoint, chosen.contender, directory / "classifier", settings, watch)
    watch.begin("explaining", 1)
    test = load(settings.task, TEST)
    examples = {example.id: example for example in test.examples}
    explain_least_sure(checkpoint, chosen, examples, test.labels, directory / FILE)
    watch.begin("drawing the report", 1)
    report = build_report(directory, directory, contender=chosen.contender, target_risk=settings.target_risk)
    return Demo(results, tuple(findings(results, chosen)), report, directory / "classifier")


def train(directory: Path, settings: Settings, watch: Watch) -> Checkpoint:
    """The fine-tuned model, from the directory if it is there."""
    rows = load(settings.task, "train")
    run = Run.of(settings.backbone, rows, None, settings.recipe, settings.seed)
    if finished(directory, run) is None:
        watch.begin("fine-tuning", settings.recipe.steps(len(rows)))
        watch.at(f"{len(rows):,} sentences")
        fine_tune(
            settings.backbone,
            rows,
            directory,
            recipe=settings.recipe,
            seed=settings.seed,
            report=advancing(watch.advance),
        )
    return load_checkpoint(directory, kind=settings.task.kind)


def calibrate(checkpoint: Checkpoint, contender: str, directory: Path, settings: Settings, watch: Watch) -> None:
    """The classifier that the calibration rows chose, saved with a rule that keeps errors at the target."""
    chosen, rows = parse_contender(contender), load(settings.task, CALIBRATION)
    note = directory / NOTE
    wanted = {
        "model": checkpoint.hash,
        "rows": rows.fingerprint,
        "contender": contender,
        "target_risk": settings.target_risk,
        "max_length": settings.max_length,
    }
    if note.is_file() and json.loads(note.read_text(encoding="utf-8")) == wanted:
        return
    watch.begin("calibrating", 1)
    watch.at(f"{contender}, {len(rows):,} sentences")
    classifier = UncertaintyClassifier(
        checkpoint.model, checkpoint.tokenizer, chosen.method, max_length=settings.max_length
    )
    labels = [rows.labels[label] for label in rows.gold if label is not None]
    classifier.calibrate(rows.texts, labels, target_risk=settings.target_risk, calibrator=chosen.calibrator)
    classifier.save_pretrained(directory)
    note.write_text(json.dumps(wanted), encoding="utf-8")
