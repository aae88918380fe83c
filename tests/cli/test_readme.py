"""The commands in studies, scripts and presets exist and mean what they say."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest

import cli
from gaam_cache.common.command_line import read_options
from gaam_decoder.study import read_study
from tests.conftest import built_commands

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PRESETS = ROOT / "data" / "presets"
STUDIES = sorted(
    file.parent for file in (ROOT / "data" / "studies").glob("*/study.toml")
)
FILES_WITH_COMMANDS = [
    *(study / "README.md" for study in STUDIES),
    *PRESETS.glob("*.toml"),
    *PRESETS.glob("slurm/*"),
    ROOT / "Makefile",
    ROOT / "data" / "studies" / "quickstart.py",
]
COMMAND = re.compile(r"^(?:#?    |\t\$\(BIN\)/)gaam ([a-z].*)$", re.MULTILINE)
SBATCH = re.compile(r"^#     sbatch .*?\.sbatch (.*)$", re.MULTILINE)
TARGET = re.compile(r"^([\w-]+):", re.MULTILINE)
MAKE = re.compile(r"(?:^    |; |`)make ([\w-]+)", re.MULTILINE)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
LINK = re.compile(r"(?:\]\(|src=\"|srcset=\")((?!http)[^)\"]+)")
RESULT = re.compile(
    r"^\| ([a-z][^|]*) \| ([0-9.]+) \| .*? \| ([^|]*) \|.*\| (\w*) ?\|$", re.MULTILINE
)


def read(page: Path) -> str:
    return page.read_text("utf-8")


def parse(words: list[str]) -> None:
    """Take a command as the program does, up to its configuration."""
    name, *arguments = words
    context = built_commands().commands[name].make_context(name, arguments)
    if name in cli.SETTINGS:
        read_options(cli.SETTINGS[name], context)
    elif name in ("report", "runs"):
        options = {
            key: None if value == () else value for key, value in context.params.items()
        }
        cli._filters(options["attn"], options["head"], options["where"])


@pytest.mark.parametrize(
    "file", FILES_WITH_COMMANDS, ids=lambda file: f"{file.parent.name}/{file.name}"
)
def test_every_command_that_is_written_down_is_one(file: Path) -> None:
    text = read(file)
    lines = [*COMMAND.findall(text), *SBATCH.findall(text)]
    assert lines or file.suffix != ".md"
    for line in lines:
        command, _, _ = line.partition("  #")
        parse(shlex.split(command))


@pytest.mark.parametrize("study", STUDIES, ids=lambda folder: folder.name)
def test_every_command_of_a_study_is_one(study: Path) -> None:
    for step in read_study(study.name).steps:
        # ablate is of a run that is not there yet
        if step.command != "ablate":
            parse(shlex.split(step.words())[1:])


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_exist(page: str) -> None:
    targets = set(TARGET.findall(read(ROOT / "Makefile")))
    assert set(MAKE.findall(read(ROOT / page))) <= targets


def anchor_of(heading: str) -> str:
    """A heading's address in its page."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def test_the_numbers_of_the_study_are_those_that_are_recorded() -> None:
    text = read(ROOT / "data" / "studies" / "ag-news-minilm" / "rows.csv")
    rows = {
        row["label"]: row
        for row in csv.DictReader(text.splitlines())
        if row["report"] == "readme"
    }
    results = RESULT.findall(read(README))
    assert len(results) >= 8
    for name, accuracy, difference, verdict in results:
        row = rows[name]
        assert f"{100 * float(row['accuracy']):.2f}" == accuracy, name
        if difference.strip():
            percent = f"{100 * float(row['difference']):+.2f}"
            assert percent == difference.strip(), name
            assert row["verdict"] == verdict, name
