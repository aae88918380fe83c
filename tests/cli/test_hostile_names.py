"""Hostile names as classes, paths and arguments of every command: shown, never obeyed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_cache import plugins
from gaam_decoder.reports.writing import page_parts
from tests.conftest import Outcome, build_encoder
from tests.hostile_strings import HOSTILE, flooded, harmful

Gaam = Callable[..., Outcome]
PATH = "\x1b[31m\u202e\x9b[red]\n=cmd|{0}%s$(id)\r\u2066"


def encodable(name: str) -> bool:
    """Whether the readers of rows let it be a label: they refuse what UTF-8 cannot write."""
    return not any("\ud800" <= c <= "\udfff" for c in name)


# with a letter at the end: what cannot be seen at all is no label
CLASSES = sorted({f"{name}n" for name in HOSTILE.values() if encodable(name)})


def checked(outcome: Outcome, *codes: int) -> Outcome:
    for text in (outcome.out, outcome.err):
        assert not harmful(text), harmful(text)
        assert not flooded(text)
        assert "Traceback" not in text
        text.encode()
    assert outcome.code in codes, outcome.err
    if 0 in codes:
        assert not re.search("^error:", outcome.out + "\n" + outcome.err, re.MULTILINE)
    return outcome


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder and a data set whose names, and whose names of classes, are hostile."""
    root = tmp_path_factory.mktemp("place")
    build_encoder(root / f"{PATH}encoder", "bert", num_layers=2)
    data = root / f"{PATH}data"
    data.mkdir()
    for split, count in (("train", 4), ("test", 2)):
        rows = [
            json.dumps({"label": name, "text": f"goal {'cup ' * (place % 7)} {'bank ' * number}"})
            for number in range(count)
            for place, name in enumerate(CLASSES)
        ]
        (data / f"{split}.jsonl").write_text("\n".join(rows))
    return root


def test_every_command_shows_names_and_obeys_none(
    gaam: Gaam, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_parts, "inline_svg", lambda draw, key, alt: "<svg></svg>")
    cache, runs = tmp_path / f"{PATH}cache", tmp_path / f"{PATH}runs"
    extract = ["extract", "--encoder", place / f"{PATH}encoder", "--out", cache]
    extract += ["--dataset", place / f"{PATH}data", "--label-column", "label"]
    train = ["train", "--attn", "gaam", "--attn", "none", "--cache", cache, "--runs", runs]
    train += ["--seeds", 2, "--epochs", 1, "--layers", "all"]
    checked(gaam(*extract, "--dry-run"), 0)
    checked(gaam(*extract), 0)
    checked(gaam(*extract), 0)
    about = json.loads(checked(gaam("inspect", cache, "--json"), 0).out)
    assert about["class_names"] == CLASSES, "programs get the true names"
    words = checked(gaam("inspect", cache), 0).out
    assert len(words.splitlines()) == 7, "a name makes no line of its own"
    checked(gaam("verify", cache), 0)
    checked(gaam(*train, "--dry-run"), 0)
    checked(gaam(*train), 0)
    checked(gaam("inspect", runs), 0)
    for format in plugins.names("gaam_decoder.reports.formats"):
        text = checked(gaam("report", runs, "--format", format), 0).out
        assert (
            checked(gaam("report", runs, "--format", format, "--out", tmp_path / "r"), 0).out == ""
        )
        assert (tmp_path / "r").read_text("utf-8") == text
    checked(gaam("report", runs, "--figures", tmp_path / f"{PATH}figures"), 0)
    assert json.loads(gaam("report", runs, "--json").out)["class_names"] == CLASSES
    run = next(runs.glob("gaam*"))
    checked(gaam("inspect", run), 0)
    for what in (run, cache):
        out = tmp_path / f"{PATH}{what.parent.name}-{what.name}-out"
        checked(gaam("export", what, out), 0)
        checked(gaam("export", what, out), 2)
    # what is damaged is said, with the names of what is
    (run / "run.json").write_text("{")
    checked(gaam("report", runs), 3)
    next(cache.glob("shards/*.h5")).unlink()
    checked(gaam("verify", cache), 3)
    checked(gaam(*train), 3)
    (cache / "cache.json").write_text("{")
    for command in (["inspect", cache], ["verify", cache], train, extract):
        checked(gaam(*command), 3)


def possible(name: str) -> bool:
    """Whether the system lets a program be called with it."""
    try:
        return bool(name) and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


ARGUMENTS = [name for name in HOSTILE.values() if possible(name)]
LONGEST_PATH = 255
"""Bytes of a name that a file can have."""
COMMANDS: list[list[str]] = [
    ["inspect", "NAME"],
    ["report", "NAME"],
    ["report", "RUNS", "--format", "NAME"],
    ["report", "RUNS", "--baseline", "NAME"],
    ["report", "RUNS", "--since", "NAME"],
    ["runs", "NAME"],
    ["runs", "RUNS", "--cache", "NAME"],
    ["verify", "NAME"],
    ["train", "--attn", "NAME"],
    ["train", "--cache", "NAME"],
    ["train", "--head", "NAME"],
    ["train", "--seeds", "NAME"],
    ["train", "--preset", "NAME"],
    ["train", "--config", "NAME"],
    ["extract", "--encoder", "./NAME"],
    ["extract", "--dataset", "./NAME"],
    ["extract", "--pool", "NAME"],
    ["describe", "--attn", "NAME"],
    ["ablate", "NAME"],
    ["export", "here", "out", "--yes", "--push", "NAME"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_a_hostile_argument_is_quoted_in_one_message(
    command: list[str], every: int, gaam: Gaam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sixth name, beginning elsewhere for each command; all where it may take long."""
    monkeypatch.chdir(tmp_path)
    assert len(ARGUMENTS) > 60
    is_path = command[-1] == "./NAME" or len(command) == 2
    for name in ARGUMENTS[COMMANDS.index(command) % every :: every]:
        if is_path and len(os.fsencode(name)) > LONGEST_PATH:
            continue  # which the system refuses, whatever it is made of
        given = [part.replace("NAME", name) for part in command]
        if name.startswith("-"):
            given = [*given[:-2], f"{given[-2]}={given[-1]}"] if len(command) > 2 else given
            given = given if len(command) > 2 else [given[0], "--", given[1]]
        outcome = checked(gaam(*given), 1, 2, 3)
        assert outcome.out == ""
        assert len(outcome.err) < 20_000, "a long name floods"
    assert not list(tmp_path.iterdir())
