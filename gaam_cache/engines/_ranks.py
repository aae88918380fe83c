"""Ranks: workers that somebody else started, and what their environment says of them.

Nothing is divided by rank. A rank says where in the work to begin, so that few want the same, which
of a machine's GPUs to use, and that nobody waits for this one: whatever it says, all work is done
once by whoever comes first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from gaam_cache.errors import ConfigError
from gaam_cache.messages import shortened
from gaam_cache.placing import parse_rank

SAYING = ("RANK", "WORLD_SIZE", "SLURM_STEP_ID", "SLURM_ARRAY_TASK_ID")
"""Variables without which a process has no rank."""


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

    Args:
        asked: ``i/n``, as configured.
        environ: the environment.

    Raises:
        ConfigError: a rank or number of ranks that there cannot be.
    """
    if asked is not None:
        return Rank(*parse_rank(asked))
    if rank := _rank(environ, "RANK", "WORLD_SIZE"):
        local, here = _number(environ, "LOCAL_RANK"), _number(environ, "LOCAL_WORLD_SIZE")
        return rank._replace(local=local, here=here or 1)
    # a batch script is no step, whatever number of tasks it asked for
    step = "SLURM_STEP_ID" in environ and _rank(environ, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    array = _array(environ)
    if step:
        # '4' or '4(x2)', or '2,1' where nodes differ
        first = environ.get("SLURM_STEP_TASKS_PER_NODE", "1").split(",")[0].split("(")[0]
        local = _number(environ, "SLURM_LOCALID")
        step = step._replace(local=local, here=int(first) if first.isdigit() else 1)
    if step and array:
        number = array.number * step.total + step.number
        return step._replace(number=number, total=array.total * step.total)
    return step or array


def without_rank(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a process that is not one of several, and waits for what others do."""
    return {name: value for name, value in environ.items() if name not in SAYING}


def device_of(rank: Rank, asked: str) -> str:
    """The device of a rank: where a machine shows all its GPUs to all its ranks, each takes one."""
    if rank.local is None or asked not in ("auto", "cuda"):
        return asked
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"cuda:{rank.local % count}" if count > 1 else asked


def _rank(environ: Mapping[str, str], number: str, count: str) -> Rank | None:
    if not environ.get(number, "").strip() or not environ.get(count, "").strip():
        return None
    found = _number(environ, number), _number(environ, count)
    if found[0] is None or found[1] is None or not found[0] < found[1]:
        raise ConfigError(
            "the environment names a rank that there cannot be",
            expected=f"{number} from 0 to {count} - 1, or neither",
            found=shortened(f"{number}={environ[number]} {count}={environ[count]}"),
            hint=f"unset {number} {count}, if they are not meant for gaam",
        )
    return Rank(found[0], found[1]) if found[1] > 1 else None


def _array(environ: Mapping[str, str]) -> Rank | None:
    names = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT")
    number, first, count = (_number(environ, name) for name in names)
    if number is None or count is None or count < 2:
        return None
    # tasks need not be numbered without gaps: where to begin is all that this decides
    place = (number - (first or 0)) // (_number(environ, "SLURM_ARRAY_TASK_STEP") or 1)
    return Rank(max(0, place) % count, count)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
