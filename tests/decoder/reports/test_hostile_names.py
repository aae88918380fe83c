"""No name, path or reason is obeyed by what reads a report, whatever it is made of.

Every string of every field of every run is hostile, and the output is read by another program.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaam_decoder import RunResult
from gaam_decoder.reports.drawing import Line, Picture, image_files, inline_svg, line_panels
from gaam_decoder.reports.formats.terminal import Terminal
from gaam_decoder.reports.table import Table, build_tables
from tests.contract.test_8_mistakes import SHAPES
from tests.decoder.reports.conftest import answers, build_run
from tests.decoder.reports.conftest import written as written_by
from tests.hostile_strings import HOSTILE, flooded, harmful

pytestmark = pytest.mark.usefixtures("undrawn")  # pictures have tests of their own, below
SAFE = "plain"


def renamed(value: Any, name: str) -> Any:
    """JSON values in which every string is ``name``, and what its kind needs to be told apart."""
    if isinstance(value, dict):
        return {key: renamed(entry, name) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [f"{renamed(entry, name)}{place}" for place, entry in enumerate(value)]
    return name if isinstance(value, str) else value


def hostile_run(name: str, suffix: str, right: np.ndarray, **changes: Any) -> RunResult:
    """A run in which every string is ``name``: none is left out, also none that comes later."""
    run = build_run("attention", right, **changes)
    for field in fields(run):
        value = vars(run)[field.name]
        if isinstance(value, str):
            vars(run)[field.name] = name + suffix
        elif isinstance(value, dict):
            vars(run)[field.name] = renamed(value, name)
        elif isinstance(value, Path):
            vars(run)[field.name] = Path(name + suffix)
    vars(run)["head"] = name  # rows are compared within one head
    run.recipe[name] = name + suffix if suffix in ("-d", "-e") else name
    run.recipe["test_split"] = f"{name}t"
    run.environment[name] = run.engine[name] = name
    run.cache["rows"] = {name: 9, f"{name}t": right.shape[1]}
    vars(run)["learned"] = {name: np.random.default_rng(0).random((len(right), 2, 3))}
    return run


@cache
def hostile_tables(name: str) -> list[Table]:
    """Differences, a failed seed, a row without any seed, two tables, a fold, training rows."""
    three = answers(6, 0.8, 1, num_rows=40)
    gone = dict.fromkeys(range(6), "a reason")
    runs = [
        hostile_run(name, "", answers(6, 0.5, 2, num_rows=40), failed={1: "a reason"}),
        hostile_run(name, "-b", three),
        hostile_run(name, "-c", three, failed=gone),
        hostile_run(name, "-d", three[:2]),
    ]
    taught = hostile_run(name, "-e", three[:2], train_split="x")
    taught.recipe["test_split"] = taught.recipe["train_split"]
    fold = hostile_run(name, "-f", three[:2], fold="1/2")
    fold.recipe["fold"] = "1/2"
    return build_tables([*runs, taught, fold], name + "-b")


@cache
def written(format: str, name: str) -> str:
    return written_by(format, hostile_tables(name))


@pytest.mark.parametrize("format", ["csv", "html", "latex", "markdown"])
def test_a_report_has_no_structure_but_ours(format: str) -> None:
    expected = SHAPES[format](written(format, SAFE))
    assert expected
    for what, name in HOSTILE.items():
        text = written(format, name)
        assert not harmful(text), what
        assert not flooded(text), what
        text.encode()
        assert SHAPES[format](text) == expected, what


def test_a_colour_terminal_gets_no_sequence_from_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def sequences(name: str) -> set[str]:
        screen = io.StringIO()
        screen.isatty = lambda: True  # type: ignore[method-assign]
        Terminal().write(hostile_tables(name), screen)
        text = screen.getvalue()
        assert not harmful(re.sub("\x1b\\[[0-9;]*m", "", text)), name
        return set(re.findall("\x1b[^m]*m", text))

    expected = sequences(SAFE)
    assert expected
    for name in HOSTILE.values():
        assert sequences(name) == expected
    assert "[red]a[/red] [/] [link=http" in written("terminal", HOSTILE["markup"])
    assert ":red_circle: :smile:" in written("terminal", HOSTILE["emoji code"])


@pytest.mark.filterwarnings("error")
def test_pictures_draw_every_name_and_obey_none() -> None:
    names = [name[:80] for name in HOSTILE.values()]
    panels = [("y", [Line(name, [1, 2], [3, 4])]) for name in names]
    svg = inline_svg(lambda: line_panels(panels, "x"), key="k", alt="".join(names))
    assert not harmful(svg)
    kinds = {element.tag.split("}")[-1] for element in ET.fromstring(svg).iter()}
    assert not {"script", "a", "foreignObject", "image"} & kinds
    shown = "".join(ET.fromstring(svg).itertext())
    for what in ("mathematics", "Chinese"):
        assert HOSTILE[what] in shown
    picture = Picture("p", "".join(names), "", lambda: line_panels(panels[:9], "x"))
    assert image_files(picture)["pdf"].startswith(b"%PDF")  # whatever our font lacks
