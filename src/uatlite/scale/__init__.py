"""Past one machine: the blocks of a scoring run and the pieces of an evaluation, worked on by Ray.

The only room that imports ray, and only when it is entered: `uatlite predict --engine ray` enters it.
"""

from uatlite.errors import MissingDependency

try:
    import ray.data  # noqa: F401 - all that follows needs it
except ImportError as error:
    raise MissingDependency("ray", "ray") from error

from uatlite.scale.cluster import Cluster, connected
from uatlite.scale.filling import evaluation_jobs, fill
from uatlite.scale.scoring import score_file

__all__ = ["Cluster", "connected", "evaluation_jobs", "fill", "score_file"]
