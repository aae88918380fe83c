"""Data sets of files for any source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache.sources.data_sets import maker


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes a data set of files for any source, by its name."""
    return maker(tmp_path, monkeypatch)
