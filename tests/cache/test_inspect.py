"""``gaam inspect`` of a cache says what can be known, and ends with 3 where something is bad."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache.published import write_cache
from tests.cache.reading.test_many_shards import number_everywhere
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    rows = {"train": 9, "test": 4}
    write_cache(tmp_path / "cache", rows, 2, 2, number_everywhere, shard_rows=3)
    return tmp_path / "cache"


def shard(cache: Path, name: str) -> Path:
    return next((cache / "shards").glob(f"{name}-*.h5"))


def test_a_sound_cache(cache: Path, gaam: Gaam) -> None:
    outcome = gaam("inspect", cache)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[0].endswith(": complete")
    assert "train        9 rows (a 5, b 4), 5.0 tokens on average" in outcome.out
    about = json.loads(gaam("inspect", cache, "--json").out)
    assert (about["complete"], about["damage"], about["shards"]) == (True, [], 5)


def test_several_damages_are_listed_and_what_is_whole_is_described(cache: Path, gaam: Gaam) -> None:
    (cache / "shards" / "train-00000.json").write_text("{")
    shard(cache, "train-00002").unlink()
    outcome = gaam("inspect", cache)
    assert (outcome.code, outcome.err) == (3, "")
    lines = outcome.out.splitlines()
    assert lines[0].endswith(": DAMAGED; 5 of 5 shards are there")
    assert "  train        9 rows" in lines
    assert any(line.startswith("  test         4 rows (a 2, b 2)") for line in lines)
    damaged = [line for line in lines if line.startswith("  damaged ")]
    assert ["train-00000: " in damaged[0], "train-00002: " in damaged[1]] == [True, True]
    assert all("; to do: delete " in line for line in damaged)
    outcome = gaam("inspect", cache, "--json")
    assert (outcome.code, len(json.loads(outcome.out)["damage"])) == (3, 2)


def test_changed_bytes_are_damage_too(cache: Path, gaam: Gaam) -> None:
    path = shard(cache, "test-00001")
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    outcome = gaam("inspect", cache)
    assert outcome.code == 3
    assert "the shard 'test-00001' is damaged" in outcome.out
    assert "(a 5, b 4)" in outcome.out


@pytest.mark.parametrize("what", ["text", "folder", "pipe", "dangling", "gone"])
def test_a_plan_that_cannot_be_used(what: str, cache: Path, gaam: Gaam) -> None:
    plan = cache / "cache.json"
    plan.unlink()
    if what == "text":
        plan.write_text("{}")
    elif what == "folder":
        plan.mkdir()
    elif what == "pipe":
        os.mkfifo(plan)
    elif what == "dangling":
        plan.symlink_to("/nowhere")
    outcome = gaam("inspect", cache)
    assert (outcome.code, outcome.err) == (3, "")
    lines = outcome.out.splitlines()
    assert lines[0].endswith(": DAMAGED, its plan cannot be used")
    assert "cache.json: the plan of the cache is unusable: " in lines[1]
    assert lines[2] == "  shards       5 with a receipt"
    about = json.loads(gaam("inspect", cache, "--json").out)
    assert (about["kind"], about["complete"], about["receipts"]) == ("cache", False, 5)


def test_more_damages_than_anybody_reads(tmp_path: Path, gaam: Gaam) -> None:
    write_cache(tmp_path / "c", {"train": 30}, 2, 2, number_everywhere, shard_rows=1)
    for path in (tmp_path / "c" / "shards").glob("*.h5"):
        path.unlink()
    outcome = gaam("inspect", tmp_path / "c")
    assert (outcome.code, len(outcome.out.splitlines())) == (3, 6 + 20 + 1)
    assert outcome.out.splitlines()[-1] == "  damaged      10 more"


def test_an_incomplete_cache_is_no_damaged_one(cache: Path, gaam: Gaam) -> None:
    (cache / "shards" / "train-00001.json").unlink()
    outcome = gaam("inspect", cache)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[0].endswith(": incomplete, 1 shards are missing")
    shutil.rmtree(cache / "shards")
    assert gaam("inspect", cache).out.splitlines()[0].endswith("incomplete, 5 shards are missing")
