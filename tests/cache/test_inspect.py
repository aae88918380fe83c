"""``gaam inspect`` of a cache says what can be known; it ends with 3 on damage."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gaam_cache.inspect import inspect
from gaam_cache.store.plan import read_plan
from gaam_cache.store.shard import receipt_path
from gaam_cache.workers import Leases
from tests.cache.published import number_everywhere, write_cache
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
NUM_SHARDS = 5
NO_PROCESS = 2**22 + 1
"""A number that no process has."""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    rows = {"train": 9, "test": 4}
    write_cache(folder, rows, 2, 2, number_everywhere, shard_rows=3)
    return folder


class Findings(NamedTuple):
    """The names of shards that are damaged, and of those that are missing."""

    damaged: list[str]
    missing: list[str]


def findings_of(gaam: Gaam, cache: Path) -> Findings:
    """The findings of the command; people are told all of them."""
    text = gaam("inspect", cache)
    content = json.loads(gaam("inspect", cache, "--json").out)
    findings = Findings(
        [damage["name"] for damage in content["damage"]], content["missing_shards"]
    )
    assert text.code == (3 if findings.damaged else 0)
    assert text.err == ""
    for name in findings.damaged:
        assert f"{name}: " in text.out
    is_complete = not findings.damaged and not findings.missing
    assert content["complete"] == is_complete
    num_present = NUM_SHARDS - len(findings.missing)
    assert (f"{num_present} of {NUM_SHARDS} " in text.out) == (not is_complete)
    return findings


def test_a_complete_cache(cache: Path, gaam: Gaam) -> None:
    assert findings_of(gaam, cache) == Findings([], [])
    assert "9 rows (a 5, b 4), 5.0 tokens" in gaam("inspect", cache).out


@pytest.mark.parametrize("name", ["test-00000", "test-00001"])
def test_a_shard_with_another_byte_is_damaged(
    name: str, cache: Path, gaam: Gaam
) -> None:
    [shard] = cache.glob(f"shards/{name}-*.h5")
    shard.write_bytes(shard.read_bytes()[:-1] + b"\xff")
    assert findings_of(gaam, cache) == Findings([name], [])


def test_a_shard_without_a_receipt_is_missing(cache: Path, gaam: Gaam) -> None:
    receipt_path(cache, "train-00001").unlink()
    assert findings_of(gaam, cache) == Findings([], ["train-00001"])
    receipt_path(cache, "train-00000").write_text("{")
    assert findings_of(gaam, cache) == Findings(["train-00000"], ["train-00001"])
    assert "train-00000.json" in inspect(cache).damage[0]["repair"]


def test_without_a_folder_of_shards_all_are_missing(cache: Path, gaam: Gaam) -> None:
    shutil.rmtree(cache / "shards")
    findings = findings_of(gaam, cache)
    assert findings.damaged == []
    assert len(findings.missing) == NUM_SHARDS


def this_process(holder: Any) -> Any:
    return holder


def a_process_that_died(holder: Any) -> Any:
    return holder._replace(pid=NO_PROCESS)


def a_process_of_another_machine(holder: Any) -> Any:
    """Nobody can know whether it has died."""
    return holder._replace(host="node7", machine="another", pid=NO_PROCESS)


@pytest.mark.parametrize(
    ("change_holder", "is_dead"),
    [
        (this_process, False),
        (a_process_that_died, True),
        (a_process_of_another_machine, False),
    ],
)
def test_of_an_unfinished_cache_who_is_at_work_is_told_and_who_has_died(
    change_holder: Callable[[Any], Any], is_dead: bool, cache: Path
) -> None:
    shards = list(read_plan(cache).shards())
    missing = shards[:2]
    for shard in missing:
        receipt_path(cache, shard.name).unlink()
    name = missing[1].name
    holder = change_holder(Leases(cache).holder)
    with Leases(cache / "leases", holder=holder) as leases:
        leases.take(name)
        result = inspect(cache)
    assert not result.complete
    assert result.damage == []
    assert str(holder.pid) in result.in_words()
    content = json.loads(json.dumps(result.to_dict()))
    assert content["missing_shards"] == [shard.name for shard in missing]
    assert content["rows_done"] == 13 - sum(shard.num_rows for shard in missing)
    [lease] = content["at_work"]
    assert lease["name"] == name
    assert lease["process"] == holder.pid
    assert lease["dead"] == is_dead
    # the lease was given back
    assert inspect(cache).to_dict()["at_work"] == []


def test_a_cache_that_is_not_begun_says_who_reads_its_rows(
    tmp_path: Path, gaam: Gaam
) -> None:
    cache = tmp_path / "cache"
    with Leases(cache / "leases") as leases:
        leases.take("rows")
        content = json.loads(gaam("inspect", cache, "--json").out)
        text = gaam("inspect", cache).out
    assert str(os.getpid()) in text
    assert not content["complete"]
    assert content["at_work"][0]["process"] == os.getpid()
