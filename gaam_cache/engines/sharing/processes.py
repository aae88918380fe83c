"""Processes of this machine: which one it is, and whether one is still there."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def this_machine() -> str | None:
    """One running kernel and one numbering of processes; None where that cannot be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except (OSError, ValueError):
        return None


def is_alive(pid: int, started: str | None) -> bool:
    """Whether a process of this machine is there that started then and has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # of another user
    state, start = stat_fields(pid)
    return state not in ("Z", "X") and (start is None or started is None or start == started)


def stat_fields(pid: int) -> tuple[str | None, str | None]:
    """State of a process and its start in ticks, where the system says so."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return None, None
