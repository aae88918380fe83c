"""What the README tells a person to type exists and means what it says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gaam_cache.terminal.settings import resolve

from gaam_cache.config import ExtractConfig
from gaam_decoder.config import TrainConfig
from gaam_decoder.specs import parse_attention
from tests.conftest import Outcome

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "gaam_cache" / "GUIDE.md", ROOT / "gaam_decoder" / "GUIDE.md"]
BLOCKS = re.findall(r"(?:^    .*\n|^\n)+", README, re.MULTILINE)
ELSEWHERE = re.compile(r"\b(GPUs?|hub|Ray)\b")
"""What a comment says of a command that cannot run here."""
RUN = "gaam-linear-1f9c2a7b-s0-9"
"""How the README calls a run, whose name nobody knows before."""


def lines_of(text: str) -> list[str]:
    """Commands with their comments."""
    return re.findall(r"^    (gaam [a-z].*)$", text, re.MULTILINE)


COMMANDS = sorted(
    {line.split("  #")[0] for page in PAGES for line in lines_of(page.read_text("utf-8"))}
)


def test_commands_were_found() -> None:
    assert len(COMMANDS) >= 9
    names = {shlex.split(command)[1] for command in COMMANDS}
    assert names >= {"extract", "train", "report", "describe"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_in_the_readme_exists(
    command: str, gaam: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, name, *arguments = shlex.split(command)
    options = {argument for argument in arguments if argument.startswith("--")}
    assert options <= set(re.findall(r"--[a-z-]+", gaam(name, "--help").out))
    for option, value in pairwise(arguments):
        if option == "--attn":
            parse_attention(value)
        elif option == "--preset":
            resolve({"extract": ExtractConfig, "train": TrainConfig}[name], name, {}, preset=value)


def test_the_configuration_in_the_readme_is_valid(tmp_path: Path) -> None:
    block = next(block for block in BLOCKS if "[extract]" in block)
    file = tmp_path / "c.toml"
    file.write_text("\n".join(line[4:] for line in block.splitlines()))
    extract = resolve(ExtractConfig, "extract", {}, config_file=file, environ={})
    train = resolve(TrainConfig, "train", {}, config_file=file, environ={})
    assert (extract.dataset, extract.max_length) == ("mydata", 256)
    assert (train.attn, len(train.seeds)) == (("gaam", "laplace:heads=1"), 32)


def test_make_targets_and_linked_files_exist() -> None:
    targets = re.findall(r"^    make (\w+)", README, re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    for page in PAGES:
        text = page.read_text("utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", name.lower()).replace(" ", "-") for name in headings}
        for link in re.findall(r"(?:\]\(|src=\"|srcset=\")((?!http)[^)\"]+)", text):
            file, _, anchor = link.partition("#")
            assert not file or (page.parent / file).exists(), f"{page.name}: {link}"
            assert file or anchor in anchors, f"{page.name}: {link}"


def test_the_readme_is_one_path_and_the_guides_can_be_read() -> None:
    for page, most in zip(PAGES, (200, 110, 170), strict=True):  # tables of options are help texts
        assert page.read_text("utf-8").count("\n") <= most, page
    assert "<!--" not in README


def test_every_command_of_the_readme_runs_or_says_what_it_needs(
    gaam: Callable[..., Outcome],
    encoders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"ENCODER": encoders["bert"], "LIMIT": 16, "EPOCHS": 1}.items():
        monkeypatch.setenv(f"GAAM_{name}", str(value))
    rng = np.random.default_rng(0)
    Path("mydata").mkdir()
    for split in ("train", "test"):
        rows = [f"t {i},body {rng.integers(99)} {i},{'ab'[i % 2]}" for i in range(16)]
        Path(f"mydata/{split}.csv").write_text("\n".join(["title,body,topic", *rows]))
        states = rng.normal(size=(8, 3, 4)).astype(np.float32)
        np.savez(f"{split}.npz", embeddings=states, labels=np.arange(8) % 2)
    Path("in.csv").write_text("title,body\nsome,thing\nelse,too\n")
    ran = 0
    for line in lines_of(README):
        command, _, comment = line.partition("  #")
        if ELSEWHERE.search(comment):
            continue
        if RUN in command:
            found = sorted(Path("runs").glob("gaam-linear-*"))[-1].name
            command = command.replace(RUN, found)
        outcome = gaam(*shlex.split(command)[1:])
        assert outcome.code == 0, f"{command}: {outcome.err}"
        ran += 1
    assert ran >= 10


def test_the_numbers_of_the_study_are_those_that_are_recorded() -> None:
    found = json.loads((ROOT / "data/studies/ag-news-minilm/results.json").read_text("utf-8"))
    rows = {row["label"]: row for row in found["reports"]["linear"][0]["rows"]}
    table = re.findall(
        r"^\| ([a-z][^|]*) \| ([0-9.]+) \| .*? \| ([^|]*) \|.*\| (\w*) ?\|$", README, re.M
    )
    assert len(table) >= 8
    for name, accuracy, difference, verdict in table:
        row = rows[name]
        assert f"{100 * row['accuracy']['mean']:.2f}" == accuracy
        if difference.strip():
            assert f"{100 * row['comparison']['difference']:+.2f}" == difference.strip()
            assert row["comparison"]["verdict"] == verdict
