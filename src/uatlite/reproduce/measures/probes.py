"""What a classifier makes of a single sentence."""

from collections.abc import Callable

from uatlite.backbone.tokens import longest, tokenize
from uatlite.experiments.contenders import parse_contender
from uatlite.predictive import predict
from uatlite.reproduce.declaration import Ask
from uatlite.reproduce.measured import Measured
from uatlite.reproduce.models import Fit
from uatlite.reproduce.workshop import Arrays, Workshop

# measure -> from confidence and mutual information; the paper's "Unc" is 1 - confidence to the last digit
PROBES: dict[str, Callable[[float, float], float]] = {
    "probe-confidence": lambda confidence, information: confidence,
    "probe-doubt": lambda confidence, information: 1 - confidence,
    "probe-information": lambda confidence, information: information,
}


def probe(ask: Ask, workshop: Workshop) -> Measured:
    """Confidence, one less it, or mutual information of a sentence."""
    found = [_probed(ask, fit, workshop) for fit in workshop.fits(ask)]
    value = PROBES[ask.measure]
    return Measured(tuple(value(float(one["confidence"]), float(one["information"])) for one in found))


def _probed(ask: Ask, fit: Fit, workshop: Workshop) -> Arrays:
    method = parse_contender(ask.contender).method.seeded(fit.seed)

    def compute() -> Arrays:
        checkpoint = workshop.checkpoint(fit)
        tokens = tokenize(checkpoint.tokenizer, [ask.text or ""], longest(checkpoint.model, checkpoint.tokenizer))
        summary = predict(method.run(checkpoint.model, tokens.pad([0])).logits.cpu().numpy())
        return {"confidence": summary.confidence[0], "information": summary.mutual_information[0]}

    return workshop.kept("probe", [fit, method.to_dict(), fit.seed, ask.text, workshop.about(fit)], compute)
