"""Runs ``gaam ARGUMENTS`` and dies of SIGKILL at the Nth call that touches the disk.

Usage: python -m tests.faults.dying_command N ARGUMENTS...
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from collections.abc import Callable
from typing import Any

import cli

left = int(sys.argv[1])


def mortal(function: Callable[..., Any]) -> Callable[..., Any]:
    """Count calls; die before the one that the count falls on."""

    def call(*arguments: Any, **options: Any) -> Any:
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    return call


os.fsync = mortal(os.fsync)
os.link = mortal(os.link)
os.rename = mortal(os.rename)
pathlib.Path.rename = mortal(pathlib.Path.rename)  # type: ignore[method-assign]
pathlib.Path.unlink = mortal(pathlib.Path.unlink)  # type: ignore[method-assign]

sys.argv = ["gaam", *sys.argv[2:]]
cli.main()
