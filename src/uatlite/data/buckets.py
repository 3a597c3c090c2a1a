"""Linguistic buckets: the examples whose text negates, counts, hedges or talks medicine.

The cues are these lists and nothing else. They are coarse on purpose, as the paper's are, and matched at word
boundaries without regard to case. An example may be in several buckets, or in none.
"""

import re
from collections.abc import Iterable

from uatlite.values import Choices, Example, Text, strings

# A cue is a regular expression for one or more whole words.
NEGATION_CUES = (
    "no", "not", "never", "none", "nothing", "nobody", "nowhere", "neither", "nor", "cannot", "without",
    r"\w+n['’]t", "denies", "denied", "deny", "denying", "absent", "absence of", "negative for", "lacks?",
    "lacking", "fails? to", "failed to", "unable",
)  # fmt: skip
NUMERIC_CUES = (
    r"\d+(?:[.,/:]\d+)*\w*", r"\w+\d+", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "dozens?", "hundreds?", "thousands?", "millions?", "billions?", "percent", "half",
    "twice", "thirds?", "quarters?",
)  # fmt: skip
HEDGE_CUES = (
    "may", "might", "could", "possibl[ey]", "probabl[ey]", "likely", "unlikely", "perhaps", "maybe", "suggests?",
    "suggesting", "suggested", "suggestive", "appears?", "appeared", "seems?", "seemed", "suspect(?:s|ed)?",
    "presumably", "apparently", "approximately", "about", "roughly", "usually", "often", "sometimes",
    "generally", "tends? to", "consistent with", "uncertain", "unclear",
)  # fmt: skip
BIOMEDICAL_CUES = (
    # endings that name a disease, a procedure, a drug or a finding
    r"\w+(?:itis|osis|emia|aemia|oma|omas|pathy|ectomy|otomy|oscopy|plasty|ology|uria|algia|penia|megaly)",
    r"\w+(?:cillin|mycin|azole|pril|sartan|statin|olol|idine|mab|vir|cyte|cytes|ase|ases|genic|trophy)",
    "patients?", "diagnos[ei]s", "diagnosed", "symptoms?", "syndrome", "disease", "disorder", "therapy",
    "treatment", "clinical", "medications?", "doses?", "mg", "blood", "serum", "plasma", "tumou?rs?", "cancer",
    "infections?", "virus", "viral", "bacteri(?:a|al|um)", "cardiac", "renal", "hepatic", "pulmonary", "lesions?",
    "biopsy", "surgery", "surgical", "receptors?", "genes?", "mutations?", "protein", "cells?", "chronic", "acute",
)  # fmt: skip


def _compile(cues: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(cues)})(?!\w)", re.IGNORECASE)


BUCKETS: dict[str, re.Pattern[str]] = {
    "negation": _compile(NEGATION_CUES),
    "numeric": _compile(NUMERIC_CUES),
    "biomedical": _compile(BIOMEDICAL_CUES),
    "hedges": _compile(HEDGE_CUES),
}


def buckets_of(text: Text) -> frozenset[str]:
    """The names of the buckets that a text is in; of a multiple choice only the question is read."""
    parts = (text.question,) if isinstance(text, Choices) else strings(text)
    return frozenset(name for name, cue in BUCKETS.items() if any(cue.search(part) for part in parts))


def by_bucket(examples: Iterable[Example]) -> dict[str, list[int]]:
    """For each bucket the positions of its examples: rows of the prediction arrays, to take metrics of."""
    positions: dict[str, list[int]] = {name: [] for name in BUCKETS}
    for position, example in enumerate(examples):
        for name in buckets_of(example.text):
            positions[name].append(position)
    return positions
