"""Every command x everything that a machine may deny: one message, the right exit code, no loss."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Outcome
from tests.faults.conftest import Bench, Forks, published
from tests.faults.machine import HARMLESS, REFUSALS

RECIPE = (
    "--attn",
    "scalar-mix",
    "--epochs",
    "1",
    "--device",
    "cpu",
    "--set",
    "compile=off",
    "--no-probe",
)
WRITES = {"extract", "train", "ablate", "report to a file"}
SLOW = {"report --figures"}
SAYS_NOTHING = {"report to a file"}


@pytest.fixture(scope="session")
def runs(forks: Forks, bench: Bench) -> Path:
    """A folder of runs whose name no ASCII can write."""
    folder = bench.root / "Läufe-日本"
    cache = ("--cache", str(bench.root / "reference"))
    made = forks.run(["train", *cache, "--runs", str(folder), *RECIPE, "--seeds", "2"])
    assert made.code == 0, made.err
    return folder


def commands(bench: Bench, runs: Path, place: Path) -> dict[str, list[str]]:
    """Every command; what it writes comes below ``place``, whose name no ASCII can write."""
    cache = str(bench.root / "reference")
    train = ["train", "--cache", cache, "--runs", str(place / "r"), *RECIPE, "--seeds", "1"]
    extract = bench.arguments(place / "c")
    return {
        "extract": extract,
        "extract --dry-run": [*extract, "--dry-run"],
        "train": train,
        "train --json": [*train, "--json"],
        "train --dry-run": [*train, "--dry-run"],
        "ablate": ["ablate", str(place / "ablated" / "run"), "--num-layers", "1"],
        "report": ["report", str(runs)],
        "report --json": ["report", str(runs), "--json"],
        "report to a file": ["report", str(runs), "--format", "csv", "--out", str(place / "t")],
        "report --figures": ["report", str(runs), "--figures", str(place / "f")],
        "inspect a cache": ["inspect", cache],
        "inspect runs": ["inspect", str(runs)],
        "describe": ["describe"],
        "verify": ["verify", cache],
        "verify --recompute": ["verify", cache, "--recompute", "2"],
        "--help": ["--help"],
        "--version": ["--version"],
        "a usage error": ["train", "--no-such-option"],
    }


def ready(bench: Bench, runs: Path, place: Path, command: str) -> list[str]:
    """The arguments, and beside them what the command changes."""
    place.mkdir(parents=True)
    if command == "ablate":
        shutil.copytree(next(runs.glob("[!.]*")), place / "ablated" / "run")
    return commands(bench, runs, place)[command]


def fault_of(outcome: Outcome, refusal: str, command: str) -> str | None:
    """What is wrong with how a command ended, or None."""
    text = outcome.err + outcome.out
    if "Traceback" in text or "Exception ignored" in text:
        return "a traceback"
    usage = command == "a usage error"
    if refusal.startswith("stdout"):
        if outcome.code != (0 if command in SAYS_NOTHING else 2 if usage else 1):
            return "the exit code"
        if not usage and outcome.code and outcome.err.count("error: ") != 1:
            return "not one message"
        return None
    if refusal in HARMLESS:
        return None if outcome.code == (2 if usage else 0) else "the exit code"
    if outcome.code not in ((2, 1) if usage else (0, 1, 3)):
        return "the exit code"
    if not usage and outcome.code and outcome.err.count("error: ") != 1:
        return "not one message"
    return None


@pytest.mark.parametrize("refusal", REFUSALS)
def test_whatever_is_denied_every_command_ends_with_one_message_or_does_its_work(
    refusal: str, forks: Forks, bench: Bench, runs: Path, tmp_path: Path
) -> None:
    names = [name for name in commands(bench, runs, tmp_path) if name not in SLOW]
    deny(names, refusal, forks, bench, runs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("refusal", REFUSALS)
def test_whatever_is_denied_pictures_end_with_one_message_or_are_made(
    refusal: str, forks: Forks, bench: Bench, runs: Path, tmp_path: Path
) -> None:
    deny(sorted(SLOW), refusal, forks, bench, runs, tmp_path)


def deny(
    names: Sequence[str], refusal: str, forks: Forks, bench: Bench, runs: Path, tmp_path: Path
) -> None:
    def attempt(command: str) -> str | None:
        place = tmp_path / f"ö-{command.replace(' ', '-')}"
        arguments = ready(bench, runs, place, command)
        outcome = forks.run(arguments, refusal=refusal)
        fault = fault_of(outcome, refusal, command)
        if fault is None and command in WRITES:
            again = forks.run(arguments)
            if (again.code, again.err) != (0, ""):
                outcome, fault = again, "the same command does not go on from there"
        whole = published(bench.root / "reference")
        if fault is None and command == "extract" and published(place / "c") != whole:
            fault = "another cache"
        return f"{command}: {fault}: {outcome}" if fault else None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [text for text in pool.map(attempt, names) if text]
    assert not faults, "\n\n".join(faults)


def test_a_terminal_that_closes_keeps_what_is_finished(
    forks: Forks, bench: Bench, tmp_path: Path
) -> None:
    hang_up = int(signal.SIGHUP)
    out = tmp_path / "out"
    job = {"folder": str(out), "nth": 20, "fault": ["signal", [hang_up, hang_up], "before"]}
    outcome = forks.run(bench.arguments(out), **job)
    assert outcome.code == 130
    assert outcome.err.startswith("interrupted; ")
    assert "shards are kept" in outcome.err
    assert forks.run(bench.arguments(out)).code == 0
    assert published(out) == published(bench.root / "reference")
