"""Better answers from unlabelled texts: a checkpoint is taught the probabilities of itself, or of other classifiers.

    DIR/config.json, model.safetensors …   the student, as transformers saves it
        uatlite-refined.json               the `Refined` record, written last
        checkpoints/answers=KEY/           what a teacher says of the texts, in pieces that are written once
                    student=KEY/           the training of a student; one that is worse stays here

The same call goes on where an earlier one was killed.
"""

import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.classifiers import load
from uatlite.classifier.product import Product, open_files
from uatlite.classifier.record import CalibrationOptions
from uatlite.classifier.runtime import Runtime, TokenRuntime, TorchRuntime, method_of
from uatlite.classifier.saving import check_target
from uatlite.codec import dump
from uatlite.errors import ConfigurationError, DataError, ModelError
from uatlite.lab.evaluate.comparison import Relation, relation
from uatlite.lab.evaluate.evaluate import Silent
from uatlite.lab.evaluate.outcomes import OUTCOMES
from uatlite.lab.evaluate.runs import Progress
from uatlite.lab.evaluate.store import Arrays, Store, kept_arrays, parts_of, run_pieces
from uatlite.lab.train.dataset import TrainingRows
from uatlite.lab.train.recipe import CHECKPOINTS, RECIPES, Recipe
from uatlite.lab.train.student import LESSONS, Lesson, taught_by, teach
from uatlite.methods.method import Method
from uatlite.methods.registry import method_to_dict
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import SCALES, Estimates, Interval, intervals
from uatlite.model.tokens import TOKENIZING, Tokens, most_tokens, tokenize
from uatlite.model.weights import attach, attached
from uatlite.text.write import Pieces, make_directory, read_record, write_record
from uatlite.trust.scope import CALIBRATION_ROWS, fit_scope
from uatlite.values import Kind, Text, counted

REFINED, BEST = "uatlite-refined.json", "best.json"
ENOUGH = 1000
"""Fewer texts are said to be few, and so many at most tell whether they are of the model's task."""
STRANGE = 0.1
"""The share of texts out of scope from which they are said to be of another task; one in a hundred is usual."""
HELD_BACK, MOST_HELD_BACK = 20, 500
"""One text in so many, and at most so many, are not taught: they tell how far the student agrees with its teachers."""
Targets = list[NDArray[np.float32]]
"""The probabilities of each text, (answers, classes): one answer, or one for each token."""


@dataclass(frozen=True)
class Refinement:
    """Who teaches a checkpoint (by default itself), by which method (by default its own), and how it is trained."""

    teachers: Sequence[str | Path] = ()
    teacher_method: str | None = None
    recipe: Recipe = RECIPES["refine"]
    seed: int = 0
    device: str = "auto"


