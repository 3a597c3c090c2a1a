"""The demo: fine-tune, evaluate, calibrate, explain and report on film reviews, in at most six minutes on two cores.

Each step writes its result and is skipped if that is already there:

DIR/model/               the fine-tuned MiniLM-L6
    store/  results.*    the logits of every pass; scores as JSON, CSV and Markdown
    classifier/          the model with its calibration: what `uatlite predict` takes
    explanations.json    a few texts, word by word
    report.html figures/ the report
"""

from dataclasses import dataclass, replace
from pathlib import Path

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.lab.evaluate.evaluate import evaluate
from uatlite.lab.evaluate.plan import CALIBRATION, Plan, SetChoice, parse_contender, parse_contenders
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.runs import Progress
from uatlite.lab.evaluate.store import Store
from uatlite.lab.report.evaluation import abstain, open_evaluation
from uatlite.lab.report.evaluation_page import report
from uatlite.lab.report.results import findings, write_results
from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.recipe import DEMO, Recipe, TrainingJob, finished
from uatlite.model.load import EMBEDDED, Checkpoint, load_checkpoint
from uatlite.text.schema import Task, find_task
from uatlite.text.tasks import load
from uatlite.text.write import read_record, write_record


def part_of(task: Task, **shares: tuple[int, int]) -> Task:
    """A task with its splits narrowed to these hundredths of all rows."""
    splits = {name: replace(task.splits[name], share=share) for name, share in shares.items()}
    return replace(task, splits={**task.splits, **splits})


# Of 8,530 sentences 2,985 train, 682 calibrate and 512 test; of 25,000 reviews 250 test. Training costs three or four
# passes for each sentence, the methods together 24 for each row of every set; a cut review is as long as two sentences.
SENTENCES = part_of(find_task("rotten-tomatoes"), train=(0, 35), calibration=(70, 78), test=(85, 91))
REVIEWS = part_of(find_task("movie-reviews-imdb"), test=(99, 100))


@dataclass(frozen=True)
class DemoSettings:
    """What the demo runs; tests run it on a toy task."""

    backbone: str = EMBEDDED
    task: Task = SENTENCES
    shift: Task = REVIEWS
    recipe: Recipe = DEMO
    methods: str = "base,ts,mc,uat,uat+ts,analytic+its,distilled+its"
    contender: str = "distilled+its"
    """what becomes the classifier"""
    max_length: int = 64
    target_risk: float = 0.15
    """what a few hundred calibration rows can promise for a model that is wrong on one sentence in five"""
    seed: int = 0
    device: str = "auto"


_RECORD = "demo.json"
"""Beside the classifier: what it was calibrated for; written last."""


@dataclass(frozen=True)
class Demo:
    """The results, what they say in words, and where the files are."""

    results: Results
    findings: tuple[str, ...]
    report: Path
    classifier: Path


def run_demo(directory: Path, display: Progress, settings: DemoSettings | None = None) -> Demo:
    """Run every step that is not done yet, and draw the report."""
    settings = settings or DemoSettings()
    checkpoint = _train(directory / "model", settings, display)
    sets = SetChoice(settings.task), SetChoice(settings.shift)
    plan = Plan(parse_contenders(settings.methods), sets[0], sets[1:], max_length=settings.max_length)
    results = evaluate(checkpoint, plan, Store(directory / "store"), display)
    results = replace(results, command=f"uatlite demo -o {directory}")
    write_results(results, directory)
    calibrate(checkpoint, settings.contender, directory / "classifier", settings, display)
    saved = UncertaintyClassifier.from_pretrained(directory / "classifier", device=settings.device).calibration_
    assert saved is not None
    chosen, target, scope = settings.contender, settings.target_risk, saved.scope
    display.begin("drawing the report", 1)
    page = report(
        directory, method=chosen, target_risk=target, model=directory / "model", scope=scope, device=settings.device
    )
    sentences = findings(results, abstain(open_evaluation(directory), chosen, target=target, scope=scope))
    return Demo(results, tuple(sentences), page, directory / "classifier")


def _train(directory: Path, settings: DemoSettings, display: Progress) -> Checkpoint:
    """The fine-tuned model; it is trained unless the directory has it."""
    rows = load(settings.task, "train")
    job = TrainingJob(settings.backbone, rows, recipe=settings.recipe, seed=settings.seed, device=settings.device)
    if finished(directory, job.run()) is None:
        display.begin("fine-tuning", settings.recipe.steps(len(rows)))
        display.step(f"{len(rows):,} sentences")
        fine_tune(job, directory, advance=display.advance)
    return load_checkpoint(directory, kind=settings.task.kind, device=settings.device)


def calibrate(
    checkpoint: Checkpoint, contender: str, directory: Path, settings: DemoSettings, display: Progress
) -> None:
    """Save the calibrated classifier of a contender, with a rule that keeps errors at the target."""
    chosen, rows = parse_contender(contender), load(settings.task, CALIBRATION)
    record = {
        "model": checkpoint.hash,
        "rows": rows.fingerprint,
        "contender": contender,
        "target_risk": settings.target_risk,
        "max_length": settings.max_length,
    }
    if read_record(directory / _RECORD) == record:
        return
    display.begin("calibrating", 1)
    display.step(f"{contender}, {len(rows):,} sentences")
    classifier = UncertaintyClassifier(
        checkpoint.model, checkpoint.tokenizer, chosen.method, max_length=settings.max_length
    )
    labels = [rows.labels[label] for label in rows.gold if label is not None]
    classifier.calibrate(
        rows.texts,
        labels,
        target_risk=settings.target_risk,
        calibrator=chosen.calibrator,
        reference=load(settings.task, "train").texts,
    )
    classifier.save_pretrained(directory, overwrite=True)
    write_record(directory / _RECORD, record)
