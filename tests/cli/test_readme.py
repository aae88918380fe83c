"""The commands in studies, scripts and presets exist and mean what they say."""

from __future__ import annotations

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


def test_the_numbers_of_the_study_are_those_of_its_page() -> None:
    page = read(ROOT / "data" / "studies" / "distributions" / "README.md")
    results = table_of(read(README), "decoder, linear head")
    assert len(results) >= 8
    # the first table of the page compares with the Gaussian
    recorded = {
        line["decoder"].removesuffix(" (baseline)"): line
        for line in table_of(page, "decoder")
    }
    names = {
        "difference to the Gaussian": "difference",
        "95% CI of the mean": "uncorrected 95% CI",
        "95% prediction interval": "another data set",
    }
    for line in results:
        expected = recorded[line.pop("decoder, linear head")]
        for column, value in line.items():
            assert (value or "-") == expected[names.get(column, column)]


def table_of(text: str, first_column: str) -> list[dict[str, str]]:
    """The lines of the first table whose first column has this name."""
    lines = text[text.index(f"| {first_column} |") :].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    header, _, *rows = cells
    return [dict(zip(header, row, strict=True)) for row in rows]