@dataclass(frozen=True, kw_only=True)
class Refined:
    """A checkpoint that was taught on texts, and whether it became better."""

    teachers: tuple[str, ...]
    texts: int
    epoch: int
    agreement: float
    """the share of the answers to texts that were not taught in which it agrees with its teachers"""
    notes: tuple[str, ...]
    before: Mapping[str, float] = field(default_factory=dict)
    """metric -> that of the checkpoint; both models have a calibrator of their own, fitted on the held-out rows"""
    changes: Mapping[str, Interval] = field(default_factory=dict)
    """metric -> that of the student less that, paired by rows"""
    verdict: Relation | None = None
    """None without held-out rows"""
    written: bool = True

    def describe(self) -> list[str]:
        """Lines for a person."""
        said = f"Taught by {', '.join(self.teachers)} on {counted(self.texts, 'text')}; it agrees with its teachers in "
        lines = [*self.notes, f"{said}{self.agreement:.1%} of answers to texts that it was not taught."]
        if self.verdict is None:
            return [*lines, "Without labels it cannot be told whether it is better; give some with --held-out."]
        for name, gap in self.changes.items():
            values = f"{self.before[name]:.4f} before, {self.before[name] + gap.point:.4f} after"
            lines.append(f"{SCALES[name].heading} {values}: {gap.point:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]")
        end = "" if self.written else " It was not written."
        return [*lines, f"{self.verdict.capitalize()} by held-out rows, each model calibrated on them.{end}"]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Labelled rows by which models are compared, each with a calibrator of its own that is fitted on them."""

    texts: list[Text]
    gold: NDArray[Any]
    digest: str

    def estimates(self, product: Product[Any]) -> Estimates:
        """NLL, AURC and accuracy, or what stands for these, ready to resample texts."""
        kind, scores = product.kind, OUTCOMES[product.kind.name]
        reading = kind.read(product.runtime, self.texts, product.settings)
        calibrator = kind.fit(reading, self.gold, CalibrationOptions(), np.ones(len(self.gold), dtype=np.bool_))
        said = kind.predictions.of(self.texts, reading, calibrator, kind.classes(product.runtime, self.texts))
        return scores.estimates(said, self.gold).chosen(*scores.compared)


def refine(
    checkpoint: str | Path,
    texts: Iterable[Any],
    directory: str | Path,
    *,
    held_out: tuple[Iterable[Any], Iterable[Any]] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **asked: Any,
) -> Refined:
    """Teach a checkpoint its own or others' probabilities on unlabelled texts, and write the student into a directory.

    `asked` are the fields of `Refinement`: `teachers`, `teacher_method`, `recipe`, `seed`, `device`. The student is one
    plain checkpoint; the given one stays as it is. `held_out` are labelled texts, (texts, gold) as `calibrate` takes
    them: they choose the epoch and say whether the student is better, and a worse one is not written unless `force`.
    """
    refinement, directory = Refinement(**asked), Path(directory)
    check_target(directory, overwrite=(directory / CHECKPOINTS).is_dir())
    product, runtime = _plain(checkpoint, refinement)
    held = None
    if held_out is not None:
        rows, gold = product.kind.texts(held_out[0], ()), list(held_out[1])
        digest = hashlib.sha256(repr((rows, gold)).encode()).hexdigest()
        held = HeldOut(rows, product.gold_of(rows, gold, product.kind.classes(runtime, rows)), digest)
    chosen, notes = _chosen(product, texts, held, refinement.seed)
    before = None if held is None else held.estimates(product)
    about = runtime.hash, runtime.kind, runtime.class_names
    tokens, store = _tokens(runtime, chosen, refinement), Store(directory / CHECKPOINTS)
    run = _Run(str(checkpoint), *about, chosen, tokens, refinement, store, progress or Silent())
    del product, runtime  # one model in memory at a time
    teachers, targets = run.targets()
    pieces = run.trained(targets, held)
    epoch = (read_record(pieces.path(BEST)) or {})["epoch"]
    product, runtime = _plain(pieces.path(f"epoch-{epoch}"), refinement)
    agreement, said = run.agreement(runtime, targets), tuple(notes)
    refined = Refined(teachers=teachers, texts=run.taught, epoch=epoch, agreement=agreement, notes=said)
    if held is not None and before is not None:
        changes = intervals(held.estimates(product) - before)
        relations = {relation(changes[name], SCALES[name].better or "lower") for name in changes}
        verdict: Relation = next((each for each in ("worse", "better") if each in relations), "level")
        refined = replace(refined, before=before.points(), changes=changes, verdict=verdict)
    if refined.verdict == "worse" and not force:
        return replace(refined, written=False)
    runtime.save(directory)
    write_record(directory / REFINED, dump(refined))
    Pieces(directory / CHECKPOINTS).remove()
    return refined


def _plain(name: str | Path, asked: Refinement) -> tuple[Product[Any], TorchRuntime]:
    """The product of one plain pass of a model, without the weights of a method; and what runs it."""
    length = asked.recipe.max_length
    product = load(name, calibrated=False, method=BASE.name, max_length=length, device=asked.device)
    runtime = product.runtime
    if not isinstance(runtime, TorchRuntime) or getattr(attached(runtime.model), "headless", False):
        raise ConfigurationError(f"{name} cannot be trained as it is; give a plain checkpoint, and it as --teacher.")
    attach(runtime.model, None)
    return product, runtime


def _chosen(
    product: Product[Any], texts: Iterable[Any], held: HeldOut | None, seed: int
) -> tuple[list[Text], list[str]]:
    """The texts to teach, each once and in a random order, and what is to be said of them."""
    given, rows = product.kind.texts(texts, ()), set() if held is None else set(held.texts)
    unique = [text for text in dict.fromkeys(given) if text not in rows]
    if len(unique) < HELD_BACK:
        raise DataError(f"{counted(len(unique), 'text')} besides held-out rows are too few; give {HELD_BACK} or more.")
    chosen = [unique[i] for i in np.random.default_rng(seed).permutation(len(unique))]
    notes = []
    if shared := len(rows.intersection(given)):
        notes.append(f"{counted(shared, 'text is', 'texts are')} held-out rows too and were not taught.")
    if len(chosen) < ENOUGH:
        notes.append(f"{len(chosen):,} texts are few; {ENOUGH:,} or more are usual.")
    if held is not None and len(held.texts) >= CALIBRATION_ROWS:
        read = partial(product.kind.read, product.runtime, settings=product.settings)
        inside, new = read(held.texts), read(chosen[:ENOUGH])
        scope = fit_scope(None, inside.representations, inside.scope_logits)
        outside = scope.out_of_scope(scope.p_values(new.representations, new.scope_logits)).mean()
        notes += [f"{outside:.0%} of the texts look like those of another task."] if outside > STRANGE else []
    return chosen, notes


def _tokens(runtime: Runtime, texts: list[Text], asked: Refinement) -> Tokens:
    with TOKENIZING:
        longest = most_tokens(runtime.positions, runtime.tokenizer, asked.recipe.max_length)
        return tokenize(runtime.tokenizer, texts, longest)


def _begun(of: Callable[[str], Pieces], record: Mapping[str, Any]) -> Pieces:
    """The work of a record, which decides its name."""
    pieces = of(hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16])
    if not pieces.begun:
        pieces.begin(record)
    return pieces


@dataclass(frozen=True, eq=False)
class _Run:
    """A refinement: what is taught, and where its work is kept. It holds no model."""

    checkpoint: str
    hash: str
    kind: Kind
    classes: tuple[str, ...]
    texts: list[Text]
    tokens: Tokens
    asked: Refinement
    store: Store
    progress: Progress

    @property
    def lesson(self) -> Lesson:
        return LESSONS[self.kind]

    @property
    def taught(self) -> int:
        """How many texts are taught, the first."""
        return len(self.texts) - min(MOST_HELD_BACK, len(self.texts) // HELD_BACK)

    def _begin(self, stage: str, total: float) -> None:
        gc.collect()  # the model of the stage before, which refers to itself
        self.progress.begin(stage, total)

    def targets(self) -> tuple[tuple[str, ...], Targets]:
        """The teachers in words, and the mean of their probabilities."""
        names, said = zip(*map(self.said_by, self.asked.teachers or (self.checkpoint,)), strict=True)
        targets: Targets = [np.mean(each, axis=0, dtype=np.float32) for each in zip(*said, strict=True)]
        if self.lesson.direction is None:
            tokenizer: Any = self.tokens.tokenizer
            special = list(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
            for target, (features,) in zip(targets, self.tokens.rows, strict=True):
                target[np.isin(features["input_ids"], special)] = 0.0
        return names, targets

    def said_by(self, name: str | Path) -> tuple[str, Targets]:
        """A teacher in words, and what it says of each text; only what the store does not have is computed."""
        self._begin(f"{name} teaches", len(self.texts))
        runtime = open_files(name, calibrated=False, device=self.asked.device).runtime
        method = method_of(self.asked.teacher_method, self.asked.seed, runtime.method, BASE.name)
        tokens = _tokens(runtime, self.texts, self.asked)
        if runtime.kind != self.kind or sorted(runtime.class_names) != sorted(self.classes):
            names = f"{', '.join(runtime.class_names)}, and {self.checkpoint} {', '.join(self.classes)}"
            raise ModelError(f"{name} has the classes {names}; a teacher gives the same answers.")
        by_token = self.lesson.direction is None
        if not isinstance(runtime, TokenRuntime) or (by_token and tokens.fingerprint != self.tokens.fingerprint):
            raise ModelError(f"{name} reads other tokens than {self.checkpoint}, and of {self.kind} tokens are taught.")
        if method.learns or (by_token and method.knows_variance and method.passes == 1):
            raise ConfigurationError(f"{method.name} cannot teach {self.kind}; use base, fast or uat.")
        columns = [runtime.class_names.index(label) for label in self.classes] or slice(None)
        record: dict[str, Any] = {"model": runtime.hash, "tokens": tokens.fingerprint, "method": method_to_dict(method)}
        record |= {"seed": method.seed, "classes": self.classes, "uatlite": version("uatlite")}
        pieces, said = _begun(self.store.answers, record), Targets()
        for number, rows in enumerate(parts_of(range(len(tokens)))):
            compute = partial(_probabilities, runtime, method, tokens, rows, self.lesson)
            arrays = kept_arrays(pieces, f"piece-{number:05}.npz", compute)
            said += np.split(arrays["probabilities"][:, columns], np.cumsum(arrays["answers"])[:-1])
            self.progress.advance(len(rows))
        return f"{name} ({method.name})", said

    def trained(self, targets: Targets, held: HeldOut | None) -> Pieces:
        """The training of the student, with the weights of its best epoch, or of the last without held-out rows."""
        recipe, seed = self.asked.recipe, self.asked.seed
        record = {"checkpoint": self.hash, "tokens": self.tokens.fingerprint, "recipe": dump(recipe), "seed": seed}
        record["targets"] = hashlib.sha256(np.concatenate(targets).tobytes()).hexdigest()
        record["held_out"] = None if held is None else held.digest
        pieces = _begun(lambda key: run_pieces(self.store.directory / f"student={key}"), record)
        if pieces.finished:
            return pieces
        tokens = replace(self.tokens, rows=self.tokens.rows[: self.taught], cut=self.tokens.cut[: self.taught])
        rows, done = TrainingRows(tokens, targets[: self.taught]), 0
        self._begin("training", recipe.steps(len(rows)))
        product, runtime = _plain(self.checkpoint, self.asked)

        def advance(steps: float) -> None:  # called before a checkpoint is written
            nonlocal done
            done += int(steps)
            epoch, rest = divmod(done * recipe.epochs, recipe.steps(len(rows)))
            if not rest:
                runtime.model.eval()
                metric = OUTCOMES[self.kind].compared[0]
                keep_best(runtime, pieces, epoch, None if held is None else held.estimates(product).points()[metric])
            self.progress.advance(steps)

        teach(runtime.model, rows, self.lesson, recipe, pieces.path("trainer"), seed=seed, advance=advance)
        pieces.finish({"texts": len(rows)})
        return pieces

    def agreement(self, runtime: TokenRuntime, targets: Targets) -> float:
        """The share of answers to the texts held back in which a student agrees with the teachers."""
        back = range(self.taught, len(self.texts))
        said = _probabilities(runtime, BASE, self.tokens, back, self.lesson)["probabilities"]
        taught = np.concatenate(targets[self.taught :])
        some = taught.any(axis=1)
        return float((self.lesson.answers(said[some]) == self.lesson.answers(taught[some])).mean())


def _probabilities(
    runtime: TokenRuntime, method: Method, tokens: Tokens, rows: Sequence[int], lesson: Lesson
) -> Arrays:
    """What a method says of the texts at these rows, (answers, classes), and how many answers each has."""
    batches, of_row = list(tokens.batches(rows, **runtime.batching)), dict[int, NDArray[Any]]()
    for batch, passes in zip(batches, runtime.run(method, batches), strict=True):
        for i, said in zip(batch.rows, taught_by(passes, lesson), strict=True):
            of_row[i] = said.reshape(-1, said.shape[-1])[: tokens.lengths[i]]
    every = [of_row[i] for i in rows]
    return {"probabilities": np.concatenate(every).astype(np.float32), "answers": np.array([len(a) for a in every])}


def keep_best(runtime: Runtime, pieces: Pieces, epoch: int, loss: float | None) -> None:
    """Save the student of an epoch, unless an earlier one has the lower loss."""
    best = read_record(pieces.path(BEST))
    if best is None or loss is None or best["nll"] > loss:
        make_directory(pieces.path(f"epoch-{epoch}"))
        runtime.save(pieces.path(f"epoch-{epoch}"))
        write_record(pieces.path(BEST), {"epoch": epoch, "nll": loss})
