"""Whether finished runs are what they say: every byte, and whether the parts fit together."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.errors import CacheError
from gaam_cache.messages import visible
from gaam_decoder.runs import run_checks
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import CONFIG_FILE, WEIGHTS_FILE
from gaam_decoder.runs.run_files import repair
from gaam_decoder.runs.run_folders import is_run, run_folders, unfinished_runs
from gaam_decoder.runs.run_reader import read_run
from gaam_decoder.runs.tensor_files import TensorFile

Progress = Callable[[int, int, str], None]
TRAIN_AGAIN = "the gaam train that made the run"


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRun:
    """A run that is there and not what it must be."""

    name: str
    reason: str
    """One line."""
    repair: str
    """A command line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsVerification:
    """What ``verify`` found."""

    path: str
    good_runs: tuple[str, ...]
    """Folders, by name."""
    bytes: int
    """Bytes of the good runs, all of which were hashed."""
    bad: tuple[BadRun, ...]
    unfinished: tuple[str, ...]
    """Begun and not finished; the same ``gaam train`` finishes them."""

    @property
    def good(self) -> bool:
        """Whether every finished run is right."""
        return not self.bad

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"good": self.good, **asdict(self)}

    def in_words(self) -> str:
        """Lines for people: one for every bad run."""
        state = "good" if self.good else "DAMAGED"
        lines = [
            f"runs '{visible(self.path)}': {state}",
            f"  runs         {len(self.good_runs):,} good, {len(self.bad):,} bad, "
            f"{len(self.unfinished):,} unfinished; {self.bytes / 1e6:,.1f} MB hashed",
        ]
        lines += [f"bad: {run.name}: {run.reason}; repair: {run.repair}" for run in self.bad]
        lines += [
            f"unfinished: {visible(name)}; the same gaam train goes on" for name in self.unfinished
        ]
        return "\n".join(lines)


def is_runs(path: Path) -> bool:
    """Whether runs lie there, finished, damaged or begun, or ``path`` is one.

    Raises:
        StorageError: a folder that must not be read.
    """
    return is_run(path) or bool(run_folders(path)) or bool(unfinished_runs(path))


def verify(path: str | Path, *, progress: Progress | None = None) -> RunsVerification:
    """Hash every byte of finished runs and check that their parts fit; one run at a time.

    Args:
        path: a folder of runs, or one run.
        progress: called with (done, total, what is going on).

    Raises:
        StorageError: a run that cannot be read now.
    """
    root = Path(path).expanduser()
    report = progress or (lambda done, total, text: None)
    found = [root] if is_run(root) else run_folders(root)
    good: list[str] = []
    bad: list[BadRun] = []
    hashed = 0
    for done, folder in enumerate(found):
        report(done, len(found), f"run {folder.name}")
        command = f"{repair(folder)} && {TRAIN_AGAIN}"
        try:
            run = read_run(folder)
            if CONFIG_FILE in run.files:
                run.check_digest(CONFIG_FILE)
                kept = f"{run.path.name}.toml"
                keep = shlex.join(["mv", str(folder / CONFIG_FILE), kept])
                train = ["gaam", "train", "--config", kept, "--runs", str(folder.parent)]
                command = f"{keep} && {repair(folder)} && {shlex.join(train)}"
            check_run(run)
        except CacheError as error:
            reason = " ".join(error.details["found"].split())
            bad.append(BadRun(name=visible(folder.name), reason=reason, repair=visible(command)))
        else:
            good.append(folder.name)
            hashed += sum(about["bytes"] for about in run.files.values())
    return RunsVerification(
        path=str(root),
        good_runs=tuple(good),
        bytes=hashed,
        bad=tuple(bad),
        unfinished=tuple(unfinished_runs(root)),
    )


def check_run(run: RunResult) -> None:
    """Everything that a run holds.

    Raises:
        CacheError: what is wrong first.
        StorageError: it cannot be read now.
    """
    for name in run.files:
        run.check_digest(name)
    run.finished_logits()
    _ = run.validation
    _ = run.log, run.attention_map, run.learned
    with run.opened(WEIGHTS_FILE) as file:
        tensors = TensorFile(file)
        for name in tensors:
            run_checks.check_stacked(name, tensors.shape(name), len(run.seeds))
