"""Encoders are drawn once, and measured once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.encoders.audio import sounds


@pytest.fixture(autouse=True)
def _counted_once(counted_once: None) -> None:
    """For all tests of this folder."""


@pytest.fixture(scope="session")
def audio_encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of tiny random encoders, by the names of ``sounds.CONFIGS``."""
    root = tmp_path_factory.mktemp("audio-encoders")
    return {name: sounds.save(name, root / name) for name in sounds.CONFIGS}
