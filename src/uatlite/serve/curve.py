"""The risk–coverage curve of rows that a client classified and knows the truth of."""

import numpy as np
from numpy.typing import NDArray

from uatlite.metrics.ranking import Ranking
from uatlite.serve.schema import CurveResponse

MOST_POINTS = 500
"""Points of a curve that is drawn; more than a screen has cannot be seen."""


def risk_coverage(scores: NDArray[np.float64], right: NDArray[np.bool_]) -> CurveResponse:
    """The curve over the rows from the highest score down, (rows,) each; ties share their errors evenly.

    The area is the mean over k = 1..n of E_k / k, as `uatlite.metrics.aurc` defines it for the confidence.
    """
    once, ranks = np.ones((1, len(scores))), np.arange(1, len(scores) + 1)
    ranking = Ranking.of(scores)
    kept, errors = ranking.cumulate(once)[0], ranking.cumulate(once, (~right).astype(np.float64))[0]
    risks = np.interp(ranks, kept, errors) / ranks
    shown = np.unique(np.linspace(0, len(ranks) - 1, min(len(ranks), MOST_POINTS)).round().astype(np.intp))
    return CurveResponse(
        coverage=(ranks[shown] / len(ranks)).tolist(),
        risk=risks[shown].tolist(),
        aurc=float(risks.mean()),
        accuracy=float(right.mean()),
    )
