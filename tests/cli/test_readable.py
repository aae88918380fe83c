"""Formats are kept readable: what an earlier version wrote is read, and says the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_cache.cache import open_cache
from tests.conftest import GOLDEN, Outcome

VERSIONS = sorted(path.name for path in GOLDEN.glob("v*"))


@pytest.fixture(params=VERSIONS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what that version wrote: a cache, runs on it, their report."""
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / "written"))


def test_the_first_version_is_among_them() -> None:
    assert "v0.1.0" in VERSIONS


def test_a_cache_is_whole_and_a_training_on_it_finds_its_runs(
    written: Path, gaam: Callable[..., Outcome]
) -> None:
    assert gaam("verify", written / "cache").code == 0
    assert open_cache(written / "cache")["train"].embeddings[:].shape == (20, 4, 32)
    options = ["--cache", written / "cache", "--runs", written / "runs", "--device", "cpu"]
    options += ["--seeds", 2, "--epochs", 8, "--lr", 0.01, "--attn", "gaam", "--attn", "none"]
    before = sorted((written / "runs").iterdir())
    trained = gaam("train", *options)
    assert trained.code == 0, trained.err
    assert sorted((written / "runs").iterdir()) == before  # of the same key: nothing to do


def test_runs_are_whole_and_say_what_they_said(written: Path, gaam: Callable[..., Outcome]) -> None:
    assert gaam("verify", written / "runs").code == 0
    report = json.loads(gaam("report", written / "runs", "--json").out)
    recorded = json.loads((written / "report.json").read_text())
    for row, was in zip(report["rows"], recorded["rows"], strict=True):
        for name in ("attention", "head", "seeds", "accuracy", "macro_f1"):
            assert row[name] == was[name], name
