"""What a run that is not there was probably meant to be."""

from __future__ import annotations

from pathlib import Path

from gaam_cache.messages import nearest
from gaam_decoder.runs.run_folders import run_folders


def near_run(path: Path) -> str | None:
    """What to do where a run is not there that was named: which name was probably meant."""
    beside = path.absolute().parent
    try:
        names = {run.name: run for run in (*run_folders(Path("runs")), *run_folders(beside))}
        folders = {one.name: one for one in beside.iterdir() if one.is_dir()}
    except (OSError, ValueError):
        return None
    if (path.name in names) and not path.exists():
        return f"did you mean '{_short(names[path.name])}'?"
    meant = nearest(path.name, names) or nearest(path.name, folders)
    found = (folders | names).get(meant or "")
    return None if found is None or found == path.absolute() else f"did you mean '{_short(found)}'?"


def _short(path: Path) -> str:
    """Below the current folder as it is called from there."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
