"""An import goes on to the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.common.errors import ConfigError, GaamError, GaamWarning
from tests.cache.store.making import labels, run, save, states
from tests.conftest import shard_bytes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two splits to be imported."""
    arrays = {
        "X_train": states(30, seed=3),
        "y_train": labels(30),
        "X_test": states(9, seed=4),
        "y_test": labels(9),
    }
    [file] = save(tmp_path / "all.npz", arrays)
    return file


@pytest.fixture
def cache(file: Path, tmp_path: Path) -> Path:
    out = tmp_path / "cache"
    run(file, out=out)
    return out


def test_what_is_lost_or_damaged_is_made_again(file: Path, cache: Path) -> None:
    expected = shard_bytes(cache)
    receipts = sorted((cache / "shards").glob("*.json"))
    receipts[0].unlink()
    receipts[2].write_text("{}")
    with pytest.raises(GaamError, match="gaam import"):
        gaam_cache.open_cache(cache)
    assert gaam_cache.verify(cache).maker == "gaam import"
    with pytest.warns(GaamWarning, match=receipts[2].stem):
        assert run(file, out=cache).shards_made == 2
    assert run(file, out=cache).shards_made == 0
    assert shard_bytes(cache) == expected


@pytest.mark.parametrize("name", ["cache", "tiny_cache"])
def test_another_cache_is_never_changed(
    name: str, file: Path, request: pytest.FixtureRequest
) -> None:
    """One with another storage type, and one that was extracted."""
    out = request.getfixturevalue(name)
    before = shard_bytes(out)
    with pytest.raises(ConfigError, match="fingerprint"):
        run(file, out=out, storage_dtype="float16")
    assert shard_bytes(out) == before
