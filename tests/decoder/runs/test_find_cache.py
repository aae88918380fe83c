"""The cache of a run is found where it was, beside the runs or where one says; never another."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.errors import CacheError, NotFoundError
from gaam_cache.store.digest import sealed_text, unsealed
from gaam_cache.store.files import read_json
from gaam_cache.store.plan import fingerprint
from gaam_decoder import RunResult
from gaam_decoder.runs.folders import cache_of
from gaam_decoder.runs.loading import load_runs
from tests.conftest import GOLDEN


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A cache and its runs, moved together from where the runs say that the cache was."""
    return Path(shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "study"))


def some_run(study: Path, **about_cache: Any) -> RunResult:
    run = load_runs(study / "runs")[0]
    return dataclasses.replace(run, cache=run.cache | about_cache)


def another(cache: Path) -> None:
    """Make it a cache of another fingerprint."""
    content = unsealed(read_json(cache / "cache.json"))
    content["fingerprint_fields"]["salt"] = 1
    content["fingerprint"] = fingerprint(content["fingerprint_fields"])
    (cache / "cache.json").write_text(sealed_text(content))


def test_what_is_not_found_is_said_once_with_every_place_and_the_fingerprint(
    study: Path, tmp_path: Path
) -> None:
    run = some_run(study, path=str(tmp_path / "gone"))
    ours = run.cache["fingerprint"][:12]
    (study / "cache").rename(tmp_path / "elsewhere")
    with pytest.raises(NotFoundError) as nowhere:
        cache_of(run)
    for part in (str(tmp_path / "gone"), str(study / "cache"), ours, "--cache"):
        assert part in str(nowhere.value)
    assert cache_of(run, tmp_path / "elsewhere").fingerprint == run.cache["fingerprint"]
    with pytest.raises(NotFoundError):
        cache_of(run, tmp_path / "none")
    shutil.copytree(tmp_path / "elsewhere", study / "cache")
    another(study / "cache")
    with pytest.raises(CacheError, match=r"another cache, [0-9a-f]{12}"):
        cache_of(run)
    with pytest.raises(CacheError, match="not the cache that the run was trained on"):
        cache_of(run, study / "cache")
