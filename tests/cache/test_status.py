"""How far a cache is, told while others write it."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.engines.sharing.holder import content_of, this_process
from gaam_cache.engines.sharing.holdings import holdings
from gaam_cache.engines.sharing.lease import Leases
from gaam_cache.engines.sharing.undone import LEASE_FOLDER
from gaam_cache.errors import GaamWarning, NotFoundError
from gaam_cache.format.plan import read_plan
from gaam_cache.format.receipt import SHARD_FOLDER, receipt_path
from gaam_cache.status import status

DEAD = 2**22 + 1
"""No process has this number."""


def test_every_part_of_a_cache_is_counted(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(tiny_config)
    plan = read_plan(tiny_config.out)
    shards = list(plan.shards())
    assert status(tiny_config.out).complete
    order = random.Random(3).sample(shards, len(shards))
    for count, shard in enumerate(order, start=1):
        receipt_path(tiny_config.out, shard.name).unlink()
        found = status(tiny_config.out)
        left = [s for s in shards if s not in order[:count]]
        assert not found.complete
        assert (found.shards, found.done) == (len(shards), len(left))
        assert found.rows_done == sum(s.stop - s.start for s in left)
        assert sum(of["done"] for of in found.splits.values()) == len(left)
        assert found.rows == sum(plan.rows.values())
        assert found.at_work == ()
        assert found.rows_per_second is None
        assert "nobody" in found.in_words()
        assert json.loads(json.dumps(found.to_dict()))["done"] == len(left)


def test_a_shard_whose_file_was_deleted_is_not_done(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(tiny_config)
    files = sorted((tiny_config.out / SHARD_FOLDER).glob("*.h5"))
    for count, file in enumerate(files, start=1):
        file.unlink()
        found = status(tiny_config.out)
        assert not found.complete
        assert found.done == found.shards - count
    with pytest.warns(GaamWarning):
        gaam_cache.extract(tiny_config)
    assert status(tiny_config.out).complete


def test_who_is_at_work_is_told_and_who_has_died(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(tiny_config)
    shards = list(read_plan(tiny_config.out).shards())
    folder = tiny_config.out / LEASE_FOLDER
    us = this_process()
    others = {
        shards[0].name: (us, False),
        shards[1].name: (us._replace(pid=DEAD), True),
        shards[2].name: (us._replace(host="node7", machine="another", pid=DEAD), False),
    }
    for name, (holder, dead) in others.items():
        receipt_path(tiny_config.out, name).unlink()
        with Leases(folder, us=holder) as leases:
            leases.take(name)
            found = {one.name: one for one in status(tiny_config.out).at_work}
            assert found[name].dead == dead
            assert found[name].host == holder.host
            assert found[name].process == holder.pid
            assert f"process {holder.pid}" in status(tiny_config.out).in_words()
        assert name not in {one.name for one in status(tiny_config.out).at_work}  # given back


def test_the_rate_is_that_of_the_receipts(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(tiny_config)
    shards = list(read_plan(tiny_config.out).shards())
    for base in (0.0, 1e9, 4e9):  # whatever the server's clock says
        for place, shard in enumerate(shards[:-1]):
            times = (base + 10.0 * place, base + 10.0 * place)
            os.utime(receipt_path(tiny_config.out, shard.name), times)
        receipt_path(tiny_config.out, shards[-1].name).unlink(missing_ok=True)
        with Leases(tiny_config.out / LEASE_FOLDER) as leases:
            leases.take(shards[-1].name)
            found = status(tiny_config.out)
        rows = sum(s.stop - s.start for s in shards[1:-1])
        assert found.rows_per_second == pytest.approx(rows / (10.0 * (len(shards) - 2)))
        left = shards[-1].stop - shards[-1].start
        assert found.seconds_left == pytest.approx(left / found.rows_per_second)
        assert "left" in found.in_words()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"pid": -1}', b"\xff" * 5000])
def test_what_is_no_lease_is_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.0").write_bytes(content)
    (tmp_path / "y.0").mkdir()
    (tmp_path / ".z.0.5.ab.tmp").write_bytes(content_of(this_process()))
    assert holdings(tmp_path) == []
    assert holdings(tmp_path / "nowhere") == []


def test_the_last_lease_of_a_name_counts(tmp_path: Path) -> None:
    us = this_process()
    for number in range(12):
        (tmp_path / f"a.b.{number}").write_bytes(content_of(replace_pid(us, number + 1)))
    assert [(one.name, one.process) for one in holdings(tmp_path)] == [("a.b", 12)]


def replace_pid(holder: object, pid: int) -> object:
    return holder._replace(pid=pid)  # type: ignore[attr-defined]


def test_a_cache_that_is_not_begun_says_who_reads_its_rows(tiny_config: ExtractConfig) -> None:
    with pytest.raises(NotFoundError):
        status(tiny_config.out)
    tiny_config.out.mkdir()
    with Leases(tiny_config.out / LEASE_FOLDER) as leases:
        leases.take("rows")
        with pytest.raises(NotFoundError, match="is there yet") as caught:
            status(replace(tiny_config).out)
        assert str(os.getpid()) in str(caught.value)
