"""Where the files that travel with gaam lie, and how to install more of it."""

from __future__ import annotations

from pathlib import Path


def data_path() -> Path:
    """The ``data`` folder: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    installed = here / "data"
    return installed if installed.is_dir() else here.parent / "data"


def install(extra: str) -> str:
    """The command that installs an extra: of a checkout its own, else of the package."""
    root = Path(__file__).resolve().parents[1]
    checkout = (root / "pyproject.toml").is_file()
    return f"pip install -e '{root}[{extra}]'" if checkout else f"pip install 'gaam[{extra}]'"
