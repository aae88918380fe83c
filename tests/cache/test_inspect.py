"""``gaam inspect`` of a cache says what can be known, and ends with 3 where something is bad."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_cache.inspect import inspect
from gaam_cache.store.plan import read_plan
from gaam_cache.store.shard import receipt_path
from gaam_cache.workers import Leases
from tests.cache.published import write_cache
from tests.cache.store.test_many_shards import number_everywhere
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    rows = {"train": 9, "test": 4}
    write_cache(tmp_path / "cache", rows, 2, 2, number_everywhere, shard_rows=3)
    return tmp_path / "cache"


def test_a_cache_is_complete_incomplete_or_damaged(cache: Path, gaam: Gaam) -> None:
    def look(code: int) -> tuple[list[str], list[str]]:
        """What is damaged and what is missing; people are told all of it."""
        outcome, about = (
            gaam("inspect", cache),
            json.loads(gaam("inspect", cache, "--json").out),
        )
        assert (outcome.code, outcome.err) == (code, "")
        damaged, missing = (
            [one["name"] for one in about["damage"]],
            about["missing_shards"],
        )
        assert [name for name in damaged if f"{name}: " not in outcome.out] == []
        assert (f"{5 - len(missing)} of 5 " in outcome.out) == bool(damaged or missing)
        assert about["complete"] == (not damaged and not missing)
        return damaged, missing

    assert look(0) == ([], [])
    assert "9 rows (a 5, b 4), 5.0 tokens" in gaam("inspect", cache).out
    for name in ("test-00000", "test-00001"):
        (shard,) = (cache / "shards").glob(f"{name}-*.h5")
        content = shard.read_bytes()
        shard.write_bytes(content[:-1] + b"\xff")
        assert look(3) == ([name], [])
        shard.write_bytes(content)
    (cache / "shards" / "train-00001.json").unlink()
    assert look(0) == ([], ["train-00001"])
    (cache / "shards" / "train-00000.json").write_text("{")
    assert look(3) == (["train-00000"], ["train-00001"])
    assert "train-00000.json" in inspect(cache).damage[0]["repair"]
    shutil.rmtree(cache / "shards")
    assert len(look(0)[1]) == 5


def test_of_an_unfinished_cache_who_is_at_work_is_told_and_who_has_died(
    cache: Path,
) -> None:
    shards = list(read_plan(cache).shards())
    us, nobody = Leases(cache).holder, 2**22 + 1  # no process has this number
    others = {
        shards[0].name: (us, False),
        shards[1].name: (us._replace(pid=nobody), True),
        shards[2].name: (
            us._replace(host="node7", machine="another", pid=nobody),
            False,
        ),
    }
    for count, (name, (holder, dead)) in enumerate(others.items(), start=1):
        receipt_path(cache, name).unlink()
        with Leases(cache / "leases", holder=holder) as leases:
            leases.take(name)
            found = inspect(cache)
        about = json.loads(json.dumps(found.to_dict()))
        assert (found.complete, found.damage) == (False, [])
        assert about["missing_shards"] == list(others)[:count]
        assert about["rows_done"] == 13 - sum(s.stop - s.start for s in shards[:count])
        (held,) = about["at_work"]
        assert (held["name"], held["process"], held["dead"]) == (name, holder.pid, dead)
        assert str(holder.pid) in found.in_words()
    assert inspect(cache).to_dict()["at_work"] == []  # given back


def test_a_cache_that_is_not_begun_says_who_reads_its_rows(
    tmp_path: Path, gaam: Gaam
) -> None:
    with Leases(tmp_path / "c" / "leases") as leases:
        leases.take("rows")
        about = json.loads(gaam("inspect", tmp_path / "c", "--json").out)
        assert str(os.getpid()) in gaam("inspect", tmp_path / "c").out
    assert (about["complete"], about["at_work"][0]["process"]) == (False, os.getpid())
