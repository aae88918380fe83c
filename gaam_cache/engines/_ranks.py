"""Ranks: workers that somebody else started, and what their environment says of them.

Nothing is divided by rank. A rank says where in the work to begin, so that few want the same, which
of a machine's GPUs to use, and that nobody waits for this one: whatever it says, all work is done
once by whoever comes first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from gaam_cache.config import parse_rank
from gaam_cache.errors import ConfigError
from gaam_cache.messages import shortened


class Rank(NamedTuple):
    """One of several workers."""

    number: int
    total: int
    local: int | None = None
    """Number among those of this machine."""
    here: int = 1
    """Workers of this machine, as far as is known."""

    @property
    def start(self) -> float:
        """Where in the work to begin, in [0, 1)."""
        return self.number / self.total


def find_rank(asked: str | None, environ: Mapping[str, str] = os.environ) -> Rank | None:
    """The rank of this process; None where it is not one of several.

    In this order: the setting ``rank``, torchrun (``RANK`` and ``WORLD_SIZE``), tasks of a SLURM
    step, tasks of a SLURM array; an array of jobs of several tasks counts all tasks.
    """
    if asked is not None:
        return Rank(*parse_rank(asked))

    def number(name: str) -> int | None:
        text = environ.get(name, "").strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    def rank_of(place: str, count: str) -> Rank | None:
        if not environ.get(place, "").strip() or not environ.get(count, "").strip():
            return None
        found, total = number(place), number(count)
        if found is None or total is None or not found < total:
            raise ConfigError(
                "the environment names a rank that there cannot be",
                found=shortened(f"{place}={environ[place]} {count}={environ[count]}"),
                hint=f"unset {place} {count}, if they are not meant for gaam",
            )
        return Rank(found, total) if total > 1 else None

    if rank := rank_of("RANK", "WORLD_SIZE"):
        return rank._replace(local=number("LOCAL_RANK"), here=number("LOCAL_WORLD_SIZE") or 1)
    step = array = None
    if "SLURM_STEP_ID" in environ:  # a batch script is no step, whatever it asked for
        step = rank_of("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    task, count = number("SLURM_ARRAY_TASK_ID"), number("SLURM_ARRAY_TASK_COUNT") or 1
    if task is not None and count > 1:
        # tasks need not be numbered without gaps: where to begin is all that this decides
        place = task - (number("SLURM_ARRAY_TASK_MIN") or 0)
        place //= number("SLURM_ARRAY_TASK_STEP") or 1
        array = Rank(max(0, place) % count, count)
    if step:  # '4' or '4(x2)', or '2,1' where nodes differ
        here = environ.get("SLURM_STEP_TASKS_PER_NODE", "1").split(",")[0].split("(")[0]
        first = int(here) if here.isdigit() else 1
        step = step._replace(local=number("SLURM_LOCALID"), here=first)
    if step and array:
        place = array.number * step.total + step.number
        return step._replace(number=place, total=array.total * step.total)
    return step or array


def device_of(rank: Rank, asked: str) -> str:
    """The device of a rank: where a machine shows all its GPUs to all its ranks, each takes one."""
    if rank.local is None or asked not in ("auto", "cuda"):
        return asked
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"cuda:{rank.local % count}" if count > 1 else asked
