"""The model card: what the classifier is, how to use it, what was measured on which rows, what is promised."""

from typing import TYPE_CHECKING

from uatlite import __version__
from uatlite.backbone.checks import unwrap
from uatlite.classifier.figures import CONFIDENCE, Figures

if TYPE_CHECKING:
    from uatlite.classifier.classifier import UncertaintyClassifier

_CARD = """\
---
library_name: transformers
pipeline_tag: text-classification
tags:
- uatlite
- uncertainty
- calibration
---

# {title}

A text classifier that says how sure it is{abstains}. The weights are those of the model it was made from;
`uatlite.json` beside them holds what was learned from labelled rows.

```python
from uatlite import UncertaintyClassifier

clf = UncertaintyClassifier.from_pretrained("path-or-hub-id-of-this-model")
pred = clf.predict(["a text"])
pred.labels, pred.confidence, pred.mutual_information{abstain_attribute}
```

transformers alone loads it too, as the plain model without calibration{plain_abstains}.

- Model: {model}, {classes} classes: {names}
- Method: `{method}` ({summary}), seed {seed}
- Texts over {max_length} tokens are {long_texts}
- Written by uatlite {version}

## Calibration

{calibration}

## Figures

{figures}
"""


def model_card(classifier: "UncertaintyClassifier", evaluation: Figures | None) -> str:
    """The card in Markdown; `evaluation` are figures on rows that calibration has not seen."""
    model, settings, calibration = unwrap(classifier.model), classifier.settings, classifier.calibration_
    rule = None if calibration is None else calibration.rule
    names = classifier.class_names
    learned = ["The classifier is not calibrated."] if calibration is None else calibration.describe()
    promise = [] if rule is None else ["What is promised holds for rows like the calibration rows, and for no others."]
    measured = [figures for figures in (evaluation, calibration.figures if calibration else None) if figures]
    return _CARD.format(
        title=f"{type(model).__name__} with uncertainty",
        abstains=" and abstains where it should not answer" if rule else "",
        abstain_attribute=", pred.abstain" if rule else "",
        plain_abstains=" and abstention" if rule else "",
        model=type(model).__name__,
        classes=len(names),
        names=", ".join(names[:12]) + (", …" if len(names) > 12 else ""),
        method=settings.method.name,
        summary=settings.method.summary,
        seed=settings.seed,
        max_length=settings.max_length,
        long_texts="read in overlapping windows" if settings.windows else "cut",
        version=__version__,
        calibration="\n".join(f"- {line}" for line in [*learned, *promise]),
        figures="\n\n".join(_table(figures) for figures in measured) or "None were measured.",
    )


def _table(figures: Figures) -> str:
    header, *lines = figures.table()
    rows = [header, ("---",) * 3, *lines]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    basis = figures.basis[0].upper() + figures.basis[1:]
    return f"{basis}. In brackets: {CONFIDENCE:.0%} bootstrap intervals.\n\n{table}"
