"""Environments of the peers: made once, kept, and none of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
READY = "ready"
"""Written last: an environment without it was not finished."""

IMPORTS = {
    None: "import transformers, gaam_cache.encoders.text, gaam_decoder.training.train",
    "lmprobe": "import lmprobe, transformers",
    "sentence-transformers": "import sentence_transformers, sklearn.linear_model",
}
"""What is imported once before anything is timed, so that nobody pays for a cold disk."""


class NotInstalledError(Exception):
    """A peer that cannot be had here, and by what."""


def python_of(package: str | None, folder: Path) -> Path:
    """The interpreter that has a package, in the versions of ``constraints.txt``.

    Args:
        package: with its version; None is the interpreter that runs this.
        folder: where environments are kept.

    Raises:
        NotInstalledError: pip says why not, or it cannot be imported.
    """
    if package is None:
        python = Path(sys.executable)
        _run([str(python), "-c", IMPORTS[None]], "gaam")
        return python
    home = folder / package.replace("==", "-")
    python = home / "bin" / "python"
    if not (home / READY).exists():
        _install(package, home, python)
    _run([str(python), "-c", IMPORTS[package.partition("==")[0]]], package)
    return python


def _install(package: str, home: Path, python: Path) -> None:
    print(f"installing {package} into {home}", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(home)], package)
    constraints = ROOT / "constraints.txt"
    _run(
        [str(python), "-m", "pip", "install", "-q", "-c", str(constraints), package],
        package,
    )
    (home / READY).touch()


def versions_of(python: Path) -> dict[str, str]:
    """What decides the figures, by package; those that are not there are left out."""
    names = ["torch", "transformers", "numpy", "scikit-learn", "sentence-transformers", "lmprobe"]
    code = (
        "import sys, importlib.metadata as m\n"
        "for name in sys.argv[1:]:\n"
        " try: print(name, m.version(name))\n"
        " except m.PackageNotFoundError: pass"
    )
    done = subprocess.run(
        [str(python), "-c", code, *names], capture_output=True, text=True, check=True
    )
    return dict(line.split() for line in done.stdout.splitlines())


def _run(command: list[str], package: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalledError(f"{package}: {' '.join(said)[-400:] or done.stderr[-400:]}")
