"""Whether finished runs are what they say: every byte, and whether the parts fit together."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache import settings
from gaam_cache.errors import CacheError
from gaam_cache.messages import visible
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import PER_CLASS, spell_numbers
from gaam_decoder.runs import run_checks
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import WEIGHTS_FILE
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
        again = TRAIN_AGAIN
        try:
            run = read_run(folder)
            again = train_command(run)
            check_run(run)
        except CacheError as error:
            reason = " ".join(error.details["found"].split())
            command = f"{repair(folder)} && {again}"
            bad.append(BadRun(name=visible(folder.name), reason=reason, repair=command))
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


def train_command(run: RunResult) -> str:
    """The command line that makes a run again, as far as the run knows it."""
    parts = ["gaam", "train", "--attn", run.attention, "--head", run.head]
    parts += ["--cache", str(run.cache.get("path", "cache")), "--runs", str(run.path.parent)]
    seeds = spell_numbers(run.seeds)
    parts += ["--seeds", seeds if "-" in seeds or "," in seeds else f"{seeds},"]
    fields = {field.name: field for field in dataclasses.fields(TrainConfig)}
    recipe = dict(run.recipe)
    if not run.fit:
        parts.append("--no-probe")  # that run alone
    if fold := recipe.pop("fold", None):
        number, _, count = str(fold).partition("/")
        recipe |= {"fold": number, "folds": count}
    if shots := recipe.pop("shots", None):
        recipe["train_rows"] = f"{shots}{PER_CLASS}"
    if "groups" in recipe:
        recipe["groups"] = run.groups.get("source", "THE_FILE_OF_GROUPS")
    for name, value in sorted(recipe.items()):
        if name in fields and value is not None and value != fields[name].default:
            parts += settings.words(fields[name], value)
    return visible(shlex.join(parts))
