"""The tiny study, run once and recorded; every test has a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.decoder.studying.tiny_study import (
    study,
    written,
)


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the study was run and recorded."""
    here = tmp_path_factory.mktemp("study")
    written(here)
    assert study(here, "--record").returncode == 0
    return here


@pytest.fixture
def here(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(done, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"
