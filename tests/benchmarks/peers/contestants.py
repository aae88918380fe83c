"""Who does what: the programs of a user, and what they need.

A user's program is in two files of ``users/FOLDER``: one encodes, the other trains and says what
came of it. Each is a process of its own.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

USERS = Path(__file__).parent / "users"
TASKS = {
    "decoders": "all layers, 4 mechanisms, {seeds} seeds, {epochs} epochs",
    "all layers": "all layers side by side, one linear probe",
    "last layer": "the last layer, one linear probe",
}
MECHANISMS = ("gaam", "laplace", "mha", "none")


@dataclass(frozen=True, kw_only=True, slots=True)
class Contestant:
    """One way to do one task."""

    folder: str
    """Of the user's files, below ``users``."""
    who: str
    """Whose way it is."""
    task: str
    """Key of ``TASKS``."""
    package: str | None = None
    """What the environment is made with; None: the interpreter that runs the benchmark."""
    note: str = ""
    """What it does that others do not, or leaves out."""

    @property
    def phases(self) -> dict[str, Path]:
        """What is run, in this order."""
        ending = "sh" if self.who == "gaam" else "py"
        return {name: USERS / self.folder / f"{name}.{ending}" for name in ("encode", "train")}

    @property
    def lines(self) -> int:
        """Lines that the user wrote, in all files."""
        files = sorted(p for p in (USERS / self.folder).iterdir() if p.suffix in (".py", ".sh"))
        return sum(lines_of_code(path.read_text(), path.suffix) for path in files)


FORTY = (
    "fits 40 penalties by L-BFGS on 90% of the rows and chooses by the others; "
    "encodes all layers, and stores them in float16"
)
CONTESTANTS = (
    Contestant(
        folder="gaam",
        who="gaam",
        task="decoders",
        note="fits a linear probe beside the four, as it does unless told not to; stores states in "
        "float16",
    ),
    Contestant(
        folder="plain",
        who="transformers + PyTorch",
        task="decoders",
        note="padded batches of 32 in the order of the rows; seeds one by one",
    ),
    Contestant(folder="gaam_probe", who="gaam", task="all layers", note=FORTY),
    Contestant(
        folder="lmprobe",
        who="lmprobe",
        task="all layers",
        package="lmprobe==0.10.3",
        note="fits one penalty on all rows; batches of 8, its default; keeps the states of every "
        "token; refuses BERT until a private function of it is replaced",
    ),
    Contestant(
        folder="sentence_all",
        who="sentence-transformers + scikit-learn",
        task="all layers",
        package="sentence-transformers==6.2.0",
        note="fits one penalty on all rows; the user writes the pooling; batches of 32 by length "
        "and 256 tokens at most, its defaults",
    ),
    Contestant(folder="gaam_last", who="gaam", task="last layer", note=FORTY),
    Contestant(
        folder="sentence_last",
        who="sentence-transformers + scikit-learn",
        task="last layer",
        package="sentence-transformers==6.2.0",
        note="fits one penalty on all rows; states have length 1, as its model says",
    ),
)
CANNOT = {
    "decoders": {
        "lmprobe": "no mechanisms over layers, and no decoder that a seed would change: its probes "
        "are estimators of scikit-learn on layers side by side",
        "sentence-transformers + scikit-learn": "no mechanisms over layers; the probe has one "
        "optimum, whatever the seed",
    }
}
"""Task -> who cannot do it, and why."""


def lines_of_code(text: str, suffix: str) -> int:
    """Lines that are neither blank, nor a comment, nor of a docstring.

    Args:
        text: of the file.
        suffix: ``.py`` or ``.sh``; a command that goes on in the next line counts as two.
    """
    lines = {n: line.strip() for n, line in enumerate(text.splitlines(), 1)}
    skipped = documented(text) if suffix == ".py" else set()
    return sum(
        bool(line) and not line.startswith("#") for n, line in lines.items() if n not in skipped
    )


def documented(text: str) -> set[int]:
    """Numbers of the lines of Python that are docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None:
            found |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return found
