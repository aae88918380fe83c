"""An import goes on to the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.common.errors import ConfigError, GaamError, GaamWarning
from tests.cache.store.making import labels, run, save, states
from tests.conftest import shard_bytes

ARRAYS = {
    "X_train": states(30, seed=3),
    "y_train": labels(30),
    "X_test": states(9, seed=4),
    "y_test": labels(9),
}


def test_what_is_lost_or_damaged_is_made_again_and_no_other_cache(
    tmp_path: Path, tiny_cache: Path
) -> None:
    [file] = save(tmp_path / "all.npz", ARRAYS)
    run(file, out=tmp_path / "c")
    whole = shard_bytes(tmp_path / "c")
    receipts = sorted((tmp_path / "c" / "shards").glob("*.json"))
    receipts[0].unlink()
    receipts[2].write_text("{}")
    with pytest.raises(GaamError, match="gaam import"):
        gaam_cache.open_cache(tmp_path / "c")
    assert gaam_cache.verify(tmp_path / "c").maker == "gaam import"
    with pytest.warns(GaamWarning, match=receipts[2].stem):
        assert run(file, out=tmp_path / "c").shards_made == 2
    assert run(file, out=tmp_path / "c").shards_made == 0
    assert shard_bytes(tmp_path / "c") == whole
    for out in (tmp_path / "c", tiny_cache):
        before = shard_bytes(out)
        with pytest.raises(ConfigError, match="fingerprint"):
            run(file, out=out, storage_dtype="float16")
        assert shard_bytes(out) == before
