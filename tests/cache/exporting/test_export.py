"""An exported cache is the cache; what is damaged is not exported."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

import gaam_cache
import gaam_decoder
from gaam_cache.errors import CacheError, ConfigError, NotFoundError
from gaam_cache.exporting import export
from gaam_cache.exporting.export import OWN_FILES, export_cache
from gaam_cache.store.plan import portable_name, portable_plan, read_plan
from gaam_decoder import TrainConfig
from tests.conftest import shard_bytes


@pytest.mark.parametrize("copy", [False, True])
def test_it_is_the_cache(copy: bool, tiny_cache: Path, tmp_path: Path) -> None:
    before = shard_bytes(tiny_cache)
    out = tmp_path / "out"
    made = export_cache(tiny_cache, out, copy=copy)
    assert shard_bytes(tiny_cache) == before, "nothing of the cache was changed"
    assert {path.name for path in out.iterdir()} == set(OWN_FILES)
    found = shard_bytes(out)
    shards = {name for name in before if name.startswith("shards/")}
    assert {name: found[name] for name in shards} == {name: before[name] for name in shards}
    linked = [(tiny_cache / name).samefile(out / name) for name in shards]
    assert set(linked) == {not copy}
    assert made.linked == (0 if copy else len(shards))
    assert made.files == len(found)
    assert made.bytes == sum(map(len, found.values()))
    assert gaam_cache.verify(out).good
    assert not gaam_cache.verify(out).leftovers
    one, other = gaam_cache.open_cache(tiny_cache), gaam_cache.open_cache(out)
    assert one.fingerprint == other.fingerprint
    options = {"attn": ("gaam",), "seeds": (0,), "epochs": 1, "compile": "off"}
    logits = [
        gaam_decoder.train(TrainConfig(cache=cache, runs=tmp_path / name, **options))[0].logits
        for name, cache in (("a", tiny_cache), ("b", out))
    ]
    assert logits[0].tobytes() == logits[1].tobytes()


def test_where_no_link_can_be_files_are_copied(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):

        def refuse(*arguments: object, number: int = number, **options: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "link", refuse)
        out = tmp_path / str(number)
        assert export_cache(tiny_cache, out).linked == 0
        assert gaam_cache.verify(out).good


def test_other_programs_read_it(tiny_cache: Path, tmp_path: Path) -> None:
    import datasets

    out = tmp_path / "out"
    export_cache(tiny_cache, out)
    cache = gaam_cache.open_cache(out)
    for split in cache:
        rows = datasets.load_dataset(str(out), split=split)
        assert rows.num_rows == len(cache[split])
        assert rows["label"] == cache[split].labels.tolist()


def test_an_incomplete_or_damaged_cache_is_not_exported(tiny_cache: Path, tmp_path: Path) -> None:
    """Of every file of a cache: it is gone, cut off, or has a bit changed."""
    names = sorted(shard_bytes(tiny_cache))
    assert len(names) > 3
    for number, name in enumerate(names):
        for how in ("gone", "cut", "changed"):
            cache = shutil.copytree(tiny_cache, tmp_path / f"{number}-{how}")
            content = bytearray((cache / name).read_bytes())
            (cache / name).unlink()
            if how == "cut":
                (cache / name).write_bytes(content[: len(content) // 2])
            elif how == "changed":
                content[len(content) // 2] ^= 1
                (cache / name).write_bytes(content)
            with pytest.raises((CacheError, NotFoundError)):
                export_cache(cache, tmp_path / "out")
            assert not any(path.name.startswith((".", "out")) for path in tmp_path.iterdir())
            shutil.rmtree(cache)


def test_nothing_of_others_is_replaced(tiny_cache: Path, tmp_path: Path) -> None:
    out, cache = tmp_path / "out", shutil.copytree(tiny_cache, tmp_path / "cache")
    export_cache(cache, out)
    with pytest.raises(ConfigError, match="is there already"):
        export_cache(cache, out)
    export_cache(cache, out, overwrite=True)
    (out / "thesis.tex").write_text("!")
    other = shutil.copytree(tiny_cache, tmp_path / "other")
    for place in (out, other):
        with pytest.raises(ConfigError, match="is there already"):
            export_cache(cache, place, overwrite=True)
    for place in (cache, cache / "shards" / "x", cache / "x"):
        with pytest.raises(ConfigError, match="into itself"):
            export_cache(cache, place, overwrite=True)
    assert shard_bytes(other) == shard_bytes(tiny_cache)
    assert (out / "thesis.tex").exists()


@pytest.mark.parametrize("step", ["card", "_check", "write_synced"])
def test_it_is_there_whole_or_not_at_all(
    step: str, tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(export, step, fail)
    with pytest.raises(KeyboardInterrupt):
        export_cache(tiny_cache, tmp_path / "out")
    assert not list(tmp_path.iterdir())


NAMES = {
    "/home/me/data.csv": "data.csv",
    "/": "local",
    "~": "local",
    "~/x/data": "data",
    "~me": "local",
    ".": "local",
    "..": "local",
    "../..": "local",
    "./me/secret/data.csv": "data.csv",
    "me/secret/data.csv": "data.csv",
    "me/secret/": "secret",
    "C:\\Users\\me\\data.csv": "data.csv",
    "owner/name": "owner/name",
    "news-sample": "news-sample",
    "my states, second try": "my states, second try",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_keep_their_last_part(name: str) -> None:
    assert portable_name(name) == NAMES[name]
    assert "/" not in portable_name(name, local=True)


def test_a_portable_plan_is_one_already(tiny_cache: Path) -> None:
    plan = read_plan(tiny_cache)
    portable = portable_plan(plan)
    assert portable != plan
    assert portable_plan(portable) == portable
    assert portable.fingerprint == plan.fingerprint
    assert portable.fingerprint_fields == plan.fingerprint_fields


def test_the_card_names_kept_columns_and_splits(tiny_cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_cache(tiny_cache, out)
    head = yaml.safe_load((out / "README.md").read_text().split("---\n")[1])
    [config] = head["configs"]
    assert [one["split"] for one in config["data_files"]] == ["train", "test"]
    plan = json.loads((out / "cache.json").read_text())
    assert all(f"| {n:,} |" in (out / "README.md").read_text() for n in plan["rows"].values())


@pytest.mark.parametrize("name", ["/home/someone/e", "~/someone/e", "C:\\Users\\someone\\e"])
@pytest.mark.parametrize("option", ["encoder_name", "dataset_name"])
def test_names_of_imported_states_are_no_paths(option: str, name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", embeddings=np.ones((4, 2, 3), "f4"), labels=[0, 1, 0, 1])
    config = gaam_cache.ImportConfig(
        files=(str(tmp_path / "train.npz"),), out=tmp_path / "cache", **{option: name}
    )
    gaam_cache.import_states(config)
    gaam_cache.export_cache(tmp_path / "cache", tmp_path / "out")
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or b"someone" not in file.read_bytes(), file
    assert gaam_cache.verify(tmp_path / "out").good
