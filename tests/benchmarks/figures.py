"""The figures of a benchmark, on the disk as soon as each is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Figures:
    """What was measured so far: the machine may end before the benchmark does.

    Attributes:
        content: name -> figure, a JSON value.
    """

    def __init__(self, file: Path | None) -> None:
        self.content: dict[str, Any] = {}
        self._file = file

    def add(self, name: str, figure: Any, group: str | None = None) -> None:
        """Print a figure, and write all that there are to the file.

        Args:
            name: of the figure.
            figure: a JSON value.
            group: name of a dictionary of ``content`` that gets the figure, if any.
        """
        figures = self.content
        if group is not None:
            figures = self.content.setdefault(group, {})
        figures[name] = figure
        print(f"{name}: {json.dumps(figure)}", flush=True)
        if self._file is not None:
            self._file.write_text(json.dumps(self.content, indent=2))
