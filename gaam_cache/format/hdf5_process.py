"""How a process that looks into HDF5 files of unknown origin is started."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO, Any


def start_process(program: str, **options: Any) -> subprocess.Popen[Any]:
    """A program that answers on its output what it is asked on its input.

    Args:
        program: a file that imports nothing of ours.
        options: of ``subprocess.Popen``.
    """
    return subprocess.Popen(
        # -P: a module that lies in the working directory is not imported
        [sys.executable, "-P", program],
        cwd="/",  # ours may be gone, and no interpreter starts there
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(),
        start_new_session=True,  # Ctrl-C is for the parent; then our input ends
        **options,
    )


def pipes_of(process: subprocess.Popen[Any]) -> tuple[IO[Any], IO[Any]]:
    """Its input and its output."""
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _environment() -> dict[str, str]:
    """Ours without what makes libhdf5 load drivers, connectors or filters ('::' forbids it)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HDF5_")}
    return kept | {"HDF5_PLUGIN_PRELOAD": "::", "OPENBLAS_NUM_THREADS": "1"}
