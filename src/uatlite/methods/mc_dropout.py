"""MC dropout (Gal and Ghahramani, 2016): passes with dropout on, attention as it is."""

from uatlite.methods.sampling import Sampling, rates_only
from uatlite.passes.config import DropoutRates

MC_UNIFORM = Sampling.of("mc-uniform", "MC dropout, p = 0.1 at every site", rates_only(DropoutRates.uniform(0.1)))
MC_COMPONENT = Sampling.of(
    "mc-component", "MC dropout at the rates of UAT-Lite, attention not modulated", rates_only(DropoutRates())
)
MC_GLOBAL = Sampling.of("mc-global", "MC dropout at the checkpoint's own rates", rates_only(DropoutRates.own()))
