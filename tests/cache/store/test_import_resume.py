"""An import goes on to the same bytes, and its files are read again to verify it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gaam_cache
from gaam_cache.errors import ConfigError, GaamError
from gaam_cache.store.digest import sealed_text, unsealed
from tests.cache.store.making import labels, run, save, states
from tests.conftest import shard_bytes

ROOT = Path(__file__).parents[3]
ARRAYS = {
    "X_train": states(30, seed=3),
    "y_train": labels(30),
    "X_test": states(9, seed=4),
    "y_test": labels(9),
}


def test_what_is_lost_or_damaged_is_made_again(tmp_path: Path) -> None:
    [file] = save(tmp_path / "all.npz", ARRAYS)
    run(file, out=tmp_path / "c")
    whole = shard_bytes(tmp_path / "c")
    receipts = sorted((tmp_path / "c" / "shards").glob("*.json"))
    receipts[0].unlink()
    receipts[2].write_text("{}")
    with pytest.raises(GaamError, match="incomplete") as incomplete:
        gaam_cache.open_cache(tmp_path / "c")
    assert "the gaam import that made it again" in str(incomplete.value)
    found = gaam_cache.verify(tmp_path / "c")
    assert not found.good
    assert found.complete_with.startswith(f"gaam import {file} --out {tmp_path / 'c'}")
    with pytest.warns(gaam_cache.errors.GaamWarning, match="is made again"):
        assert run(file, out=tmp_path / "c").shards_made == 2
    assert shard_bytes(tmp_path / "c") == whole
    assert run(file, out=tmp_path / "c").shards_made == 0


def test_rows_are_read_again_from_their_files(tmp_path: Path) -> None:
    [file] = save(tmp_path / "all.npz", ARRAYS)
    run(file, out=tmp_path / "c", storage_dtype="bfloat16")
    found = gaam_cache.verify(tmp_path / "c", recompute_rows=39)
    assert found.good
    assert "39 rows from their files" in found.in_words()
    save(file, {**ARRAYS, "y_test": labels(9)[::-1]})
    with pytest.raises(GaamError, match="no longer what the cache was made from"):
        gaam_cache.verify(tmp_path / "c", recompute_rows=1)
    file.unlink()
    with pytest.raises(GaamError, match="no file at"):
        gaam_cache.verify(tmp_path / "c", recompute_rows=1)
    assert gaam_cache.verify(tmp_path / "c").good
    gaam_cache.write(tmp_path / "d", {"train": (ARRAYS["X_train"], ARRAYS["y_train"])})
    with pytest.raises(GaamError, match="imported states cannot be computed again"):
        gaam_cache.verify(tmp_path / "d", recompute_rows=1)


def test_a_shard_that_is_not_that_of_the_files_is_found(tmp_path: Path) -> None:
    """A shard of other states whose receipt was forged: bytes and receipt agree."""
    [file] = save(tmp_path / "all.npz", ARRAYS)
    run(file, out=tmp_path / "c")
    name = "test-00001"
    receipt = json.loads((tmp_path / f"c/shards/{name}.json").read_text())
    shard, at = tmp_path / "c/shards" / receipt["file"], receipt["datasets"]["embeddings"]
    image = bytearray(shard.read_bytes())
    image[at["offset"] : at["offset"] + 4] = np.float32(0).tobytes()
    digest = hashlib.sha256(image).hexdigest()
    (tmp_path / "c/shards" / f"{name}-{digest[:8]}.h5").write_bytes(image)
    shard.unlink()
    forged = unsealed(receipt) | {"file": f"{name}-{digest[:8]}.h5", "sha256": digest}
    (tmp_path / f"c/shards/{name}.json").write_text(sealed_text(forged))
    assert gaam_cache.verify(tmp_path / "c").good
    found = gaam_cache.verify(tmp_path / "c", recompute_rows=39)
    assert [bad.name for bad in found.bad] == [name]
    assert "has other states than its files" in found.bad[0].reason


def test_two_at_once_make_the_same_bytes(tmp_path: Path) -> None:
    [file] = save(tmp_path / "all.npz", ARRAYS)
    run(file, out=tmp_path / "whole")
    code = (
        "import sys; from pathlib import Path; from tests.cache.store.making import run\n"
        "run(Path(sys.argv[1]), out=Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, str(file), str(tmp_path / "c")]
    pair = [subprocess.Popen(command, cwd=ROOT) for _ in "ab"]
    assert [one.wait() for one in pair] == [0, 0]
    assert gaam_cache.verify(tmp_path / "c", prune_leftovers=True).good
    assert shard_bytes(tmp_path / "c") == shard_bytes(tmp_path / "whole")


def test_another_cache_in_the_folder_is_refused(tmp_path: Path, tiny_cache: Path) -> None:
    [file] = save(tmp_path / "all.npz", ARRAYS)
    run(file, out=tmp_path / "c")
    for out in (tmp_path / "c", tiny_cache):
        before = shard_bytes(out)
        with pytest.raises(ConfigError, match="holds another cache; nothing was changed"):
            run(file, out=out, storage_dtype="float16")
        assert shard_bytes(out) == before
