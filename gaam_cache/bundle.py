"""Where the files that travel with gaam lie: the news sample and the presets."""

from __future__ import annotations

from pathlib import Path


def data_path() -> Path:
    """The ``data`` folder: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    installed = here / "data"
    return installed if installed.is_dir() else here.parent / "data"
