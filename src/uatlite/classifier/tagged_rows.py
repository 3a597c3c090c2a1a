"""Labelled texts of a tagger: checked, run by methods that learn from them, and compared with their gold entities."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.learn import REFERENCE_BLOCK, Report
from uatlite.classifier.runtime import Runtime
from uatlite.classifier.settings import Settings
from uatlite.classifier.tags import TagScheme
from uatlite.classifier.token_run import (
    Choose,
    TokenOutputs,
    fixed_tokens,
    locate_texts,
    run_located,
    run_tokens,
    weakest_words,
)
from uatlite.errors import CalibrationError, InputError
from uatlite.methods.method import CalibrationRows, Method, Tuned
from uatlite.methods.one_pass import BASE
from uatlite.predictive import PassLogits
from uatlite.text.examples import example_of
from uatlite.text.schema import Layout
from uatlite.trust.gaussians import ScopeFit
from uatlite.values import Example, Floats, Integers, Span, Words

if TYPE_CHECKING:
    from uatlite.model.spans import LocatedTexts, TaggedText


@dataclass(frozen=True, eq=False)
class Matches:
    """What is found against what is there."""

    right: NDArray[np.bool_]
    """(entities,): whether each entity that is found is one of its text's gold ones, span and type"""
    missed: Integers
    """(texts,): gold entities that are not found"""
    gold: Integers
    """(texts,): gold entities"""

    @classmethod
    def of(cls, outputs: TokenOutputs, gold: Sequence[Iterable[Span]], names: Sequence[str]) -> "Matches":
        """The entities of outputs against the gold ones of each text."""
        found = [[Span(one.start, one.end, names[one.type]) for one in decoded.entities] for decoded in outputs.decoded]
        wanted = [set(one) for one in gold]
        return cls(
            right=np.array([span in there for spans, there in zip(found, wanted, strict=True) for span in spans], bool),
            missed=np.array([len(there.difference(spans)) for spans, there in zip(found, wanted, strict=True)], int),
            gold=np.array([len(there) for there in wanted], int),
        )


@dataclass(eq=False)
class TaggedRows:
    """Calibration texts of a tagger, and what methods say about them."""

    runtime: Runtime
    settings: Settings
    scheme: TagScheme
    strategy: str | None
    texts: "list[TaggedText]"
    report: Report | None = None

    def learn(self) -> tuple[Tuned, TokenOutputs, list[Floats] | None]:
        """The method with what it learns; what it says about the texts; variances as if it had not learned from them.

        A read-out is fitted on the weakest words of the entities that the plain pass finds.
        """
        method, located = self.settings.method, locate_texts(self.runtime, self.texts, self.settings)
        if not method.tunable:
            return Tuned(method, ""), self._run(located, method), None
        plain, states = run_located(self.runtime, located, BASE, self.scheme, self.strategy, lambda window, logits: ())
        self._tell()
        chosen = [[entity.token for entity in one.entities] for one in plain.decoded]
        if not any(chosen):
            return Tuned(method, "The model finds no entity in these texts, so no variance was learned."), plain, None

        def run(asked: Method) -> PassLogits:
            if asked.to_dict() == BASE.to_dict():
                rows = plain.tokens(chosen)
                if states is None:
                    return rows
                read = [one[some] for one, some in zip(states, chosen, strict=True)]
                return replace(rows, representations=np.concatenate(read).astype(np.float64))
            seeded = asked.seeded(self.settings.seed)
            choose = fixed_tokens(located, chosen)
            groups = _alike(located, choose)
            found, _ = run_located(self.runtime, located, seeded, self.scheme, self.strategy, choose, groups)
            self._tell()
            return found.tokens(chosen)

        labels = np.zeros(sum(len(one) for one in chosen), dtype=np.int64)
        tuned = method.tuned(CalibrationRows(labels, run, unit="entities"))
        if tuned.method.passes > 1 or tuned.outputs is None or tuned.method.cost > 1:
            return tuned, self._run(located, tuned.method), None
        variance = tuned.outputs.given_variance
        assert variance is not None
        left_out = [np.full(len(text), np.nan) for text in located.texts]
        place = 0
        for row, some in enumerate(chosen):
            left_out[row][list(some)] = variance[place : place + len(some)]
            place += len(some)
        return tuned, plain, left_out

    def read_reference(self, texts: "list[TaggedText]") -> ScopeFit | None:
        """What the scope keeps of reference texts, block by block; None where the model shows no representation."""
        fit: ScopeFit | None = None
        for start in range(0, len(texts), REFERENCE_BLOCK):
            some = texts[start : start + REFERENCE_BLOCK]
            plain = replace(self.settings, method=BASE)
            found = run_tokens(self.runtime, some, plain, self.scheme, self.strategy).text_outputs(self.scheme)
            self._tell(len(some))
            if found.representations is None:
                return None
            fit = fit or ScopeFit(found.representations.shape[1], 2)
            fit.add(found.representations, found.mean_logits.argmax(axis=1))
        return fit

    def _run(self, located: "LocatedTexts", method: Method) -> TokenOutputs:
        """What a method says about the texts."""
        choose = weakest_words(located, self.scheme, self.strategy)
        found, _ = run_located(self.runtime, located, method, self.scheme, self.strategy, choose)
        self._tell()
        return found

    def _tell(self, texts: int | None = None) -> None:
        if self.report is not None:
            self.report(len(self.texts) if texts is None else texts)


