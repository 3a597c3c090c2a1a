"""UAT-Lite: dropout by component, and attention modulated by token uncertainty."""

from uatlite.methods.sampling import Sampling
from uatlite.passes.config import UATConfig

UAT = Sampling.of("uat", "UAT-Lite as in the paper: lagged uncertainty, ten independent passes", UATConfig())
FAST = Sampling.of("fast", "UAT-Lite in fewer passes: closed-form uncertainty, stratified masks", UATConfig.fast())
