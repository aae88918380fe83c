"""--quiet leaves out what a command says of its work, and never what it was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.mark.parametrize(
    ("splits", "reason", "options"),
    [
        pytest.param(["train", "test"], "", "", id="train and test"),
        pytest.param(["train"], "no split 'test': --folds 5", " --folds 5", id="train"),
        pytest.param(
            ["test"],
            "no split 'train': --folds 5",
            " --set train-split=test --folds 5",
            id="test",
        ),
        pytest.param(["train", "dev", "test"], "", " --set val-split=dev", id="three"),
        pytest.param(
            ["test", "dev"], "", " --set train-split=dev", id="test and another"
        ),
    ],
)
def test_what_an_import_says_to_do_next_fits_its_splits(
    splits: list[str], reason: str, options: str, here: Path, gaam: Gaam
) -> None:
    arrays: dict[str, Any] = {}
    for number, split in enumerate(splits):
        states = np.random.default_rng(number).normal(size=(30, 1, 4))
        arrays |= {f"{split}_states": states, f"{split}_labels": np.arange(30) % 2}
    np.savez(here / "all.npz", **arrays)

    lines = gaam("import", "all.npz").out.splitlines()
    assert lines[-1] == f"next: gaam train --cache cache --attn none{options}"
    assert lines[-2].startswith(reason or "  names")
    # the command that it says does what it says
    next_command = lines[-1].removeprefix("next: gaam ").split()
    fast = ("--seeds", 2, "--lr", 0.01, "--epochs", 1, "--no-probe", "-q")
    assert gaam(*next_command, *fast).code == 0
