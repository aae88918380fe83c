from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from gaam_cache.engines._ranks import Rank, device_of, find_rank
from gaam_cache.errors import ConfigError

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
    spread = f"{each}(x{nodes})" if nodes > 1 else f"{each}"
    return [
        {
            "SLURM_JOB_ID": "12",
            "SLURM_STEP_ID": "0",
            "SLURM_NTASKS": f"{nodes * each}",
            "SLURM_PROCID": f"{node * each + local}",
            "SLURM_LOCALID": f"{local}",
            "SLURM_STEP_NUM_TASKS": f"{nodes * each}",
            "SLURM_STEP_TASKS_PER_NODE": spread,
        }
        for node in range(nodes)
        for local in range(each)
    ]


def array(first: int, count: int, step: int = 1) -> Environments:
    return [
        {
            "SLURM_JOB_ID": f"{20 + place}",
            "SLURM_ARRAY_JOB_ID": "20",
            "SLURM_ARRAY_TASK_ID": f"{first + place * step}",
            "SLURM_ARRAY_TASK_MIN": f"{first}",
            "SLURM_ARRAY_TASK_MAX": f"{first + (count - 1) * step}",
            "SLURM_ARRAY_TASK_STEP": f"{step}",
            "SLURM_ARRAY_TASK_COUNT": f"{count}",
            # a batch script is told so too, and is no step
            "SLURM_PROCID": "0",
            "SLURM_LOCALID": "0",
            "SLURM_NTASKS": "1",
        }
        for place in range(count)
    ]


def every_job() -> Iterator[tuple[str, Environments]]:
    for nodes in range(1, 5):
        for each in range(1, 5):
            if nodes * each > 1:
                yield f"torchrun, {nodes} x {each}", torchrun(nodes, each)
                yield f"srun, {nodes} x {each}", srun(nodes, each)
    for first in (0, 1, 7):
        for count in (2, 3, 8):
            for step in (1, 4):
                yield f"array {first}, {count}, {step}", array(first, count, step)
                one_each = [one | srun(1, 1)[0] for one in array(first, count, step)]
                yield f"array {first}, {count}, {step} of single steps", one_each
                both = [one | task for one in array(first, count, step) for task in srun(2, 3)]
                yield f"array {first}, {count}, {step} of steps", both
    yield "--rank", [{"--rank": f"{number}/5"} for number in range(5)]


def test_the_numbers_of_all_ranks_are_those_from_0_and_begin_in_places_of_their_own() -> None:
    for name, job in every_job():
        found = [find_rank(environ.get("--rank"), environ) for environ in job]
        assert all(rank is not None for rank in found), name
        known = [rank for rank in found if rank is not None]
        assert sorted(rank.number for rank in known) == list(range(len(job))), name
        assert {rank.total for rank in known} == {len(job)}, name
        assert sorted(rank.start for rank in known) == [n / len(job) for n in range(len(job))]
        assert all(0 <= rank.start < 1 for rank in known)


def test_a_rank_knows_its_number_on_its_machine_and_how_many_are_there() -> None:
    for nodes in range(1, 4):
        for each in range(1, 4):
            if nodes * each == 1:
                continue
            for job in (torchrun(nodes, each), srun(nodes, each)):
                found = [find_rank(None, environ) for environ in job]
                locals_ = [rank.local for rank in found if rank]
                assert locals_ == list(range(each)) * nodes
                assert {rank.here for rank in found if rank} == {each}
    uneven = srun(1, 3)[0] | {"SLURM_STEP_TASKS_PER_NODE": "2,1"}
    assert find_rank(None, uneven) == Rank(0, 3, 0, 2)


ALONE: dict[str, dict[str, str]] = {
    "nothing": {},
    "a world of one": torchrun(1, 1)[0],
    "a step of one": srun(1, 1)[0],
    "an array of one": array(0, 1)[0],
    "a batch script of several tasks": {
        "SLURM_JOB_ID": "3",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "8",
        "SLURM_NPROCS": "8",
        "SLURM_TASKS_PER_NODE": "4(x2)",
    },
    "an interactive step": {
        "SLURM_STEP_ID": "4294967290",
        "SLURM_PROCID": "0",
        "SLURM_STEP_NUM_TASKS": "1",
        "SLURM_NTASKS": "8",
    },
    "a rank without a world": {"RANK": "3"},
    "a world without a rank": {"WORLD_SIZE": "4"},
    "a task without a count": {"SLURM_ARRAY_TASK_ID": "3"},
}


