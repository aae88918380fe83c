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
from tests.conftest import replace_by_links, shard_bytes


@pytest.mark.parametrize("linked", [False, True], ids=["copied", "linked"])
def test_it_is_the_cache_and_other_programs_read_it(
    linked: bool, tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError("no links here")

    if not linked:
        monkeypatch.setattr(os, "link", refuse)
    before = shard_bytes(tiny_cache)
    out = tmp_path / "out"
    export = gaam_cache.export_cache(tiny_cache, out)
    assert shard_bytes(tiny_cache) == before, "nothing of the cache was changed"
    names = {path.name for path in out.iterdir()}
    assert names == {"cache.json", "shards", "README.md", "FORMAT.md"}
    files = shard_bytes(out)
    assert shards_of(files) == shards_of(before)
    links = {(tiny_cache / name).samefile(out / name) for name in shards_of(before)}
    assert links == {linked}
    assert (export.files, export.bytes) == (len(files), sum(map(len, files.values())))
    assert gaam_cache.verify(out).good
    cache = gaam_cache.open_cache(tiny_cache)
    exported = gaam_cache.open_cache(out)
    assert exported.fingerprint == cache.fingerprint
    for split in exported:
        rows = datasets.load_dataset(str(out), split=split)
        assert rows["label"] == cache[split].labels.tolist()
    head = yaml.safe_load((out / "README.md").read_text().split("---\n")[1])
    [config] = head["configs"]
    assert [part["split"] for part in config["data_files"]] == list(exported)


def shards_of(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.startswith("shards/")}


@pytest.fixture
def links(tiny_cache: Path, tmp_path: Path) -> Path:
    """A cache whose files are links."""
    cache = Path(shutil.copytree(tiny_cache, tmp_path / "cache"))
    replace_by_links(cache, tmp_path / "annex")
    (tmp_path / "secret").write_text("mine")
    return cache


def test_of_links_the_files_go_out_and_of_other_files_nothing(
    links: Path, tiny_cache: Path, tmp_path: Path
) -> None:
    (links / "shards" / "secret.h5").symlink_to(tmp_path / "secret")
    out = tmp_path / "out"
    gaam_cache.export_cache(links, out)
    assert not any(path.is_symlink() for path in out.rglob("*"))
    assert shards_of(shard_bytes(out)) == shards_of(shard_bytes(tiny_cache))


@pytest.mark.parametrize("pattern", ["train-00000.json", "train-00000-*.h5"])
def test_a_link_to_a_file_that_is_none_of_the_caches_is_refused(
    pattern: str, links: Path, tmp_path: Path
) -> None:
    [path] = links.glob(f"shards/{pattern}")
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(CacheError):
        gaam_cache.export_cache(links, tmp_path / "leak")
    assert not (tmp_path / "leak").exists()


def test_nothing_of_others_is_replaced(tiny_cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cache = Path(shutil.copytree(tiny_cache, tmp_path / "cache"))
    gaam_cache.export_cache(cache, out)
    with pytest.raises(ConfigError, match="--overwrite"):
        gaam_cache.export_cache(cache, out)
    gaam_cache.export_cache(cache, out, overwrite=True)
    (out / "thesis.tex").write_text("!")
    other = shutil.copytree(tiny_cache, tmp_path / "other")
    for place in (out, other, cache, cache / "x"):
        with pytest.raises(ConfigError):
            gaam_cache.export_cache(cache, Path(place), overwrite=True)
    assert shard_bytes(other) == shard_bytes(tiny_cache)
    assert (out / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("name", "portable"),
    [
        ("/home/me/data.csv", "data.csv"),
        ("~me", "local"),
        ("C:\\Users\\me\\data.csv", "data.csv"),
        ("owner/name", "owner/name"),
    ],
)
def test_a_portable_name_is_no_path(name: str, portable: str) -> None:
    assert portable_name(name) == portable


def test_a_portable_plan_names_no_path(tiny_cache: Path) -> None:
    plan = read_plan(tiny_cache)
    portable = plan.portable()
    assert str(tiny_cache.parent) in plan.to_json()
    assert str(tiny_cache.parent) not in portable.to_json()
    assert portable.fingerprint == plan.fingerprint
