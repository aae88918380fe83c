"""How what an optional part of gaam needs is installed."""

from __future__ import annotations

import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def install(extra: str, root: Path = ROOT) -> str:
    """The command: of a checkout its own, with the versions that were tested; else of the package.

    Args:
        extra: as ``pyproject.toml`` calls it.
        root: the folder that holds the packages.
    """
    if not (root / "pyproject.toml").is_file():
        return f"pip install 'gaam[{extra}]'"
    tested = root / "constraints.txt"
    words = ["-c", str(tested)] if tested.is_file() else []
    return shlex.join(["pip", "install", *words, "-e", f"{root}[{extra}]"])
