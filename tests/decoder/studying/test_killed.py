"""A study that is killed takes its step along, and goes on to the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_decoder.studying import running
from tests.decoder.studying.tiny_study import (
    RECIPE,
    RECORDED,
    RUNS,
    command,
    study,
    written,
)


@pytest.mark.slow
def test_killed_anywhere_it_goes_on_to_the_same(done: Path, tmp_path: Path) -> None:
    written(tmp_path)
    for steps in range(1, 6):
        with subprocess.Popen(
            command(), cwd=tmp_path, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            seen = 0
            while seen < steps and (line := process.stderr.readline()):
                seen += line.startswith("$ gaam")
            assert seen == steps
            process.send_signal(signal.SIGTERM if steps % 2 else signal.SIGKILL)
            said = process.stderr.read()  # until its command has ended too
            if steps % 2:
                assert said.endswith("run the same again\n")
        assert process.returncode in (130, -signal.SIGKILL)
    assert study(tmp_path).returncode == 0
    for name in RECORDED:
        made = tmp_path / "studies/tiny" / name
        assert made.read_bytes() == (done / "studies/tiny" / name).read_bytes()


ENDLESS = RECIPE.replace("epochs = 2", "epochs = 99999")


def at_once(here: Path) -> bool:
    return True


def while_it_trains(here: Path) -> bool:
    return any((here / RUNS).glob(".claims/*"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell no process of the other")
@pytest.mark.parametrize(
    ("step", "when"), [("plant", at_once), ("train", at_once), ("train", while_it_trains)]
)
def test_a_step_ends_with_the_study_that_was_killed(
    step: str, when: Callable[[Path], bool], tmp_path: Path
) -> None:
    written(tmp_path, ENDLESS)
    with subprocess.Popen(command(), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith(f"$ gaam {step} "):
            assert process.poll() is None
        while not when(tmp_path):
            assert process.poll() is None
        process.kill()
        process.communicate(timeout=300)  # its step writes there until it has ended too
    assert not list((tmp_path / RUNS).glob("*/run.json"))


@pytest.mark.parametrize(
    ("step", "number"),
    [("plant", signal.SIGINT), ("train", signal.SIGTERM), ("train", signal.SIGHUP)],
)
def test_an_interruption_is_said_once(step: str, number: signal.Signals, tmp_path: Path) -> None:
    """With what is kept and how to go on, whichever command is at work and however far it is."""
    code, said = interrupted(tmp_path, step, number)
    assert (code, said.count("interrupted")) == (130, 1), said
    assert said.endswith("run the same again\n")


def test_two_interruptions_are_said_once(tmp_path: Path) -> None:
    code, said = interrupted(tmp_path, "train", signal.SIGINT, signal.SIGINT)
    assert (code, said.count("interrupted")) == (130, 1), said
    assert "run the same again" in said


def interrupted(tmp_path: Path, step: str, *numbers: signal.Signals) -> tuple[int, str]:
    """Exit code and what is said of a study that gets signals while a command is at work."""
    written(tmp_path, ENDLESS)
    with subprocess.Popen(
        command(), cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=not_ignored
    ) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith(f"$ gaam {step} "):
            assert process.poll() is None
        while step == "train" and not while_it_trains(tmp_path):
            assert process.poll() is None
        for number in numbers:
            process.send_signal(number)
        said = process.stderr.read()
    return process.returncode, said


def not_ignored() -> None:
    """A shell lets what it starts with '&' ignore SIGINT."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell no process of the other")
def test_a_step_whose_study_was_killed_before_it_began_does_nothing() -> None:
    *python, code = running.with_us()
    of_another = code.replace(str(os.getpid()), "1")
    told = subprocess.run(
        [*python, of_another, "--version"], capture_output=True, check=False, text=True
    )
    assert (told.returncode, told.stdout) == (130, "")
