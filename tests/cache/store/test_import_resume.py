"""Killed at any call that writes, an import goes on to the same bytes; its memory is bounded."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import gaam_cache
from gaam_cache.errors import ConfigError, GaamError
from tests.cache.store.making import labels, run, save, states
from tests.conftest import shard_bytes

ROOT = Path(__file__).parents[3]
ARRAYS = {
    "X_train": states(30, seed=3),
    "y_train": labels(30),
    "X_test": states(9, seed=4),
    "y_test": labels(9),
}
KILLER = """
import os, signal, sys
from pathlib import Path
import gaam_cache.store.importing  # every fork finds it loaded
from tests.cache.store.making import run

file, folder = Path(sys.argv[1]), Path(sys.argv[2])
CALLS = {name: getattr(os, name) for name in ("fsync", "link", "rename")}

def die_at(nth, count=[0]):
    for name, real in CALLS.items():
        def call(*arguments, real=real, **options):
            count[0] += 1
            if count[0] == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)
        setattr(os, name, call)

nth, ended = 0, False
while not ended:
    nth += 1
    child = os.fork()
    if child == 0:
        die_at(nth)
        run(file, out=folder / str(nth))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    ended = status == 0
    assert ended or os.WTERMSIG(status) == signal.SIGKILL, status
print(nth)
"""


def test_killed_at_any_call_it_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    rows = {"X_train": 9, "y_train": 9, "X_test": 4, "y_test": 4}
    file = save(tmp_path / "all.npz", {name: ARRAYS[name][:count] for name, count in rows.items()})
    run(file, out=tmp_path / "whole")
    whole = shard_bytes(tmp_path / "whole")
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(file), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    ended = int(done.stdout)
    assert ended > 20  # plan, three shards and three receipts, each with several calls
    incomplete = 0
    for nth in range(1, ended + 1):
        out = tmp_path / str(nth)
        try:
            gaam_cache.open_cache(out)
        except GaamError:
            incomplete += 1
        else:  # a reader takes nothing but all of it
            assert {name: whole[name] for name in shard_bytes(out)} == whole
        run(file, out=out)
        assert gaam_cache.verify(out, prune_leftovers=True).good
        assert shard_bytes(out) == whole, nth
    assert incomplete > 15


def test_what_is_lost_or_damaged_is_made_again(tmp_path: Path) -> None:
    file = save(tmp_path / "all.npz", ARRAYS)
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
    file = save(tmp_path / "all.npz", ARRAYS)
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
    """A shard of another import whose receipt was forged: bytes and receipt agree."""
    from gaam_cache.store.plan import read_plan
    from gaam_cache.store.shard import build_image, publish, receipt_path, shard_attributes

    file = save(tmp_path / "all.npz", ARRAYS)
    run(file, out=tmp_path / "c")
    root = tmp_path / "c"
    plan = read_plan(root)
    shard = next(plan.shards("test"))
    receipt = receipt_path(root, shard.name).read_text()
    count = shard.stop - shard.start
    arrays = {
        "embeddings": ("float32", np.zeros((count, 3, 4), np.float32)),
        "label": ("int64", labels(count)),
        "row": ("int64", np.arange(count)),
        "num_tokens": ("int32", np.ones(count)),
    }
    receipt_path(root, shard.name).unlink()
    image, specs = build_image(arrays, shard_attributes(plan, shard))
    place = {"split": "test", "start": shard.start, "stop": shard.stop, "truncated": 0}
    publish(root, shard.name, image, {"fingerprint": plan.fingerprint, "datasets": specs, **place})
    assert receipt != receipt_path(root, shard.name).read_text()
    assert gaam_cache.verify(root).good
    found = gaam_cache.verify(root, recompute_rows=39)
    assert [bad.name for bad in found.bad] == [shard.name]
    assert "has other states than its files" in found.bad[0].reason


def test_two_at_once_share_the_work(tmp_path: Path) -> None:
    file = save(tmp_path / "all.npz", ARRAYS)
    run(file, out=tmp_path / "whole")
    code = (
        "import sys; from pathlib import Path; from tests.cache.store.making import run\n"
        "print(run(Path(sys.argv[1]), out=Path(sys.argv[2])).shards_made)"
    )
    command = [sys.executable, "-c", code, str(file), str(tmp_path / "c")]
    pair = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    made = [int(one.communicate()[0]) for one in pair]
    assert sum(made) >= 6
    assert gaam_cache.verify(tmp_path / "c", prune_leftovers=True).good
    assert shard_bytes(tmp_path / "c") == shard_bytes(tmp_path / "whole")


MEASURE = """
import resource, sys
from pathlib import Path
from gaam_cache.import_config import ImportConfig
from gaam_cache.store.importing import import_states
import h5py, numpy
small, large, out = sys.argv[1:]
config = lambda file, name: ImportConfig(files=(file,), out=Path(out) / name, shard_rows=64)
import_states(config(small, "small"))  # what a first import loads
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
import_states(config(large, "large"))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "compressed.npz", "h5"])
def test_memory_does_not_grow_with_the_rows(suffix: str, tmp_path: Path) -> None:
    """100 MB of states in shards of 3 MB."""
    pattern = np.arange(24 * 512, dtype=np.float32).reshape(1, 24, 512)
    for name, rows in (("small", 64), ("large", 2048)):
        given = pattern + np.arange(rows, dtype=np.float32)[:, None, None]
        file, arrays = tmp_path / name / f"train.{suffix}", {"X": given, "y": labels(rows)}
        if suffix != "compressed.npz":
            save(file, arrays)
            continue
        file.parent.mkdir()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for array in arrays:
                with archive.open(f"{array}.npy", "w") as member:
                    np.save(member, arrays[array])
    files = [str(tmp_path / name / f"train.{suffix}") for name in ("small", "large")]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *files, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 40, f"{done.stdout} MB more for 32 times as many rows"


def test_another_cache_in_the_folder_is_refused(tmp_path: Path, tiny_cache: Path) -> None:
    file = save(tmp_path / "all.npz", ARRAYS)
    before = shard_bytes(tiny_cache)
    with pytest.raises(ConfigError, match="holds another cache; nothing was changed"):
        run(file, out=tiny_cache)
    assert shard_bytes(tiny_cache) == before
