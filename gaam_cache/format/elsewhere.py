"""Where an export may lie: neither in what is exported nor around it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gaam_cache.errors import ConfigError
from gaam_cache.format.targets import check_folder
from gaam_cache.messages import visible


def check_elsewhere(source: Path, out: Path) -> None:
    """Refuse a folder that lies in what is exported, or holds it, however it is written.

    Args:
        source: a run or a cache.
        out: the folder that is to be made.

    Raises:
        ConfigError: saying which; or no folder can be there.
    """
    real_source, real = (Path(os.path.realpath(one.expanduser())) for one in (source, out))
    if _within(real, real_source) or _within(real_source, real):
        raise ConfigError(
            "nothing can be exported into itself, or around itself",
            expected="a folder elsewhere",
            found=visible(str(real)),
            where=visible(str(real_source)),
            hint="name a folder that is not there yet, outside of what is exported",
        )
    check_folder(out, option="DIR")


def _within(path: Path, folder: Path) -> bool:
    """Whether a path is that of a folder or of something in it, as the file system sees them."""
    for parent in (path, *path.parents):
        if parent == folder:
            return True
        with suppress(OSError):
            if parent.samefile(folder):
                return True
    return False
