"""From the logits of every pass to one predictive distribution and the uncertainty in it.

Two means over passes are in use, on purpose. The prediction is the softmax of the *mean logits*. The entropies,
the mutual information and the variance are about the passes' *probabilities* p_m and their mean, because only there
does the entropy split into an expected part and a part that the passes disagree about.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import ConfigurationError, InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Predictive:
    """What the passes say about each row; entropies in nats.

    probabilities (rows, classes): softmax of the mean logits, the prediction.
    predicted (rows,): the class of the largest probability, the first of equals.
    confidence (rows,): its probability.
    margin (rows,): largest minus second largest probability; 1 where there is one class.
    entropy (rows,): H(mean_m p_m), the total uncertainty.
    expected_entropy (rows,): mean_m H(p_m), the aleatoric part.
    mutual_information (rows,): entropy - expected_entropy, never below 0, the epistemic part.
    variance (rows,): the variance over passes (ddof 1) of the predicted class's p_m; 0 for one pass.
    """

    probabilities: Floats
    predicted: NDArray[np.int64]
    confidence: Floats
    margin: Floats
    entropy: Floats
    expected_entropy: Floats
    mutual_information: Floats
    variance: Floats


def predict(logits: ArrayLike, temperature: float = 1.0) -> Predictive:
    """Summarise logits (passes, rows, classes), divided by the temperature first."""
    scaled = check_logits(logits, temperature) / temperature
    return summarise(softmax(scaled.mean(axis=0)), softmax(scaled))


def summarise(probabilities: Floats, passes: Floats) -> Predictive:
    """Summarise a prediction (rows, classes) and the probabilities of every pass (passes, rows, classes)."""
    predicted = probabilities.argmax(axis=1)
    total, expected = entropy(passes.mean(axis=0)), entropy(passes).mean(axis=0)
    of_predicted = np.take_along_axis(passes, predicted[None, :, None], axis=2)[:, :, 0]
    return Predictive(
        probabilities=probabilities,
        predicted=predicted,
        confidence=probabilities.max(axis=1),
        margin=margin(probabilities),
        entropy=total,
        expected_entropy=expected,
        # Jensen's inequality holds exactly; rounding breaks it by an ulp where all passes agree.
        mutual_information=np.maximum(total - expected, 0),
        variance=of_predicted.var(axis=0, ddof=1) if len(passes) > 1 else np.zeros(len(predicted)),
    )


def softmax(logits: Floats) -> Floats:
    """exp(z_c) / sum_k exp(z_k) over the last axis (..., classes)."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def entropy(probabilities: Floats) -> Floats:
    """-sum_c p_c log p_c over the last axis (..., classes), in nats, with 0 log 0 = 0."""
    logs = np.log(probabilities, where=probabilities > 0, out=np.zeros_like(probabilities))
    return np.asarray(-(probabilities * logs).sum(axis=-1))


def margin(probabilities: Floats) -> Floats:
    """The largest minus the second largest of the last axis (..., classes); 1 where there is one class."""
    if probabilities.shape[-1] == 1:
        return np.ones(probabilities.shape[:-1])
    top = np.partition(probabilities, -2, axis=-1)
    return np.asarray(top[..., -1] - top[..., -2])


def check_logits(logits: ArrayLike, temperature: float) -> Floats:
    """Logits as float64 (passes, rows, classes), or an error that names what is wrong."""
    values = np.asarray(logits, dtype=np.float64)
    if values.ndim != 3 or 0 in values.shape:
        raise InputError(
            f"logits have shape {values.shape}; allowed is (passes, rows, classes), at least one of each. "
            "For a single pass pass logits[None]."
        )
    if not np.isfinite(values).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise InputError(
            f"logits{list(place)} is {values[place]}; allowed are finite numbers. Run the model in float32, "
            "or drop that row."
        )
    if not (np.isfinite(temperature) and temperature > 0):
        raise ConfigurationError(f"temperature={temperature} is not allowed: above 0; 1 changes nothing.")
    return values
