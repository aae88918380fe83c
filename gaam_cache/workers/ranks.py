"""Ranks: workers that torchrun, SLURM or a person started, one process each.

A rank reads its number and the number of all ranks from its environment or from the
setting ``rank``.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import shortened
from gaam_cache.config import parse_rank

MAX_DIGITS = 9  # digits of a number in the environment


class Rank(NamedTuple):
    """One of several workers that torchrun, SLURM or a person started.

    Ranks do not divide the work. The rank of a process decides three things: where in
    the work the process begins, so that few ranks want the same shard; which GPU of the
    machine it uses; and that it does not wait for other ranks. Whatever the numbers
    are, each piece of work is done once, by the first rank that takes it.
    """

    number: int  # from 0
    total: int  # number of all ranks
    number_on_machine: int | None = None
    """Number of this rank among the ranks of this machine, from 0; None if unknown."""
    workers_on_machine: int = 1  # number of ranks on this machine, as far as is known

    @property
    def start_fraction(self) -> float:
        """Where in the list of its work this rank begins, as a fraction in [0, 1)."""
        return self.number / self.total


def find_rank(
    setting: str | None, environ: Mapping[str, str] = os.environ
) -> Rank | None:
    """Find the rank of this process.

    The first of these decides: the setting ``rank``, torchrun (``RANK`` and
    ``WORLD_SIZE``), SLURM. In an array of SLURM jobs with several tasks each, every
    task of every job is a rank.

    Args:
        setting: the setting ``rank``, such as "0/4"; None if it is not given.
        environ: the environment of this process.

    Returns:
        None if this process is not one of several.

    Raises:
        ConfigError: the setting or the environment names an impossible rank.
    """
    if setting is not None:
        number, total = parse_rank(setting)
        return Rank(number, total)
    torchrun_rank = _torchrun_rank(environ)
    if torchrun_rank is not None:
        return torchrun_rank
    return _slurm_rank(environ)


def device_of(rank: Rank, device: str) -> str:
    """The device of a rank: the ranks of a machine with several GPUs take them in turn.

    Args:
        rank: the rank.
        device: the configured device. Only "auto" and "cuda" leave a choice: any other
            device, such as "cpu" or "cuda:1", is returned as it is.
    """
    # a rank that does not know its number on its machine cannot take turns
    if rank.number_on_machine is None or device not in ("auto", "cuda"):
        return device
    import torch

    if not torch.cuda.is_available():
        return device
    num_gpus = torch.cuda.device_count()
    if num_gpus <= 1:
        return device
    return f"cuda:{rank.number_on_machine % num_gpus}"


def _torchrun_rank(environ: Mapping[str, str]) -> Rank | None:
    """The rank that torchrun sets; None if this process is not one of several."""
    rank = _read_rank(environ, "RANK", "WORLD_SIZE")
    if rank is None:
        return None
    return rank._replace(
        number_on_machine=_read_number(environ, "LOCAL_RANK"),
        workers_on_machine=_read_number(environ, "LOCAL_WORLD_SIZE") or 1,
    )


def _slurm_rank(environ: Mapping[str, str]) -> Rank | None:
    """The rank among the tasks of a step, the jobs of an array, or both at once.

    In SLURM a job may be one of an array of jobs. A step is a part of a job, and runs
    as one or several tasks, which are processes.

    Returns:
        None if this process is one of several in neither way.
    """
    task_rank = _slurm_task_rank(environ)
    job_rank = _slurm_job_rank(environ)
    if task_rank is None:
        return job_rank
    if job_rank is None:
        return task_rank
    # several jobs of several tasks: the tasks of the first job come first
    return task_rank._replace(
        number=job_rank.number * task_rank.total + task_rank.number,
        total=job_rank.total * task_rank.total,
    )


def _slurm_task_rank(environ: Mapping[str, str]) -> Rank | None:
    """The rank among the tasks of a step that ``srun`` started.

    Returns:
        None if this process belongs to no step, or to a step of one task.
    """
    # a batch script has a task number too, but it runs once and is no step
    if "SLURM_STEP_ID" not in environ:
        return None
    rank = _read_rank(environ, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    if rank is None:
        return None

    # SLURM writes '4' or '4(x2)', and '2,1' where nodes have different numbers of
    # tasks. The first node stands for all: the number only says how many workers
    # share the cores of a machine.
    tasks_per_node = environ.get("SLURM_STEP_TASKS_PER_NODE", "1")
    tasks_on_first_node = tasks_per_node.split(",")[0].split("(")[0]
    num_tasks_on_node = 1
    if tasks_on_first_node.isdigit():
        num_tasks_on_node = int(tasks_on_first_node)
    return rank._replace(
        number_on_machine=_read_number(environ, "SLURM_LOCALID"),
        workers_on_machine=num_tasks_on_node,
    )


def _slurm_job_rank(environ: Mapping[str, str]) -> Rank | None:
    """The rank among the jobs of an array; None if this job is not one of several."""
    job = _read_number(environ, "SLURM_ARRAY_TASK_ID")
    num_jobs = _read_number(environ, "SLURM_ARRAY_TASK_COUNT") or 1
    if job is None or num_jobs <= 1:
        return None
    # job ids need not start at 0; the rank decides only where in the work to begin
    return Rank(job % num_jobs, num_jobs)


def _read_rank(
    environ: Mapping[str, str], number_name: str, total_name: str
) -> Rank | None:
    """The rank that two variables of the environment name.

    Args:
        environ: the environment of this process.
        number_name: name of the variable that holds the number of the rank.
        total_name: name of the variable that holds the number of all ranks.

    Returns:
        None if a variable is missing or blank, or if there is only one rank.

    Raises:
        ConfigError: the variables hold no numbers, or there is no such rank.
    """
    for name in (number_name, total_name):
        if not environ.get(name, "").strip():
            return None

    number = _read_number(environ, number_name)
    total = _read_number(environ, total_name)
    if number is None or total is None or number >= total:
        values = (
            f"{number_name}={environ[number_name]} {total_name}={environ[total_name]}"
        )
        raise ConfigError(
            "the environment names an impossible rank",
            found=shortened(values),
            hint=f"unset {number_name} {total_name}, if they are not meant for gaam",
        )
    # one rank alone behaves as a process that is no rank
    if total == 1:
        return None
    return Rank(number, total)


def _read_number(environ: Mapping[str, str], name: str) -> int | None:
    """The whole number in a variable; None if it is missing or holds anything else."""
    text = environ.get(name, "").strip()
    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None
