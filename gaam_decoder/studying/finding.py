"""Where a study is that somebody names: a folder, one beside another, or one of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gaam_cache.bundle import data_path
from gaam_cache.errors import NotFoundError
from gaam_cache.messages import did_you_mean

FILE = "study.toml"
NAME = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*", re.ASCII)


def find(what: str | Path) -> Path:
    """The recipe of a study.

    Args:
        what: its folder, or the name of one in ``data/studies``.

    Raises:
        NotFoundError: there is none; says which may be meant.
    """
    folder, ours = Path(what), _studies(data_path() / "studies")
    if (folder / FILE).is_file():
        return folder / FILE
    if str(what) in ours:
        return ours[str(what)] / FILE
    around = folder.parent.parent if folder.name == FILE else folder.parent
    there = {str(path): path for path in _studies(around).values()}
    recipes = {str(path / FILE): name for name, path in there.items()}
    raise _none(str(what), {**ours, **there}, recipes, where=str((folder / FILE).absolute()))


def find_beside(name: str, study: Path) -> Path:
    """The recipe of another study: beside this one, or one of ours.

    Raises:
        NotFoundError: there is none; says which may be meant.
    """
    known = _studies(data_path() / "studies") | _studies(study.parent)
    if name not in known:
        raise _none(name, known, {}, where=str(study / FILE))
    return known[name] / FILE


def _studies(folder: Path) -> dict[str, Path]:
    """Those in a folder, by name."""
    try:
        return {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{FILE}"))}
    except OSError:
        return {}


def _none(
    what: str, known: Mapping[str, Path], recipes: Mapping[str, str], where: str
) -> NotFoundError:
    ours = sorted(_studies(data_path() / "studies"))
    return NotFoundError(
        f"no study '{what}'",
        expected=f"a folder with {FILE}, or one of: {', '.join(ours)}",
        found="no such file",
        where=where,
        hint=did_you_mean(what, known, recipes),
    )
