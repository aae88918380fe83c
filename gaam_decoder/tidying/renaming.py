"""A run gets another readable name; how its name ends says which run it is, and stays."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gaam_cache.errors import ConfigError
from gaam_cache.format.files import sync_folder
from gaam_cache.format.refusals import storage_errors
from gaam_cache.messages import brief, shortened, visible
from gaam_decoder.runs.run_name import LONGEST_FRONT, ending, key_digits, readable
from gaam_decoder.runs.run_reader import read_run
from gaam_decoder.tidying.free import check_free
from gaam_decoder.tidying.named import named_run

_ANOTHER = re.compile(r"-[0-9a-f]{8}-s")
"""What a training looks for in names, to find the runs of a key."""
LONGEST_BYTES = 160
"""Of the readable part: with an ending of 52, and what temporary names add, a name has 255."""


def rename(run: str | Path, name: str, *, runs: str | Path = "runs") -> Path:
    """Give a run another readable name; ``-KEY-sSEEDS`` behind it stays.

    Args:
        run: its folder, or its name within ``runs``.
        name: letters, digits, ``-``, ``_`` and ``.``, with or without the ending of the run.
        runs: a folder of runs.

    Returns:
        Its new folder.

    Raises:
        NotFoundError: no such run.
        ConfigError: a name that a run cannot have, that another has, or a run that must stay.
        CacheError: the run is damaged.
        StorageError: the file system refused; the run is called as before.
    """
    folder = named_run(run, Path(runs))
    about = read_run(folder)
    last = ending(about.key, about.seeds)
    final = folder.with_name(_front(name.removesuffix(last)) + last)
    if final == folder:
        return folder
    check_free([folder])
    if os.path.lexists(final):
        raise ConfigError(
            f"there is a '{brief(final.name)}' already",
            expected="a name that is free",
            found=visible(str(final)),
            hint="choose another name; how it ends stays as it is",
        )
    with storage_errors(final, option="--runs"):
        folder.rename(final)
        sync_folder(folder.parent)
    return final


def _front(name: str) -> str:
    fits = name and name == readable(name) and name[0] not in ".-"
    fits = fits and len(name.encode(errors="replace")) <= LONGEST_BYTES
    if not fits or _ANOTHER.search(name + "-") or key_digits(name):
        raise ConfigError(
            f"no run can be called '{shortened(name)}'",
            expected=f"up to {LONGEST_FRONT} letters, digits, '-', '_' and '.', first a letter or "
            "digit, without the ending of another run",
            found=repr(shortened(name)),
        )
    return name
