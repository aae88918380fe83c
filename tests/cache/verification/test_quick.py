"""``gaam verify --quick``: receipts and sizes, and not a byte of a shard."""

from __future__ import annotations

import builtins
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.errors import ConfigError
from tests.cache.published import number_everywhere, write_cache
from tests.cache.verification.damages import DAMAGES
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("quick") / "cache"
    write_cache(root, {"train": 9}, 2, 2, number_everywhere, shard_rows=3)
    return root


@pytest.fixture
def cache(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "cache"))


def test_every_damage_of_a_receipt_or_of_a_size_is_found(made: Path, tmp_path: Path) -> None:
    unseen = []
    receipt = json.loads((made / "shards" / "train-00000.json").read_text())
    for kind in ("receipt", "shard"):
        for damage in DAMAGES(60):
            cache = Path(shutil.copytree(made, tmp_path / "cache"))
            before = {f.name: f.stat().st_size for f in (cache / "shards").iterdir()}
            if damage.strike(cache, tmp_path / "memory", kind):
                found = gaam_cache.verify(cache, quick=True)
                files = list((cache / "shards").iterdir())
                plain = all(f.is_file() and not f.is_symlink() for f in files)
                same = plain and before == {f.name: f.stat().st_size for f in files}
                if found.good and kind == "receipt":  # white space counts for nothing
                    now = cache / "shards" / "train-00000.json"
                    assert json.loads(now.read_text()) == receipt, damage.name
                elif found.good:
                    assert same, damage.name
                    unseen.append(damage.name)
            shutil.rmtree(cache)
    assert len(unseen) >= 60  # bits of a shard: what hashing alone sees


def test_no_shard_is_opened(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    for module, name in ((os, "open"), (builtins, "open")):
        real = getattr(module, name)

        def spy(path: Any, *args: Any, _real: Any = real, **options: Any) -> Any:
            opened.append(str(path))
            return _real(path, *args, **options)

        monkeypatch.setattr(module, name, spy)
    assert gaam_cache.verify(cache, quick=True).good
    assert sum(path.endswith(".json") for path in opened) >= 4
    assert not [path for path in opened if path.endswith(".h5")]


def test_it_says_what_it_did_not_look_at(cache: Path, gaam: Gaam) -> None:
    (shard,) = (cache / "shards").glob("train-00001-*.h5")
    shard.write_bytes(shard.read_bytes().swapcase())
    outcome = gaam("verify", cache, "--quick")
    assert outcome.code == 0
    assert "what the shards hold was not looked at" in outcome.out
    assert "0.0 MB hashed" in outcome.out
    about = json.loads(gaam("verify", cache, "--quick", "--json").out)
    assert about["quick"] is True
    assert about["bytes"] == 0
    full = gaam("verify", cache, "--json")
    assert full.code == 3
    assert json.loads(full.out)["quick"] is False


def test_missing_and_bad_shards_end_with_3(cache: Path, gaam: Gaam) -> None:
    (cache / "shards" / "train-00000.json").unlink()
    (shard,) = (cache / "shards").glob("train-00002-*.h5")
    shard.write_bytes(b"")
    outcome = gaam("verify", cache, "--quick", "--json")
    assert outcome.code == 3
    about = json.loads(outcome.out)
    assert about["missing"] == ["train-00000"]
    assert [bad["name"] for bad in about["bad"]] == ["train-00002"]


def test_it_remembers_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    gaam_cache.verify(cache, quick=True)
    assert not (tmp_path / "user").exists()


def test_it_encodes_nothing(cache: Path) -> None:
    with pytest.raises(ConfigError, match="one of the two"):
        gaam_cache.verify(cache, quick=True, recompute_rows=1)
