"""No name, path or reason is obeyed by what reads a report, whatever it is made of.

Every string of every field of every run is hostile, and the output is read by another program.
"""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt
from rich.cells import cell_len

from gaam_cache import plugins
from gaam_cache.messages import brief
from gaam_decoder import RunResult
from gaam_decoder.reports.figures import accuracy, learned, output
from gaam_decoder.reports.pictures.pictures import save_pictures
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import answers, build_run
from tests.decoder.reports.conftest import written as written_by
from tests.hostile_strings import HOSTILE, flooded, harmful

pytestmark = pytest.mark.usefixtures("undrawn")  # pictures have tests of their own, below
SAFE = "plain"
RNG = np.random.default_rng(0)
LOG = [
    {"seed": seed, "epoch": epoch, "loss": 1.0, "train_accuracy": 0.5, "accuracy": 0.5}
    for seed in range(2)
    for epoch in (1, 2, 3)
]


def renamed(value: Any, name: str) -> Any:
    """JSON values in which every string is ``name``, and what its kind needs to be told apart."""
    if isinstance(value, dict):
        return {key: renamed(entry, name) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [f"{entry}{place}" for place, entry in enumerate(renamed_all(value, name))]
    return name if isinstance(value, str) else value


def renamed_all(values: Sequence[Any], name: str) -> list[Any]:
    return [renamed(value, name) for value in values]


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
    run.environment[name] = name
    run.engine[name] = name
    run.cache["rows"] = {name: 9, f"{name}t": right.shape[1]}
    vars(run)["learned"] = {name: RNG.random((len(right), 2, 3))}
    vars(run)["log"] = LOG
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


def same_for_all(shape: Callable[[str], Any], format: str) -> None:
    """What ``shape`` sees in the output is the same for every name."""
    expected = shape(written(format, SAFE))
    assert expected
    for what, name in HOSTILE.items():
        text = written(format, name)
        assert not harmful(text), what
        assert not flooded(text), what
        text.encode()
        assert shape(text) == expected, what


def test_spreadsheets_see_cells_and_no_formula() -> None:
    def shape(text: str) -> Any:
        lines = list(csv.reader(io.StringIO(text), strict=True))
        assert len({len(line) for line in lines}) == 1
        assert len(text.splitlines()) == len(lines)
        for cell in [cell for line in lines for cell in line]:
            if not re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", cell):
                assert not re.search("(^|;)\\s*[-=+@\t\r\uff1d\uff0b\uff0d\uff20]", cell), cell
        numbers = [
            [value for name, value in zip(lines[0], line, strict=True) if name in counted]
            for line in lines[1:]
        ]
        return len(lines[0]), numbers

    counted = {"accuracy_mean", "difference", "seed", "accuracy", "p_holm", "seeds"}
    same_for_all(shape, "csv")


def test_programs_read_the_true_name_from_json() -> None:
    for what, name in HOSTILE.items():
        text = written("json", name)
        assert text.isascii(), what
        assert not harmful(text), what
        content = json.loads(text)
        assert content["cache"]["dataset"] == content["cache"]["encoder"] == name, what
        assert content["class_names"] == [f"{name}{place}" for place in range(3)], what
        assert content["rows"][0]["attention"] == name, what
        assert content["rows"][0]["failed_seeds"] == [{"seed": 1, "reason": name}], what


def tokens(text: str) -> Iterator[tuple[str, str]]:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for token in parser.parse(text):
        for one in [token, *(token.children or ())]:
            yield one.type, one.content


def test_markdown_has_no_structure_but_ours() -> None:
    def shape(text: str) -> Any:
        found = list(tokens(text))
        for kind, content in found:
            if kind == "text":  # what a program that makes links of text would look at
                linked = r"://|\bwww\.|@|mailto:|xmpp:|#[0-9]"
                assert not re.search(linked, content, re.IGNORECASE), content
            if kind == "code_inline":  # a signature, which has no names
                assert re.fullmatch(r"gaam [\w.]+ \| \d+ recipes, \d+ seeds \| \w{12}", content)
        return [kind for kind, _ in found if kind != "text"]

    same_for_all(shape, "markdown")
    kinds = {kind for kind, _ in tokens(written("markdown", SAFE))}
    assert not {"html_inline", "html_block", "link_open", "heading_open"} & kinds
    assert {"table_open", "strong_open", "bullet_list_open"} <= kinds


def test_markdown_shows_names_as_they_are() -> None:
    for name in ("a|b", "*a*", "[x](y)", "a\\b", "<b>", "1. a", "{{a}}", "a_b_c", "&amp;"):
        assert any(name in content for _, content in tokens(written("markdown", name))), name


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            assert name not in ("href", "src") or re.match("#|data:,$", str(value)), value
            assert not name.startswith("on")
        if tag != "wbr":
            self.seen.append((tag, [name for name, _ in attrs]))

    def handle_endtag(self, tag: str) -> None:
        self.seen.append(tag)

    def handle_comment(self, data: str) -> None:
        self.seen.append("comment")

    def handle_decl(self, decl: str) -> None:
        self.seen.append("declaration")

    def unknown_decl(self, data: str) -> None:
        self.seen.append("unknown")


def test_a_page_has_no_structure_but_ours() -> None:
    def shape(text: str) -> Any:
        tags = Tags()
        tags.feed(text)
        tags.close()
        return tags.seen

    same_for_all(shape, "html")


CONTROL = re.compile(r"\\([a-zA-Z@]+|.)", re.DOTALL)


def test_latex_has_no_commands_but_ours() -> None:
    def shape(text: str) -> Any:
        assert set(re.sub("[\u00c0-\u017e]", "", text)) <= {*map(chr, range(32, 127)), "\n"}
        body = text.split("\\makeatother\n", 1)[1]
        printing = r"\\text[a-z]+\{\}|\\[&%$#_{}]|''|\{\[\}|\{\*\}|([-,])\{\}"
        plain = re.sub(printing, "", body)
        assert plain.count("{") == plain.count("}")
        assert "%" not in plain.replace("{!}{%\n", "")
        # dollars stand around numbers alone
        plain = re.sub(r"\$[+-][0-9.]+\**\$", "", plain)
        assert not set("$#~^_") & set(plain)
        return Counter(CONTROL.findall(plain)), plain.count("&"), plain.count("\n")

    same_for_all(shape, "latex")


def block_widths(text: str) -> Iterator[tuple[int, list[str]]]:
    """Width of the rule of every table, and the lines below it."""
    lines = text.split("\n")
    for place, line in enumerate(lines):
        if "\u2500" in line:
            end = next(i for i in range(place, len(lines)) if not lines[i].strip())
            yield cell_len(line), lines[place + 1 : end]


def test_a_terminal_shows_names_and_keeps_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    def shape(text: str) -> Any:
        blocks = list(block_widths(text))
        for rule, lines in blocks:
            assert rule <= 80
            assert all(cell_len(line) <= rule for line in lines)
        return len(blocks)

    same_for_all(shape, "terminal")
    assert "[red]a[/red] [/] [link=http" in written("terminal", HOSTILE["markup"])
    assert ":red_circle: :smile:" in written("terminal", HOSTILE["emoji code"])


def test_a_colour_terminal_gets_no_sequence_from_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def sequences(name: str) -> set[str]:
        screen = io.StringIO()
        screen.isatty = lambda: True  # type: ignore[method-assign]
        load = plugins.load("gaam_decoder.reports.formats", "terminal", kind="")
        load().write(hostile_tables(name), screen)
        text = screen.getvalue()
        found = set(re.findall("\x1b[^m]*m", text))
        assert not harmful(re.sub("\x1b\\[[0-9;]*m", "", text)), name
        return found

    expected = sequences(SAFE)
    assert expected
    for name in HOSTILE.values():
        assert sequences(name) == expected


def test_a_long_name_is_cut_and_does_not_flood() -> None:
    for format in ("terminal", "markdown", "html", "latex"):
        usual = len(written(format, "n" * 100))
        for what in ("10 kB", "10 kB of words", "a thousand marks"):
            assert len(written(format, HOSTILE[what])) < 3 * usual, what


@pytest.mark.filterwarnings("error")
def test_pictures_draw_every_name_and_obey_none() -> None:
    names = list(HOSTILE.values())
    value = [np.array([80.0, 81.0])] * len(names)
    nothing = [None] * len(names)
    svg = output.inline_svg(
        lambda: accuracy.strip(names, value, nothing, nothing), key="k", alt="".join(names)
    )
    assert not harmful(svg)
    root = ET.fromstring(svg)
    kinds = {element.tag.split("}")[-1] for element in root.iter()}
    assert not {"script", "a", "foreignObject", "image"} & kinds
    shown = [element.text or "" for element in root.iter() if element.tag.endswith("}text")]
    assert HOSTILE["script"] in shown
    assert HOSTILE["mathematics"] in shown
    assert HOSTILE["Chinese"] in shown
    parameters = {name: RNG.random((2, 3)) for name in names[:3]}
    ET.fromstring(output.inline_svg(lambda: learned.histograms(parameters), key="k", alt=""))


@pytest.mark.filterwarnings("error")
def test_pictures_for_a_paper_need_no_font_but_ours() -> None:
    names = list(HOSTILE.values())
    value, nothing = [np.array([80.0])] * len(names), [None] * len(names)
    files = output.image_files(lambda: accuracy.strip(names, value, nothing, nothing))
    assert files["pdf"].startswith(b"%PDF")
    assert files["png"].startswith(b"\x89PNG")


def test_pictures_have_names_of_files_that_are_fit_and_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "image_files", lambda draw: {"pdf": b"pdf"})
    for place, what in enumerate(("carriage return", "10 kB", "bare addresses", "Chinese")):
        name = HOSTILE[what]
        paths = save_pictures(hostile_tables(name), tmp_path / str(place))
        assert len({path.name.lower() for path in paths}) == len(paths) > 3
        assert all(re.fullmatch(r"[\w.=-]{1,150}", path.name, re.ASCII) for path in paths)
        assert all(path.parent == tmp_path / str(place) for path in paths)


def test_every_field_of_a_run_was_hostile() -> None:
    name = HOSTILE["colour"]

    def strings(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for entry in value.values():
                yield from strings(entry)
        elif isinstance(value, (list, tuple)):
            for entry in value:
                yield from strings(entry)
        elif isinstance(value, (str, Path)):
            yield str(value)

    run = hostile_run(name, "-b", answers(2, 0.8, 1), failed={1: "why"})
    found = [text for field in fields(run) for text in strings(vars(run)[field.name])]
    assert len(found) > 15
    assert all(text.startswith(name) for text in found)
    assert brief(name) not in name
