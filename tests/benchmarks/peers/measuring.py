"""One process: its time, its memory, and what it left on disk."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class ProgramError(Exception):
    """A user's program ended with an error; its last words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """What one process took."""

    seconds: float
    peak_bytes: int
    """Of the largest of the process and those that it waited for."""
    said: str
    """What it printed."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"seconds": self.seconds, "peak_bytes": self.peak_bytes}


def measured(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Phase:
    """Run a process to its end.

    Args:
        command: what is run.
        environment: all of its variables.
        log: takes what it says on stderr.

    Raises:
        ProgramError: its exit code is not 0.
    """
    with log.open("w") as errors, log.with_suffix(".out").open("w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=errors)
        # of this child and its own alone; getrusage would have all that this program waited for
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read()
    if process.returncode:
        words = " ".join(log.read_text().strip().splitlines()[-3:])
        raise ProgramError(f"exit code {process.returncode}: {words[-400:]}")
    return Phase(seconds=seconds, peak_bytes=usage.ru_maxrss * 1024, said=said)


def bytes_below(folder: Path) -> int:
    """Of all files in a folder and those in it; a file with two names counts once."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            found[status.st_dev, status.st_ino] = status.st_size
    return sum(found.values())


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """The order of one round: forwards, then backwards, so that drift of the machine hits all."""
    return list(names) if turn % 2 == 0 else list(reversed(names))


def variables(data: Path, encoder: Path, out: Path, scratch: Path, threads: int) -> dict[str, str]:
    """What every contestant is told, and nothing that one of them would gain by."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GAAM_", "OPENBLAS_", "OMP_"))}
    return kept | {
        "DATA": str(data),
        "ENCODER": str(encoder),
        "OUT": str(out),
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "XDG_CACHE_HOME": str(scratch / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "kernels"),
        "LMPROBE_CACHE_DIR": str(out / "cache"),
    }
