"""Output layers that know their own uncertainty, as plain torch modules, and the bound on the map before them."""

from uatlite.heads.gaussian_process import GaussianProcessHead
from uatlite.heads.mean_field import mean_field_logits
from uatlite.heads.spectral import bound_spectral_norm, spectral_norm
from uatlite.heads.variational import VariationalLinear

__all__ = ["GaussianProcessHead", "VariationalLinear", "bound_spectral_norm", "mean_field_logits", "spectral_norm"]