@pytest.mark.parametrize("name", ALONE)
def test_who_is_started_alone_is_no_rank(name: str) -> None:
    assert find_rank(None, ALONE[name]) is None


NONSENSE = [
    "",
    " ",
    "x",
    "-1",
    "1.0",
    "1e3",
    "0x1",
    "\u0661",
    "9" * 10,
    "9" * 4000,
    "1 2",
    "\n",
    "\x00",
]


def found_or_refused(environ: dict[str, str]) -> Rank | None:
    """The rank; of one that there cannot be, the refusal names what was found."""
    try:
        return find_rank(None, environ)
    except ConfigError as error:
        if "rank that there cannot be" not in str(error) or "unset" not in str(error):
            raise
        return None


def test_variables_that_make_no_sense_are_refused_or_as_if_they_were_not_there() -> None:
    """Every variable of every job, one at a time and some at once."""
    generator = random.Random(0)
    for name, job in every_job():
        if name == "--rank":
            continue
        for environ in (job[0], job[-1]):
            for variable in environ:
                for value in NONSENSE:
                    found = found_or_refused(environ | {variable: value})
                    assert found is None or 0 <= found.number < found.total
            for _ in range(5):
                bad = {name: generator.choice(NONSENSE) for name in environ}
                assert found_or_refused(bad) is None
    for number, count in (("4", "4"), ("5", "4"), ("0", "0"), ("x", "2"), ("-1", "2"), ("1", "x")):
        with pytest.raises(ConfigError, match="RANK"):
            find_rank(None, {"RANK": number, "WORLD_SIZE": count})
    assert find_rank(None, {"RANK": "0", "WORLD_SIZE": "1"}) is None


def test_what_is_asked_for_comes_before_torchrun_and_that_before_slurm() -> None:
    both = srun(1, 3)[1] | torchrun(1, 5)[2] | array(0, 4)[3]
    assert find_rank("1/7", both) == Rank(1, 7)
    assert find_rank(None, both) == Rank(2, 5, 2, 5)


GOOD_RANKS = {"0/1": (0, 1), "0/4": (0, 4), "3/4": (3, 4), "00/04": (0, 4), "999/1000": (999, 1000)}
BAD_RANKS = ["4/4", "5/4", "0/0", "1", "1/", "/4", "-1/4", "1/-4", "1/4/2", "a/b", "1 / 4", "1/4 "]
BAD_RANKS += [
    "",
    " ",
    "1.0/4",
    "\u0661/\u0664",
    "1/99999999",
    "\n0/1",
    "0/1\n",
    "0\\4",
    "0:4",
    "0 of 4",
]


def test_rank_is_spelled_in_one_way() -> None:
    for text, expected in GOOD_RANKS.items():
        rank = find_rank(text, {})
        assert rank is not None
        assert (rank.number, rank.total) == expected
    for text in BAD_RANKS:
        with pytest.raises(ConfigError, match="bad rank") as caught:
            find_rank(text, {})
        assert "0/n to n-1/n" in str(caught.value)


def test_ranks_of_one_machine_take_gpus_in_turn_where_they_see_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    for gpus in (0, 1, 2, 4):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpus=gpus: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        for local in range(6):
            rank = Rank(local, 6, local, 6)
            for asked in ("auto", "cuda"):
                expected = f"cuda:{local % gpus}" if gpus > 1 else asked
                assert device_of(rank, asked) == expected
            for asked in ("cpu", "cuda:1"):
                assert device_of(rank, asked) == asked
        assert device_of(Rank(3, 4), "auto") == "auto"


def test_nothing_of_slurm_or_torchrun_is_read_but_what_is_named_here() -> None:
    """A variable that is not looked at cannot be tested by what is above."""
    seen: set[str] = set()

    class Watched(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            seen.add(name)
            return super().get(name, default)

        def __contains__(self, name: object) -> bool:
            seen.add(str(name))
            return super().__contains__(name)

    for _, job in every_job():
        for environ in job:
            find_rank(None, Watched(environ))
    named = {name for _, job in every_job() for environ in job for name in environ}
    assert seen <= named
