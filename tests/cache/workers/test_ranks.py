"""Who somebody else started knows which of how many it is, by what torchrun and SLURM say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gaam_cache.common.errors import ConfigError
from gaam_cache.workers import Rank, device_of, find_rank

Environments = list[dict[str, str]]


def torchrun(nodes: int, each: int) -> Environments:
    return [
        {"RANK": f"{node * each + local}", "WORLD_SIZE": f"{nodes * each}",
         "LOCAL_RANK": f"{local}", "LOCAL_WORLD_SIZE": f"{each}"}
        for node in range(nodes)
        for local in range(each)
    ]  # fmt: skip


def srun(nodes: int, each: int) -> Environments:
    """Tasks of a step, as SLURM 22.05 sets them."""
    return [
        {"SLURM_STEP_ID": "0", "SLURM_NTASKS": f"{nodes * each}",
         "SLURM_PROCID": f"{node * each + local}", "SLURM_LOCALID": f"{local}",
         "SLURM_STEP_NUM_TASKS": f"{nodes * each}",
         "SLURM_STEP_TASKS_PER_NODE": f"{each}(x{nodes})" if nodes > 1 else f"{each}"}
        for node in range(nodes)
        for local in range(each)
    ]  # fmt: skip


def array(first: int, count: int, step: int = 1) -> Environments:
    """Tasks of an array; a batch script is told of a process too, and is no step."""
    return [
        {"SLURM_ARRAY_TASK_ID": f"{first + place * step}", "SLURM_ARRAY_TASK_MIN": f"{first}",
         "SLURM_ARRAY_TASK_STEP": f"{step}", "SLURM_ARRAY_TASK_COUNT": f"{count}",
         "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1"}
        for place in range(count)
    ]  # fmt: skip


def every_job() -> Iterator[tuple[Environments, int | None]]:
    """The environments of all its ranks, and how many are on a machine, where that is said."""
    for nodes, each in ((1, 2), (3, 1), (2, 3)):
        yield torchrun(nodes, each), each
        yield srun(nodes, each), each
    for one in (array(0, 2), array(1, 8), array(7, 3, 4)):
        yield one, None
        yield [task | srun(1, 1)[0] for task in one], None
        yield [task | step for task in one for step in srun(2, 3)], 3


def test_the_numbers_of_all_ranks_are_those_from_0_and_begin_in_places_of_their_own() -> (
    None
):
    for job, each in every_job():
        found = [rank for environ in job if (rank := find_rank(None, environ))]
        assert sorted(rank.number for rank in found) == list(range(len(job)))
        assert sorted(rank.start for rank in found) == [
            n / len(job) for n in range(len(job))
        ]
        if each:
            assert [rank.local for rank in found] == list(range(each)) * (
                len(job) // each
            )
            assert {rank.workers_on_machine for rank in found} == {each}
    uneven = srun(1, 3)[0] | {"SLURM_STEP_TASKS_PER_NODE": "2,1"}
    assert find_rank(None, uneven) == Rank(0, 3, 0, 2)


def test_who_is_started_alone_is_no_rank() -> None:
    alone = [{}, torchrun(1, 1)[0], srun(1, 1)[0], array(0, 1)[0], {"RANK": "3"}]
    alone += [{"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8"}]
    assert {find_rank(None, environ) for environ in alone} == {None}


def test_what_makes_no_sense_is_refused() -> None:
    for number, count in (("4", "4"), ("x", "2"), ("-1", "2"), ("1", "x")):
        with pytest.raises(ConfigError, match="RANK"):
            find_rank(None, {"RANK": number, "WORLD_SIZE": count})
    for text in ("4/4", "0/0", "1", "-1/4", "a/b", "", "0/1\n"):
        with pytest.raises(ConfigError):
            find_rank(text, {})


def test_ranks_of_one_machine_take_gpus_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for gpus in (0, 1, 2, 4):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpus=gpus: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        for local in range(6):
            rank = Rank(local, 6, local, 6)
            assert device_of(rank, "auto") == (
                f"cuda:{local % gpus}" if gpus > 1 else "auto"
            )
            assert device_of(rank, "cuda:1") == "cuda:1"
        assert device_of(Rank(3, 4), "auto") == "auto"