def _alike(located: "LocatedTexts", choose: Choose) -> list[list[int]]:
    """The windows with chosen tokens, those with as many in one group: texts of a batch share their backward passes."""
    counts = [len(choose(number, np.zeros((0, 0)))) for number in range(len(located.windows))]
    return [[place for place, count in enumerate(counts) if count == wanted] for wanted in sorted(set(counts) - {0})]


def check_tagged(texts: Iterable[Any]) -> "list[TaggedText]":
    """Texts for a tagger: strings, Words, or lists of words; raises where one is none of these."""
    found: list[TaggedText] = []
    for place, text in enumerate(texts):
        whole = Words(tuple(text)) if isinstance(text, list | tuple) else text
        words = whole.tokens if isinstance(whole, Words) else ("a",)
        if not isinstance(whole, str | Words) or not all(isinstance(word, str) and word.strip() for word in words):
            raise InputError(
                f"texts[{place}] is {text!r:.80}; allowed are a string, or a list of words, none of them empty."
            )
        if not (words and (whole.strip() if isinstance(whole, str) else True)):
            raise InputError(f"texts[{place}] is empty; leave it out.")
        found.append(whole)
    return found


LAYOUTS = (
    Layout(text="tokens", label="tags", gold="tags"),
    Layout(text="text", label="entities", gold="entities"),
)


def check_rows(
    texts: Iterable[Any], entities: Iterable[Iterable[Any]] | None, names: Sequence[str]
) -> "tuple[list[TaggedText], list[tuple[Span, ...]]]":
    """Calibration texts and their gold entities, from texts and entities or from rows."""
    given = list(texts)
    if not given:
        raise CalibrationError("there are no calibration rows; give labelled texts that the model was not trained on.")
    if entities is None:
        rows = [_row(one, place, names) for place, one in enumerate(given)]
        return [text for text, _ in rows], [spans for _, spans in rows]
    checked, gold = check_tagged(given), [tuple(_span(one) for one in spans) for spans in entities]
    if len(checked) != len(gold):
        raise InputError(f"{len(checked)} texts came with {len(gold)} lists of entities; give one for each text.")
    for place, (text, spans) in enumerate(zip(checked, gold, strict=True)):
        whole = text.text if isinstance(text, Words) else text
        for span in spans:
            if span.label not in names or not 0 <= span.start < span.end <= len(whole):
                raise InputError(
                    f"entities[{place}] has {tuple(span)}; allowed are (start, end, label) within the "
                    f"{len(whole)} characters of the text, with a label of {', '.join(names)}."
                )
    return checked, gold


def _row(row: Any, place: int, names: Sequence[str]) -> "tuple[TaggedText, tuple[Span, ...]]":
    if isinstance(row, Mapping):
        layout = next((one for one in LAYOUTS if one.text in row and one.label in row), None)
        if layout is None:
            raise InputError(
                f"row {place} has the columns {', '.join(row)}; give tokens and tags, or text and entities."
            )
        row = example_of(row, layout, tuple(names))
    if not isinstance(row, Example) or row.entities is None or not isinstance(row.text, str | Words):
        raise InputError(
            f"row {place} is {row!r:.80} without entities; give texts and their entities, or rows that have both."
        )
    return row.text, row.entities


def _span(value: Any) -> Span:
    if isinstance(value, Mapping):
        return Span(int(value["start"]), int(value["end"]), str(value["label"]))
    start, end, label = value
    return Span(int(start), int(end), str(label))
