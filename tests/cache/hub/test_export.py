"""An exported cache is the cache, and names nothing of this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

import gaam_cache
from gaam_cache.common.errors import CacheError, ConfigError
from gaam_cache.store.plan import portable_name, read_plan
from tests.conftest import linked, shard_bytes


@pytest.mark.parametrize("linked", [False, True])
def test_it_is_the_cache_and_other_programs_read_it(
    linked: bool, tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError("no links here")

    if not linked:
        monkeypatch.setattr(os, "link", refuse)
    before, out = shard_bytes(tiny_cache), tmp_path / "out"
    made = gaam_cache.export_cache(tiny_cache, out)
    assert shard_bytes(tiny_cache) == before, "nothing of the cache was changed"
    assert {path.name for path in out.iterdir()} == {
        *("cache.json", "shards", "README.md", "FORMAT.md")
    }
    found = shard_bytes(out)
    shards = {name for name in before if name.startswith("shards/")}
    assert {name: found[name] for name in shards} == {
        name: before[name] for name in shards
    }
    assert {(tiny_cache / name).samefile(out / name) for name in shards} == {linked}
    assert (made.files, made.bytes) == (len(found), sum(map(len, found.values())))
    assert gaam_cache.verify(out).good
    one, other = gaam_cache.open_cache(tiny_cache), gaam_cache.open_cache(out)
    assert one.fingerprint == other.fingerprint
    for split in other:
        rows = datasets.load_dataset(str(out), split=split)
        assert rows["label"] == one[split].labels.tolist()
    head = yaml.safe_load((out / "README.md").read_text().split("---\n")[1])
    [config] = head["configs"]
    assert [part["split"] for part in config["data_files"]] == list(other)


def test_of_links_the_files_go_out_and_of_other_files_nothing(
    tiny_cache: Path, tmp_path: Path
) -> None:
    cache = Path(shutil.copytree(tiny_cache, tmp_path / "cache"))
    linked(cache, tmp_path / "annex")
    (tmp_path / "secret").write_text("mine")
    (cache / "shards" / "secret.h5").symlink_to(tmp_path / "secret")
    gaam_cache.export_cache(cache, tmp_path / "out")
    found = shard_bytes(tmp_path / "out")
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))
    shards = {
        n: b for n, b in shard_bytes(tiny_cache).items() if n.startswith("shards/")
    }
    assert {n: b for n, b in found.items() if n.startswith("shards/")} == shards
    for name in (
        "train-00000.json",
        "train-00000-*.h5",
    ):  # a file that is none of the cache's
        (path,) = cache.glob(f"shards/{name}")
        target = path.readlink()
        path.unlink()
        path.symlink_to(tmp_path / "secret")
        with pytest.raises(CacheError):
            gaam_cache.export_cache(cache, tmp_path / "leak")
        assert not (tmp_path / "leak").exists()
        path.unlink()
        path.symlink_to(target)


def test_nothing_of_others_is_replaced(tiny_cache: Path, tmp_path: Path) -> None:
    out, cache = tmp_path / "out", shutil.copytree(tiny_cache, tmp_path / "cache")
    gaam_cache.export_cache(cache, out)
    with pytest.raises(ConfigError, match="--overwrite"):
        gaam_cache.export_cache(cache, out)
    gaam_cache.export_cache(cache, out, overwrite=True)
    (out / "thesis.tex").write_text("!")
    other = shutil.copytree(tiny_cache, tmp_path / "other")
    for place in (out, other, cache, cache / "x"):
        with pytest.raises(ConfigError):
            gaam_cache.export_cache(cache, place, overwrite=True)
    assert shard_bytes(other) == shard_bytes(tiny_cache)
    assert (out / "thesis.tex").exists()


def test_a_portable_plan_names_no_path(tiny_cache: Path) -> None:
    names = {
        "/home/me/data.csv": "data.csv",
        "~me": "local",
        "C:\\Users\\me\\data.csv": "data.csv",
        "owner/name": "owner/name",
    }
    assert {name: portable_name(name) for name in names} == names
    plan = read_plan(tiny_cache)
    portable = plan.portable()
    assert str(tiny_cache.parent) in plan.to_json()
    assert str(tiny_cache.parent) not in portable.to_json()
    assert portable.fingerprint == plan.fingerprint
