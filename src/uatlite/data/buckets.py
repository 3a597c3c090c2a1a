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
    r"\w*n['’]t", "denies", "denied", "deny", "denying", "absent", "absence of", "negative for", "lacks?",
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
    "presumably", "apparently", "approximately", "roughly", "usually", "often", "sometimes",
    "generally", "tends? to", "consistent with", "uncertain", "unclear",
)  # fmt: skip
# Endings that make the name of a disease, a procedure, a drug or a kind of cell, after three letters or more, and
# words of the laboratory. Everyday words of the ward (patient, diagnosis, pain) would put every clinical text in.
BIOMEDICAL_CUES = (
    r"(?!diagnos|prognos)\w{3,}(?:itis|osis|aemia|emia|opathy|ectomy|oscopy|oplasty|uria|penia|megaly)",
    r"(?!dichotomy|nostalgia)\w{3,}(?:otomy|algia|carcinoma|sarcoma)",
    r"\w{3,}(?:cillin|mycin|cycline|azole|prazole|pril|sartan|statin|olol|zepam|tidine|mab|cytes?|kinase)",
    "biopsy", "carcinomas?", "lymphomas?", "melanomas?", "metasta(?:sis|ses|tic)", "pathogens?", "bacteri(?:a|al|um)",
    "antibod(?:y|ies)", "antigens?", "enzymes?", "receptors?", "agonists?", "antagonists?", "inhibitors?",
    "mutations?", "genes?", "chromosomes?", "dna", "rna", "mrna", "proteins?", "hormones?", "insulin", "glucose",
    "in vitro", "in vivo", "placebo",
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
