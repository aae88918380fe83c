"""What the README tells a person to type exists and means what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.terminal.settings import resolve
from gaam_decoder.config import TrainConfig
from gaam_decoder.specs import parse_attention
from tests.conftest import Outcome

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"(?:^    .*\n|^\n)+", README, re.MULTILINE)
COMMANDS = [
    line.strip().split("  #")[0]
    for block in BLOCKS
    for line in block.splitlines()
    if line.startswith("    gaam ")
]


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
    for link in re.findall(r"\]\(((?!http)[^)]+)\)", README):
        assert (ROOT / link).exists(), link
