"""What the folder of a run is called: readable in front, and behind it which run it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gaam_cache.store.digest import digest_of

_ENDING = re.compile(r"-[0-9a-f]{8}-s\d[0-9a-fx_-]*\Z")
"""How the names end that ``run_name`` gives."""
_PARTIAL = ".partial"
CLAIM_FOLDER = ".claims"
"""In a folder of runs: who trains what."""
LONGEST_FRONT = 80
"""Characters of the readable part."""


def run_name(attention: str, head: str, key: str, seeds: Sequence[int]) -> str:
    """Folder name of a run: readable in front, unambiguous behind."""
    front = "".join(c if c.isalnum() or c in "-_." else "_" for c in f"{attention}-{head}")
    return f"{front[:LONGEST_FRONT]}{ending(key, seeds)}"


def ending(key: str, seeds: Sequence[int]) -> str:
    """How the name of a run ends: by this a training finds what is there already."""
    contiguous = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    text = f"{seeds[0]}-{seeds[-1]}" if contiguous else "_".join(map(str, seeds))
    if len(text) > 40:
        text = f"{len(seeds)}x{digest_of(text.encode())[:8]}"
    return f"{of_key(key)}{text}"


def of_key(key: str) -> str:
    """What the names of all runs of a key have in common, before their seeds."""
    return f"-{key[:8]}-s"


def is_named_as_run(name: str) -> bool:
    """Whether a name ends as that of a run."""
    return _ENDING.search(name) is not None


def unfinished_name(work: str) -> str:
    """What the folder of unfinished work is called, which begins with a dot."""
    return f".{work}{_PARTIAL}"


def work_of(name: str) -> str:
    """The work that ``unfinished_name`` named, whether its folder or the work itself is given."""
    return name.removeprefix(".").removesuffix(_PARTIAL)


def unfinished_folders(runs: Path) -> list[Path]:
    """Folders of unfinished work, by name."""
    return sorted(runs.glob(unfinished_name("*")))
