"""A rank knows which of how many it is from what torchrun and SLURM set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gaam_cache.common.errors import ConfigError
from gaam_cache.workers import Rank, device_of, find_rank

Environments = list[dict[str, str]]


def torchrun(nodes: int, each: int) -> Environments:
    return [
        {
            "RANK": f"{node * each + local}",
            "WORLD_SIZE": f"{nodes * each}",
            "LOCAL_RANK": f"{local}",
            "LOCAL_WORLD_SIZE": f"{each}",
        }
        for node in range(nodes)
        for local in range(each)
    ]


def srun(nodes: int, each: int) -> Environments:
    """Tasks of a step, as SLURM 22.05 sets them."""
    return [
        {
            "SLURM_STEP_ID": "0",
            "SLURM_NTASKS": f"{nodes * each}",
            "SLURM_PROCID": f"{node * each + local}",
            "SLURM_LOCALID": f"{local}",
            "SLURM_STEP_NUM_TASKS": f"{nodes * each}",
            "SLURM_STEP_TASKS_PER_NODE": f"{each}(x{nodes})"
            if nodes > 1
            else f"{each}",
        }
        for node in range(nodes)
        for local in range(each)
    ]


def array(first: int, count: int, step: int = 1) -> Environments:
    """Tasks of an array; a batch script is told of a process too, and is no step."""
    return [
        {
            "SLURM_ARRAY_TASK_ID": f"{first + place * step}",
            "SLURM_ARRAY_TASK_MIN": f"{first}",
            "SLURM_ARRAY_TASK_STEP": f"{step}",
            "SLURM_ARRAY_TASK_COUNT": f"{count}",
            "SLURM_PROCID": "0",
            "SLURM_LOCALID": "0",
            "SLURM_NTASKS": "1",
        }
        for place in range(count)
    ]


def jobs() -> Iterator[tuple[str, Environments, int | None]]:
    """The environments of all ranks of a job, and how many a machine has, if known."""
    for nodes, each in ((1, 2), (3, 1), (2, 3)):
        yield f"torchrun {nodes} x {each}", torchrun(nodes, each), each
        yield f"srun {nodes} x {each}", srun(nodes, each), each
    for first, count, step in ((0, 2, 1), (1, 8, 1), (7, 3, 4)):
        name = f"array from {first}, {count} of step {step}"
        tasks = array(first, count, step)
        yield name, tasks, None
        single_steps = [task | srun(1, 1)[0] for task in tasks]
        yield f"{name}, a step of one", single_steps, None
        steps = [task | rank for task in tasks for rank in srun(2, 3)]
        yield f"{name}, steps of 2 x 3", steps, 3


JOBS = {name: (job, each) for name, job, each in jobs()}


@pytest.mark.parametrize("name", JOBS)
def test_the_numbers_of_all_ranks_are_those_from_0_and_begin_in_places_of_their_own(
    name: str,
) -> None:
    job, each = JOBS[name]
    ranks = [rank for rank in (find_rank(None, environ) for environ in job) if rank]
    count = len(job)
    assert sorted(rank.number for rank in ranks) == list(range(count))
    assert sorted(rank.start_fraction for rank in ranks) == [
        n / count for n in range(count)
    ]
    if each:
        assert [rank.number_on_machine for rank in ranks] == list(range(each)) * (
            count // each
        )
        assert {rank.workers_on_machine for rank in ranks} == {each}


def test_nodes_may_have_different_numbers_of_ranks() -> None:
    uneven = srun(1, 3)[0] | {"SLURM_STEP_TASKS_PER_NODE": "2,1"}
    assert find_rank(None, uneven) == Rank(0, 3, 0, 2)


ALONE: dict[str, dict[str, str]] = {
    "nobody": {},
    "torchrun": torchrun(1, 1)[0],
    "srun": srun(1, 1)[0],
    "array": array(0, 1)[0],
    "a rank of unknown many": {"RANK": "3"},
    "a batch script": {
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "8",
    },
}


@pytest.mark.parametrize("start", ALONE)
def test_who_is_started_alone_is_no_rank(start: str) -> None:
    assert find_rank(None, ALONE[start]) is None


@pytest.mark.parametrize(
    ("number", "count"), [("4", "4"), ("x", "2"), ("-1", "2"), ("1", "x")]
)
def test_a_rank_that_makes_no_sense_is_refused(number: str, count: str) -> None:
    with pytest.raises(ConfigError, match="RANK"):
        find_rank(None, {"RANK": number, "WORLD_SIZE": count})


@pytest.mark.parametrize("text", ["4/4", "0/0", "1", "-1/4", "a/b", "", "0/1\n"])
def test_an_option_that_is_no_rank_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        find_rank(text, {})


@pytest.mark.parametrize("num_gpus", [0, 1, 2, 4])
def test_ranks_of_one_machine_take_gpus_in_turn(
    num_gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    for local in range(6):
        rank = Rank(local, 6, local, 6)
        expected = f"cuda:{local % num_gpus}" if num_gpus > 1 else "auto"
        assert device_of(rank, "auto") == expected
        assert device_of(rank, "cuda:1") == "cuda:1"
    assert device_of(Rank(3, 4), "auto") == "auto"
