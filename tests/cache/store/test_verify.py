"""What ``gaam verify`` says: how a bad shard is repaired, what is missing, what can be removed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from tests.conftest import Outcome, shard_bytes

Gaam = Callable[..., Outcome]
NAME = "train-00002"


@pytest.fixture(scope="module")
def made(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> ExtractConfig:
    """A cache of three shards, to be copied."""
    config = ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=str(dataset),
        out=tmp_path_factory.mktemp("made") / "cache",
        splits=("train",),
        limit=30,
        shard_rows=10,
        batch_tokens=64,
    )
    gaam_cache.extract(config)
    return config


@pytest.fixture
def cache(made: ExtractConfig, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.out, tmp_path / "cache"))


def test_a_sound_cache_is_good(gaam: Gaam, made: ExtractConfig) -> None:
    before = shard_bytes(made.out)
    outcome = gaam("verify", made.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert "good" in outcome.out.splitlines()[0]
    about = json.loads(gaam("verify", made.out, "--json").out)
    assert (about["good"], about["shards"], about["rows"]) == (True, 3, 30)
    assert (about["missing"], about["bad"], about["leftovers"]) == ([], [], [])
    assert about["bytes"] == sum(len(b) for name, b in before.items() if name.endswith(".h5"))
    assert shard_bytes(made.out) == before
    assert gaam("verify", made.out, "--quick", "--recompute", 1).code == 2
    assert gaam("verify", made.out.parent).code == 2


def test_every_bad_shard_gets_one_line_whose_command_repairs_it(
    gaam: Gaam, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = next(cache.glob(f"shards/{NAME}-*.h5"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    (cache / "shards/train-00000.json").write_text("{")
    outcome = gaam("verify", cache)
    assert outcome.code == 3
    lines = [line for line in outcome.out.splitlines() if line.startswith("bad: ")]
    assert [line.split(": ")[1] for line in lines] == ["train-00000", NAME]
    monkeypatch.chdir("/")
    for line in lines:
        remove, extract = line.split("; repair: ")[1].split(" && ")
        command, target = shlex.split(remove)
        assert command == "rm"
        Path(target).unlink()
    outcome = gaam("verify", cache)
    assert (outcome.code, "incomplete" in outcome.out) == (3, True)
    assert f"missing: train-00000, {NAME}; make them: gaam extract" in outcome.out
    program, *arguments = shlex.split(extract)
    assert program == "gaam"
    more = ("--set", "batch-tokens=64", "-q")  # all that a plan does not record
    assert gaam(*arguments, *more).code == 0
    assert gaam("verify", cache).code == 0


@pytest.mark.parametrize("age", ["young", "old"])
@pytest.mark.parametrize("state", ["complete", "incomplete"])
def test_prune_removes_what_nobody_can_need_and_nothing_else(
    state: str, age: str, cache: Path, gaam: Gaam
) -> None:
    """Temporary files, and shard files without receipt: a writer may be about to link it."""
    ours = {"shards/.train-00001-01234567.h5.12.ab.tmp", ".cache.json.12.ab.tmp",
            "shards/train-00001-01234567.h5"}  # fmt: skip
    for name in (*ours, "shards/notes.txt", "shards/train-00099-01234567.h5", "shards/.hidden"):
        (cache / name).write_text("x")
    (cache / "shards/train-00000.json").write_text("{")  # may mean the file that is there
    if state == "incomplete":
        (cache / f"shards/{NAME}.json").unlink()
        ours |= {f"shards/{path.name}" for path in cache.glob(f"shards/{NAME}-*.h5")}
    if age == "old":
        for path in cache.rglob("*"):
            os.utime(path, (time.time() - 7200,) * 2)
    before = shard_bytes(cache)
    gone = set() if (state, age) == ("incomplete", "young") else ours
    assert set(gaam_cache.verify(cache).leftovers) == gone
    about = json.loads(gaam("verify", cache, "--prune", "--json").out)
    assert (set(about["pruned"]), about["leftovers"]) == (gone, [])
    assert set(before) - set(shard_bytes(cache)) == gone
