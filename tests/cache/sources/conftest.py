"""Two made-up kinds of files: what is said of sources holds for whatever kinds there are."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gaam_cache.sources.media

FAKES = Path(__file__).parent / "fake_media"


@pytest.fixture
def fake_media(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kinds 'tone' and 'blot' beside those there are."""
    package = gaam_cache.sources.media
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(FAKES)])
    assert package.__spec__ is not None
    monkeypatch.setattr(package.__spec__, "submodule_search_locations", package.__path__)
    importlib.invalidate_caches()
    yield
    for name in ("tone", "blot"):
        sys.modules.pop(f"{package.__name__}.{name}", None)
