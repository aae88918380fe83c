"""What pages, scripts and presets tell a person to type exists and means what it says."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import cli
from gaam_cache.common import settings
from gaam_cache.common.command_line import read_options
from gaam_cache.config import ExtractConfig
from gaam_decoder.config import TrainConfig
from gaam_decoder.study import read_study
from tests.conftest import Outcome
from tests.tiny import WORDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [
    ROOT / "README.md",
    ROOT / "gaam_cache" / "GUIDE.md",
    ROOT / "gaam_decoder" / "GUIDE.md",
]
STUDIES = sorted(
    file.parent for file in (ROOT / "data" / "studies").glob("*/study.toml")
)
PRESETS = ROOT / "data" / "presets"
PLACES = [*PAGES, *(study / "README.md" for study in STUDIES), *PRESETS.glob("*.toml")]
PLACES += [
    *PRESETS.glob("slurm/*"),
    ROOT / "Makefile",
    ROOT / "data" / "studies" / "quickstart.py",
]
LINE = re.compile(r"^(?:#?    |\t\$\(BIN\)/)gaam ([a-z].*)$", re.MULTILINE)
SBATCH = re.compile(r"^#     sbatch .*?\.sbatch (.*)$", re.MULTILINE)
ELSEWHERE = re.compile(r"\b(GPUs?|hub|Ray)\b")
"""What a comment says of a command that cannot run here."""
RUN = "gaam-linear-1f9c2a7b-s0-9"
"""How the README calls a run, whose name nobody knows before."""
COMMANDS: dict[str, Any] = dict(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]


def parse(words: list[str]) -> None:
    """Take a command as the program does, up to its configuration."""
    name, *rest = words
    context = COMMANDS[name].make_context(name, rest)
    options = {
        key: None if value == () else value for key, value in context.params.items()
    }
    if name in cli.SETTINGS:
        read_options(cli.SETTINGS[name], context)
    elif name in ("report", "runs"):
        cli._filters(options["attn"], options["head"], options["where"])


@pytest.mark.parametrize(
    "place", PLACES, ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_command_that_is_written_down_is_one(place: Path) -> None:
    text = place.read_text("utf-8")
    found = [
        line.split("  #")[0] for line in (*LINE.findall(text), *SBATCH.findall(text))
    ]
    assert found or place.suffix not in (".md",)
    for line in found:
        parse(shlex.split(line))


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_every_command_of_a_study_is_one(study: Path) -> None:
    recipe = read_study(study.name)
    for step in recipe.steps:
        if step.command != "ablate":  # of a run that is not there yet
            parse(shlex.split(step.words())[1:])


def test_the_configuration_in_the_guide_is_valid(tmp_path: Path) -> None:
    blocks = re.findall(
        r"(?:^    .*\n|^\n)+", PAGES[2].read_text("utf-8"), re.MULTILINE
    )
    block = next(block for block in blocks if "[extract]" in block)
    file = tmp_path / "c.toml"
    file.write_text("\n".join(line[4:] for line in block.splitlines()))
    extract = settings.resolve(ExtractConfig, "extract", {}, config_file=file)
    train = settings.resolve(TrainConfig, "train", {}, config_file=file)
    assert (extract.dataset, extract.shard_rows) == ("mydata", 512)
    assert ([*map(str, train.attn)], len(train.seeds)) == (
        ["gaam", "laplace:heads=1"],
        32,
    )


def test_make_targets_and_linked_files_exist() -> None:
    targets = re.findall(
        r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    for page in (README, (ROOT / "CONTRIBUTING.md").read_text("utf-8")):
        assert {*re.findall(r"(?:^    |; |`)make ([\w-]+)", page, re.M)} <= {*targets}
    for page in PAGES:
        text = page.read_text("utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        anchors = {
            re.sub(r"[^a-z0-9 -]", "", name.lower()).replace(" ", "-")
            for name in headings
        }
        for link in re.findall(r"(?:\]\(|src=\"|srcset=\")((?!http)[^)\"]+)", text):
            file, _, anchor = link.partition("#")
            assert not file or (page.parent / file).exists(), f"{page.name}: {link}"
            assert file or anchor in anchors, f"{page.name}: {link}"


def test_every_command_of_the_readme_runs_or_says_what_it_needs(
    gaam: Callable[..., Outcome],
    encoders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    small = {
        "extract": ["--encoder", encoders["bert"], "--limit", 16],
        "train": ["--epochs", 1, "--no-probe"],
    }
    rng = np.random.default_rng(0)
    Path("mydata").mkdir()
    for split in ("train", "test"):
        rows = [
            f"t {i},body {rng.choice(WORDS)} {WORDS[i]},{'ab'[i % 2]}"
            for i in range(16)
        ]
        Path(f"mydata/{split}.csv").write_text("\n".join(["title,body,topic", *rows]))
        states = rng.normal(size=(8, 3, 4)).astype(np.float32)
        np.savez(f"{split}.npz", embeddings=states, labels=np.arange(8) % 2)
    Path("mydata.csv").write_text(Path("mydata/train.csv").read_text())
    Path("in.csv").write_text("title,body\nsome,thing\nelse,too\n")
    ran = 0
    for line in LINE.findall(README):
        command, _, comment = line.partition("  #")
        if ELSEWHERE.search(comment):
            continue
        if RUN in command:
            found = sorted(Path("runs").glob("gaam*-linear-*"))[-1].name
            command = command.replace(RUN, found)
        name, *rest = shlex.split(command)
        outcome = gaam(name, *rest, *small.get(name, []))
        assert outcome.code == 0, f"{command}: {outcome.err}"
        ran += 1
    assert ran >= 5


def test_the_numbers_of_the_study_are_those_that_are_recorded() -> None:
    file = (ROOT / "data/studies/ag-news-minilm/rows.csv").read_text("utf-8")
    rows = {
        row["label"]: row
        for row in csv.DictReader(file.splitlines())
        if row["report"] == "readme"
    }
    table = re.findall(
        r"^\| ([a-z][^|]*) \| ([0-9.]+) \| .*? \| ([^|]*) \|.*\| (\w*) ?\|$",
        README,
        re.M,
    )
    assert len(table) >= 8
    for name, accuracy, difference, verdict in table:
        row = rows[name]
        assert f"{100 * float(row['accuracy']):.2f}" == accuracy
        if difference.strip():
            assert f"{100 * float(row['difference']):+.2f}" == difference.strip()
            assert row["verdict"] == verdict
