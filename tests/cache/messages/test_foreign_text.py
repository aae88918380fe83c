"""Text from elsewhere is shown and not obeyed, where it meets a terminal."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path

import pytest

import cli
from gaam_cache.errors import GaamError
from gaam_cache.messages import brief, tell, visible, visible_values
from tests.hostile_strings import HOSTILE, flooded, harmful


@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_of_a_hostile_name_is_obeyed(what: str) -> None:
    name = HOSTILE[what]
    shown = visible(name)
    assert not harmful(shown, keep="")
    assert not flooded(shown)
    assert visible(shown) == shown
    shown.encode()


def test_no_character_of_unicode_escapes() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    assert not harmful(visible("a".join(every)), keep="")


def test_ordinary_names_stay_as_they_are() -> None:
    for name in (
        "ag_news",
        "\u00e4\u00f6\u00fc \u00df",
        "\u4e2d\u6587",
        "Sci/Tech",
        "e\u0301",
        "50% & co",
        "a\\b",
    ):
        assert visible(name) == brief(name) == name


def test_long_names_are_bounded_and_stay_different() -> None:
    first, second = "a" * 5000 + "b" + "a" * 5000, "a" * 10001
    for longest in (20, 60, 120, 4000):
        assert len(brief(first, longest)) == longest
        assert brief(first, longest) != brief(second, longest)
        assert brief(first, longest)[:3] == "aaa"
    assert len(brief("\u202e" * 500)) == 120, "escapes count"


@pytest.mark.parametrize("what", HOSTILE)
def test_a_message_holds_its_shape_whatever_is_in_it(what: str) -> None:
    name = HOSTILE[what]
    error = GaamError(
        f"no '{name}'", expected=name, found=f"'{name}'", where=f"/{name}", hint=f"try {name}"
    )
    text = str(error)
    assert not harmful(text)
    lines = text.split("\n")
    labels = [line[:12].strip() for line in lines if line[:2] == "  " and line[2:3] != " "]
    known = ["expected:", "found:", "where:", "to do:"]
    assert labels == [label for label in known if name or label != "expected:"]
    assert all(line.startswith("    ") or line[:12].strip() in known for line in lines[1:])


def test_values_of_json_are_made_visible_at_every_depth() -> None:
    value = {"\x1b": ["\x07", {"a": ("\n", 1, None, 2.5, True)}]}
    assert visible_values(value) == {"\\x1b": ["\\x07", {"a": ["\\n", 1, None, 2.5, True]}]}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_no_encoding_of_a_terminal_refuses_a_character(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")  # as streams.py
    monkeypatch.setattr(sys, "stdout", stream)
    for name in HOSTILE.values():
        tell(name)
    sys.stdout.flush()
    assert not harmful(raw.getvalue().decode(encoding))


def test_the_command_line_prints_through_one_function() -> None:
    tree = ast.parse(Path(cli.__file__).read_text("utf-8"))
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {node.id for node in called if isinstance(node, ast.Name)}
    written = {node.attr for node in called if isinstance(node, ast.Attribute)}
    assert "tell" in names
    assert "print" not in names
    assert not {"write", "echo", "secho", "print"} & written
