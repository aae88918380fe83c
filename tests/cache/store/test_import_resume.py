"""An import goes on to the same bytes, and its files are read again to verify it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gaam_cache
from gaam_cache.errors import ConfigError, GaamError, GaamWarning
from tests.cache.store.forgery import replace_shard
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
    with pytest.raises(GaamError, match="the gaam import that made it again"):
        gaam_cache.open_cache(tmp_path / "c")
    found = gaam_cache.verify(tmp_path / "c")
    assert not found.good
    assert found.complete_with.startswith(f"gaam import {file} --out {tmp_path / 'c'}")
    with pytest.warns(GaamWarning, match="is made again"):
        assert run(file, out=tmp_path / "c").shards_made == 2
    assert run(file, out=tmp_path / "c").shards_made == 0
    assert shard_bytes(tmp_path / "c") == whole
    for out in (tmp_path / "c", tiny_cache):
        before = shard_bytes(out)
        with pytest.raises(ConfigError, match="holds another cache; nothing was changed"):
            run(file, out=out, storage_dtype="float16")
        assert shard_bytes(out) == before


def test_rows_are_read_again_from_their_files(tmp_path: Path) -> None:
    [file] = save(tmp_path / "all.npz", ARRAYS)
    run(file, out=tmp_path / "c", storage_dtype="bfloat16")
    found = gaam_cache.verify(tmp_path / "c", recompute_rows=39)
    assert found.good
    assert "39 rows read again from their files" in found.in_words()
    name = "test-00001"  # of other states, whose receipt was forged: bytes and receipt agree
    receipt = json.loads((tmp_path / f"c/shards/{name}.json").read_text())
    image = bytearray((tmp_path / "c/shards" / receipt["file"]).read_bytes())
    image[receipt["datasets"]["embeddings"]["offset"]] ^= 1
    replace_shard(tmp_path / "c", name, bytes(image))
    assert gaam_cache.verify(tmp_path / "c").good
    [bad] = gaam_cache.verify(tmp_path / "c", recompute_rows=39).bad
    assert bad.name == name
    assert "read again from their files, deviates by" in bad.reason
    save(file, {**ARRAYS, "y_test": labels(9)[::-1]})
    with pytest.raises(GaamError, match="no longer what the cache was made from"):
        gaam_cache.verify(tmp_path / "c", recompute_rows=1)
    gaam_cache.write(tmp_path / "d", {"train": (ARRAYS["X_train"], ARRAYS["y_train"])})
    with pytest.raises(GaamError, match="imported states cannot be computed again"):
        gaam_cache.verify(tmp_path / "d", recompute_rows=1)


def test_the_same_files_have_the_same_fingerprint_and_no_others(tmp_path: Path) -> None:
    seen = {}
    for suffix in ("npz", "h5", "safetensors"):
        for place in ("here", "there"):
            files = save(tmp_path / place / f"x.{suffix}", ARRAYS)
            found = run(*files, out=tmp_path / f"{suffix} {place}").fingerprint
            assert seen.setdefault(suffix, found) == found
    changed = ARRAYS["X_train"].copy()
    changed[20, 2, 3] = np.nextafter(changed[20, 2, 3], 9)
    for name, (given, options) in {
        "bit": (changed, {}),
        "storage": (ARRAYS["X_train"], {"storage_dtype": "float16"}),
        "classes": (ARRAYS["X_train"], {"class_names": ("a", "b", "c")}),
        "pool": (ARRAYS["X_train"], {"pool": "mean"}),
    }.items():
        made = gaam_cache.write(tmp_path / name, {"train": (given, labels(30))}, **options)  # type: ignore[arg-type]
        seen[name] = made.fingerprint
    assert len(set(seen.values())) == len(seen)
