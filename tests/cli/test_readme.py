"""The commands in pages, scripts and presets exist and mean what they say."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cli
from gaam_cache.common import settings
from gaam_cache.common.command_line import read_options
from gaam_cache.config import ExtractConfig
from gaam_decoder.config import TrainConfig
from gaam_decoder.study import read_study
from tests.conftest import Outcome, built_commands
from tests.tiny import WORDS, write_csv

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TRAINING_GUIDE = ROOT / "gaam_decoder" / "GUIDE.md"
PAGES = [README, ROOT / "gaam_cache" / "GUIDE.md", TRAINING_GUIDE]
PRESETS = ROOT / "data" / "presets"
STUDIES = sorted(
    file.parent for file in (ROOT / "data" / "studies").glob("*/study.toml")
)
FILES_WITH_COMMANDS = [
    *PAGES,
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
INDENTED_BLOCK = re.compile(r"(?:^    .*\n|^\n)+", re.MULTILINE)
RESULT = re.compile(
    r"^\| ([a-z][^|]*) \| ([0-9.]+) \| .*? \| ([^|]*) \|.*\| (\w*) ?\|$", re.MULTILINE
)
ELSEWHERE = re.compile(r"\b(GPUs?|hub|Ray)\b")
"""A comment of a command that cannot run here."""
RUN = "gaam-linear-1f9c2a7b-s0-9"
"""A run's name in the README; nobody knows the true one before."""


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


def test_the_configuration_in_the_guide_is_valid(tmp_path: Path) -> None:
    blocks = INDENTED_BLOCK.findall(read(TRAINING_GUIDE))
    block = next(block for block in blocks if "[extract]" in block)
    file = tmp_path / "c.toml"
    file.write_text("\n".join(line[4:] for line in block.splitlines()))
    extract = settings.resolve(ExtractConfig, "extract", {}, config_file=file)
    assert extract.dataset == "mydata"
    assert extract.shard_rows == 512
    train = settings.resolve(TrainConfig, "train", {}, config_file=file)
    assert [str(spec) for spec in train.attn] == ["gaam", "laplace:heads=1"]
    assert len(train.seeds) == 32


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_exist(page: str) -> None:
    targets = set(TARGET.findall(read(ROOT / "Makefile")))
    assert set(MAKE.findall(read(ROOT / page))) <= targets


def anchor_of(heading: str) -> str:
    """A heading's address in its page."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}"
)
def test_linked_files_and_headings_exist(page: Path) -> None:
    text = read(page)
    anchors = {anchor_of(heading) for heading in HEADING.findall(text)}
    for link in LINK.findall(text):
        file, _, anchor = link.partition("#")
        if file:
            assert (page.parent / file).exists(), link
        else:
            assert anchor in anchors, link


def write_example_data() -> None:
    """Write the files that the README's commands read into the current folder."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        rows = [
            (f"t {i}", f"body {rng.choice(WORDS)} {WORDS[i]}", "ab"[i % 2])
            for i in range(16)
        ]
        write_csv(Path("mydata", f"{split}.csv"), rows, header="title,body,topic")
        states = rng.normal(size=(8, 3, 4)).astype(np.float32)
        np.savez(f"{split}.npz", embeddings=states, labels=np.arange(8) % 2)
    Path("mydata.csv").write_text(read(Path("mydata/train.csv")))
    write_csv(Path("in.csv"), [("some", "thing"), ("else", "too")], "title,body")


def test_every_command_of_the_readme_runs_or_says_what_it_needs(
    gaam: Callable[..., Outcome],
    encoders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_example_data()
    options_for_a_test = {
        "extract": ["--encoder", encoders["bert"], "--limit", 16],
        "train": ["--epochs", 1, "--no-probe"],
    }
    num_commands = 0
    for line in COMMAND.findall(read(README)):
        command, _, comment = line.partition("  #")
        if ELSEWHERE.search(comment):
            continue
        if RUN in command:
            last_run = max(Path("runs").glob("gaam*-linear-*"))
            command = command.replace(RUN, last_run.name)
        name, *arguments = shlex.split(command)
        outcome = gaam(name, *arguments, *options_for_a_test.get(name, []))
        assert outcome.code == 0, f"{command}: {outcome.err}"
        num_commands += 1
    assert num_commands >= 5


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
