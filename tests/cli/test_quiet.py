"""--quiet leaves out what a command says of its work, and never what it was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Outcome

Gaam = Callable[..., Outcome]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_that_write_files_print_nothing(
    here: Path, encoders: dict[str, Path], dataset: Path, gaam: Gaam
) -> None:
    options = ("--encoder", encoders["bert"], "--dataset", dataset, "--device", "cpu")
    assert gaam("extract", *options, "-q") == (0, "", "")
    # again without -q: nothing is left to do, and it says what to do next
    lines = gaam("extract", *options).out.splitlines()
    mechanisms = "--attn last-layer --attn layer-mean --attn none --attn gaam"
    assert lines[-1] == f"next: gaam train --cache cache {mechanisms}"

    # without test rows, what it says to do next has folds
    without_test = (*options, "--split", "train", "--out", "without-test")
    last_line = gaam("extract", *without_test).out.splitlines()[-1]
    assert last_line == f"next: gaam train --cache without-test {mechanisms} --folds 5"

    training = ("train", "--attn", "none", "--epochs", 1, "--seeds", 2, "--no-probe")
    assert gaam(*training, "-q") == (0, "", "")
    assert len(json.loads(gaam(*training, "-q", "--json").out)) == 5
    [run] = here.glob("runs/*-s0-1")
    assert gaam("export", run, "exported", "-q") == (0, "", "")
    assert gaam("plant", "planted", "--rows", 90, "-q") == (0, "", "")

    # commands that answer
    assert "cache" in gaam("verify", "cache", "-q").out
    assert gaam("predict", run, "goal", "-q", "--device", "cpu").out.startswith("goal")
    assert gaam("extract", *options, "--dry-run", "-q").out
