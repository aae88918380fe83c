"""Two made-up kinds of files: what is said of sources holds for whatever kinds there are."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import gaam_cache.encoders
import gaam_cache.sources.media
from tests.cache.sources.data_sets import maker

HERE = Path(__file__).parent
FAKES: list[tuple[ModuleType, str, tuple[str, ...]]] = [
    (gaam_cache.sources.media, "fake_media", ("tone", "blot")),
    (gaam_cache.encoders, "fake_encoders", ("tone",)),
]


@pytest.fixture
def fake_media(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kinds 'tone' and 'blot' beside those there are, and an encoder of tones."""
    for package, folder, _ in FAKES:
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(HERE / folder)])
        assert package.__spec__ is not None
        monkeypatch.setattr(package.__spec__, "submodule_search_locations", package.__path__)
    importlib.invalidate_caches()
    yield
    for package, _, names in FAKES:
        for name in names:
            sys.modules.pop(f"{package.__name__}.{name}", None)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes a data set of files for any source, by its name."""
    return maker(tmp_path, monkeypatch)
