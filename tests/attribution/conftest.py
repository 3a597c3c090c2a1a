"""Settings for tests of attribution."""

import pytest

from uatlite.attribution import layers as sampled


@pytest.fixture(autouse=True)
def _large_blocks(monkeypatch):
    """A forward of a tiny model costs about the same whatever its rows, so passes run in large blocks."""
    monkeypatch.setattr(sampled, "_BLOCK", 250)
