"""What a command says to type next does what it says, typed as it stands."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from gaam_cache.terminal.next_step import in_shell

from tests.conftest import Outcome, random_rows, write_csv

Gaam = Callable[..., Outcome]
QUICK = ["--seeds", "2", "--epochs", "1", "--compile", "off", "--quiet"]


def next_words(outcome: Outcome) -> list[str]:
    assert outcome.code == 0, outcome
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("next: ")]
    first, *words = shlex.split(line.removeprefix("next: "))
    assert first == "gaam"
    return words


@pytest.mark.parametrize(
    ("cache", "runs"),
    [
        ("cache", "runs"),
        ("my cache", "my runs"),
        ("../else where/c", "../else where/r"),
        ("-c", "-r"),
        ("$HOME `x` 'q' \"", "a;b & c|d > e*"),
        ("ä/ö", "#r"),
        ("c~", "=r"),
    ],
)
def test_the_next_command_works_from_the_same_folder(
    cache: str,
    runs: str,
    gaam: Gaam,
    encoders: dict[str, Path],
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "odd folder").mkdir()
    monkeypatch.chdir(tmp_path / "odd folder")
    data = ["--encoder", encoders["bert"], "--dataset", dataset, "--quiet"]
    extracted = gaam("extract", *data, "-o", cache)
    words = next_words(extracted)
    assert gaam(*words, "--dry-run", *QUICK).code == 0
    trained = gaam(*words, *QUICK, "-o", runs)
    report = next_words(trained)
    assert gaam(*report).code == 0
    (run,) = (Path(runs)).glob("*-s0-1")
    again = next_words(gaam("ablate", "--num-layers", 1, "--attn", "none", "--quiet", "--", run))
    assert gaam(*again).code == 0


@pytest.mark.parametrize(
    "splits", [("train",), ("only",), ("train", "dev"), ("a", "b"), ("train", "same")]
)
@pytest.mark.parametrize("rows", [4, 40])
def test_the_training_fits_the_splits_of_the_cache(
    splits: tuple[str, ...],
    rows: int,
    gaam: Gaam,
    encoders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, split in enumerate(splits):
        content = [
            ("a", "goal"),
            ("b", "bank"),
            *random_rows(rows, 0 if split == "same" else number),
        ]
        write_csv(tmp_path / "d" / f"{split}.csv", content)
    named = [word for split in splits for word in ("--split", split)]
    outcome = gaam("extract", "--encoder", encoders["bert"], "--dataset", "d", *named, "--quiet")
    outcome = gaam(*next_words(outcome), *QUICK)
    assert outcome.code == 0, outcome
    assert gaam(*next_words(outcome)).code == 0


def test_every_character_of_a_path_survives_a_shell() -> None:
    for code in range(1, 0x250):
        for name in (chr(code), f"-{chr(code)}", f"a{chr(code)}b"):
            (word,) = shlex.split(in_shell(name))
            assert Path(word) == Path(name)
            assert not word.startswith("-")
