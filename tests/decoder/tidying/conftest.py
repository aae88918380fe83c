"""A small study of an earlier version, and file operations that fail in turn."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaam_decoder.runs.loading import load_runs
from gaam_decoder.runs.verify import check_run
from tests.conftest import GOLDEN

CALLS = ("fsync", "rename", "mkdir", "rmdir", "unlink", "utime", "open", "link")
"""What the system is asked for when runs are moved and removed."""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A cache, and two runs on it in ``runs``."""
    return Path(shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "study"))


def content(folder: Path) -> dict[str, bytes]:
    """Files of all whole runs below a folder, by run and name; each run was checked."""
    if not folder.is_dir() or not any(p.name[0] != "." for p in folder.iterdir()):
        return {}
    found = {}
    for run in load_runs(folder):
        check_run(run)
        found |= {f"{run.path.name}/{f.name}": f.read_bytes() for f in run.path.iterdir()}
    return found


class Struck(BaseException):
    """Stands for the end of the process: nothing may catch it to go on."""


class Failing:
    """Every call of ``CALLS`` counts; the Nth fails, or ends the process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kill: bool, apart: Path | None) -> None:
        self.left = 0
        self.kill = kill
        self.dead = False
        for name in CALLS:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))
        self.apart = apart

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self.dead:
                raise Struck  # whatever clean-up would do is not done
            self.left -= 1
            if self.left == 0:
                if self.kill:
                    self.dead = True
                    raise Struck
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if name == "rename" and self._crosses(arguments[0], arguments[1]):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            return function(*arguments, **options)

        return call

    def _crosses(self, first: Any, second: Any) -> bool:
        """Whether one of two paths is on the other disk, and one is not."""
        if self.apart is None:
            return False
        return len({Path(path).is_relative_to(self.apart) for path in (first, second)}) == 2
