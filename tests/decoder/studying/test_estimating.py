"""What a dry run says of what is missing, of what is known of it and of what is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.config import ExtractConfig
from tests.decoder.studying.tiny_study import RUNS, Gaam, contents, written

EXTRACTED = """
title = "Tiny"
question = "Is anything there?"

[caches.small]
encoder = "{}"
dataset = "{}"

[[train]]
cache = "small"
attn = ["none"]
seeds = "0-1"
probe = true
epochs = 1
compile = "off"

[[report]]
name = "one"
title = "One"
"""
SPEED = ("--set", "tokens-per-second=100")


def dry_run(gaam: Gaam, *options: str) -> list[tuple[str, float | None]]:
    """The first word of every command that is missing, and its seconds."""
    told = gaam("study", "tiny", "--dry-run", "--json", *options)
    assert told.code == 0, told.err
    said = json.loads(told.out)
    found = [(one["command"].split()[1], one["seconds"]) for one in said["commands"]]
    assert said["seconds"] == sum(seconds or 0 for _, seconds in found)
    lines = gaam("study", "tiny", "--dry-run", *options).out.splitlines()
    assert len(lines) == 1 + 2 * len(found)
    return found


@pytest.mark.parametrize(
    ("missing", "found"),
    [
        (("caches", "tiny"), {"plant": 2, "train": 2, "ablate": 1}),
        (("caches/again",), {"plant": 1, "train": 1}),
        (("tiny",), {"train": 2, "ablate": 1}),
        ((), {}),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_written(
    missing: tuple[str, ...], found: dict[str, int], here: Path, gaam: Gaam
) -> None:
    for name in missing:
        shutil.rmtree(here / "studies" / name)
    before = contents(here)
    said = dry_run(gaam)
    commands = [command for command, _ in said]
    assert {name: commands.count(name) for name in set(commands)} == found
    # a training is timed where its cache is there, an ablation where its run is
    timed = {command for command, seconds in said if seconds is not None}
    assert timed == ({"train"} if missing == ("tiny",) else set())
    assert contents(here) == before


def test_an_ablation_has_a_time_when_its_run_is_there(here: Path, gaam: Gaam) -> None:
    for run in (here / RUNS).iterdir():
        if run.is_dir() and json.loads((run / "run.json").read_text())["recipe"]["layers"]:
            shutil.rmtree(run)
    [(command, seconds)] = dry_run(gaam)
    assert command == "ablate"
    assert seconds


def test_an_extraction_has_a_time_where_its_rows_and_encoder_are_here(
    tiny_config: ExtractConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaam: Gaam
) -> None:
    monkeypatch.chdir(tmp_path)
    known: Any = tiny_config.encoder, tiny_config.dataset
    written(tmp_path, EXTRACTED.format(*known))
    [(_, seconds), train] = dry_run(gaam, *SPEED)
    assert seconds
    assert train == ("train", None)
    for rows_and_encoder in (("nowhere", known[1]), (known[0], "nowhere")):
        written(tmp_path, EXTRACTED.format(*rows_and_encoder))
        assert dry_run(gaam, *SPEED) == [("extract", None), ("train", None)]
    assert dry_run(gaam, *SPEED, "--dataset", str(known[1]))[0] == ("extract", seconds)
