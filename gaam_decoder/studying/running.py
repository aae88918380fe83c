"""The commands of a study: what each is, what it would cost, and one after the other.

Every step is the command itself, in a process of its own: what a study does, a person could type.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gaam_cache
from gaam_cache.engines._ranks import Rank
from gaam_cache.errors import ConfigError, GaamError, NotFoundError
from gaam_cache.settings import resolve
from gaam_decoder.runs.loading import load_runs
from gaam_decoder.runs.result import RunResult
from gaam_decoder.studying.place import Place, environment
from gaam_decoder.studying.recipe import Study
from gaam_decoder.studying.step import CONFIGS, Step

_HERE = str(Path(gaam_cache.__file__).parents[1])
_CODE = f"import sys; sys.path.insert(0, {_HERE!r}); sys.argv[0] = 'gaam'\n"
_CODE += "from gaam_cache.terminal import entry; entry()"
GAAM = (sys.executable, "-P", "-c", _CODE)
"""``gaam`` of this very installation, whatever else is on the path: no ``cli.py`` of the folder."""
WAITS = "waits for the other ranks"
"""Said of a command that ends when all is there, whoever makes it."""
_WITH_US = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() != {}:
        sys.exit(130)
"""
"""A process is told to end when the one that started it is killed, which can tell it nothing.

Linux sends SIGTERM, upon which a command keeps what is finished; whoever was killed before that
was asked for has left a process of another parent. Other systems have no such call.
"""


def with_us() -> list[str]:
    """``GAAM``, ended when this process is, however that ends; who was interrupted says it once."""
    *python, code = GAAM
    silent = code.replace("entry()", "entry(says=False)")
    return [*python, _WITH_US.format(os.getpid()) + silent]


class StepError(GaamError, RuntimeError):
    """A command of a study ended otherwise than well; it has said why."""

    def __init__(self, command: str, code: int) -> None:
        super().__init__(
            "a step of the study has failed",
            found=f"exit code {code} of: {command}",
            hint="what is finished is kept: run the same again when that is mended",
        )
        self.exit_code = code if code in (1, 2, 3) else 1


def arguments(step: Step, study: Study, place: Place) -> list[str]:
    """The words after ``gaam`` of a step.

    Raises:
        NotFoundError: the run that is to be ablated is not there.
    """
    options, first = given(step, study, place), []
    if step.command == "ablate":
        options.pop("of")
        first = [str(ablated(step, study, place).path)]
    elif step.command == "plant":
        first = [str(options.pop("out"))]
    return [step.command, *first, *Step(command=step.command, options=options).words()]


def given(step: Step, study: Study, place: Place) -> dict[str, Any]:
    """All that a step is told, by the names of fields."""
    options = {**step.options, **place.options(step.command)}
    if step.command == "train":
        where = {"cache": place.cache(str(step.reads)), "runs": place.runs(study.name)}
        return {**where, **options}
    if step.makes and step.reads:
        options = {"from_cache": place.cache(step.reads), **options}
    if step.command == "extract" and place.dataset is not None:
        options["dataset"] = place.dataset
    return options if step.makes is None else {**options, "out": place.cache(step.makes)}


def config_of(step: Step, study: Study, place: Place) -> Any:
    """What the command of a step makes of all that it is told.

    Raises:
        ConfigError: a value that it does not take.
    """
    fields = given(step, study, place)
    return resolve(CONFIGS[step.command], step.command, fields)


def choice_of_layers(step: Step) -> dict[str, Any]:
    """How an ablation chooses layers: the options of ``trainings``."""
    return {name: step.options[name] for name in ("num_layers", "seed") if name in step.options}


def typed(words: list[str]) -> str:
    """A command as a shell takes it."""
    return shlex.join(["gaam", *words])


def run(
    study: Study,
    place: Place,
    *,
    rank: Rank | None = None,
    quiet: bool,
    say: Callable[[str], None],
) -> None:
    """Run whatever is missing.

    Every command is run, also where its cache or its runs are there: each then makes nothing, and
    refuses what was made by other options.

    Of several ranks each makes and trains its part, and waits for a cache before it reads it. The
    first then waits for all trainings, goes on with those that nobody is at work on, and ablates.

    Args:
        study: the recipe.
        place: where it is run.
        rank: of this process; None where it is not one of several.
        quiet: whether commands show no progress.
        say: told every command before it runs.

    Raises:
        StepError: a command failed.
        KeyboardInterrupt: so did the person; the command has kept what is finished.
    """

    def do(step: Step, *, ranked: bool) -> None:
        words = arguments(step, study, place)
        waits = "" if ranked or rank is None else f"  # {WAITS}"
        say(f"$ {typed(words)}{waits}")
        if ranked and "rank" in place.machine:
            words += ["--set", f"rank={place.machine['rank']}"]
        code = _code([*with_us(), *words, *(["-q"] if quiet else [])], ranked)
        if code:
            raise StepError(typed(words), code)

    if rank is None:
        for step in study.steps:
            do(step, ranked=False)
        return
    for step in study.steps:
        if step.command in ("extract", "train"):
            do(step, ranked=True)
        if step.makes:
            do(step, ranked=False)
    for step in study.steps if rank.number == 0 else ():
        if not step.makes:
            do(step, ranked=False)


def _code(command: list[str], ranked: bool) -> int:
    """Exit code of a command, which is told to end where this process is."""
    # stdout is for what comes out of the study; a session of its own: the terminal's Ctrl-C would
    # reach it beside ours, and a second signal ends a command before it has kept its work
    with subprocess.Popen(
        command, stdout=2, start_new_session=True, env=environment(ranked=ranked)
    ) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()  # it keeps what is finished
            process.wait()
            raise


def ablated(step: Step, study: Study, place: Place) -> RunResult:
    """The run that is to be ablated: over all layers, of most seeds.

    Raises:
        NotFoundError: it is not there.
        ConfigError: several have as many seeds.
    """
    folder = place.runs(study.name)
    spec = str(step.options["of"])
    of_cache = place.cache(step.reads) if step.reads else None
    try:
        found = [
            run
            for run in load_runs(folder, attn=(spec,), cache=of_cache)
            if not run.recipe.get("layers")
        ]
    except NotFoundError:
        found = []
    most = max((len(run.seeds) for run in found), default=0)
    meant = [run for run in found if len(run.seeds) == most]
    if not meant:
        raise NotFoundError(
            f"no run of '{spec}' to ablate", expected="one over all layers", where=str(folder)
        )
    if len(meant) > 1:
        raise ConfigError(
            f"several runs of '{spec}' could be meant",
            expected="one with more seeds than the others",
            found=", ".join(run.path.name for run in meant),
            where=str(study.folder),
        )
    return meant[0]
