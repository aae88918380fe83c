"""The commands of a study: what each is, what it would cost, and one after the other.

Every step is the command itself, in a process of its own: what a study does, a person could type.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gaam_cache
from gaam_cache.errors import ConfigError, GaamError, NotFoundError
from gaam_cache.format.targets import check_folder
from gaam_cache.messages.foreign_text import brief
from gaam_decoder.runs.loading import load_runs
from gaam_decoder.studying.recipe import Study
from gaam_decoder.studying.step import Step

_CODE = "import sys; sys.path.insert(0, {!r}); sys.argv[0] = 'gaam'; import cli; cli.main()"
GAAM = (sys.executable, "-P", "-c", _CODE.format(str(Path(gaam_cache.__file__).parents[1])))
"""``gaam`` of this very installation, whatever else is on the path: no ``cli.py`` of the folder."""
ENGINE = ("engine", "devices", "address", "gpus_per_worker")
"""Who does the work of ``extract`` and ``train``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a study is run, and by whom; none of it changes a number."""

    out: Path = Path("studies")
    """Folder of all studies: caches are shared, runs are of each."""
    dataset: str | None = None
    """Instead of the data set of every extraction."""
    device: str | None = None
    engine: str | None = None
    devices: str | None = None
    address: str | None = None
    gpus_per_worker: float | None = None

    def cache(self, name: str) -> Path:
        """Of a cache of any study."""
        return self.out / "caches" / name

    def runs(self, study: str) -> Path:
        """Of the runs of a study."""
        return self.out / study / "runs"

    def words(self, command: str) -> list[str]:
        """Options that are of the machine."""
        names = [*(ENGINE if command in ("extract", "train") else ())]
        names += ["device"] if command in ("extract", "train", "ablate") else []
        given = [(name, getattr(self, name)) for name in names]
        return [
            word
            for name, value in given
            if value is not None
            for word in (f"--{name.replace('_', '-')}", str(value))
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What one command would cost, in words; ``seconds`` where that can be known."""

    command: str
    words: str
    seconds: float | None


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
    if step.command == "ablate":
        words = step.words()
        at = words.index("--of")
        words[at : at + 2] = []
        return ["ablate", str(_run(step, study, place)), *words, *place.words("ablate")]
    if step.command == "train":
        where = ["--cache", str(place.cache(str(step.reads)))]
        where += ["--runs", str(place.runs(study.name))]
        return ["train", *where, *step.words(), *place.words("train")]
    made = str(place.cache(str(step.makes)))
    if step.command == "plant":
        source = ["--from", str(place.cache(step.reads))] if step.reads else []
        return ["plant", made, *source, *step.words()]
    if place.dataset is not None:
        step = Step(command="extract", options={**step.options, "dataset": place.dataset})
    return ["extract", *step.words(), "--out", made, *place.words("extract")]


def typed(words: list[str]) -> str:
    """A command as a shell takes it."""
    return shlex.join(["gaam", *words])


def run(study: Study, place: Place, *, quiet: bool, say: Callable[[str], None]) -> None:
    """Run whatever is missing.

    Every command is run, also where its cache or its runs are there: each then makes nothing, and
    refuses what was made by other options.

    Raises:
        StepError: a command failed.
        KeyboardInterrupt: so did the person; the command has kept what is finished.
    """
    for step in study.steps:
        words = arguments(step, study, place)
        say(f"$ {typed(words)}")
        code = _code([*GAAM, *words, *(["-q"] if quiet else [])])
        if code:
            raise StepError(typed(words), code)


def estimate(study: Study, place: Place) -> Iterator[Cost]:
    """What every step would cost, as the commands themselves say; nothing is written."""
    check_folder(place.out, option="--out")
    for step in study.steps:
        try:
            words = arguments(step, study, place)
        except NotFoundError:
            yield Cost(
                command=f"gaam ablate RUN {shlex.join(step.words())}",
                words="known when its run is there",
                seconds=None,
            )
            continue
        yield _cost(step, words, place)


def _cost(step: Step, words: list[str], place: Place) -> Cost:
    command = typed(words)
    if step.makes and _complete(place.cache(step.makes)):
        words_of_it = "there is one, which the command compares with these options"
        return Cost(command=command, words=words_of_it, seconds=0.0)
    if step.command in ("plant", "ablate"):
        # neither reads more than a cache that is there: seconds, and as long as its run took
        what = "seconds" if step.command == "plant" else "three sets of layers, as long as its run"
        return Cost(command=command, words=what, seconds=None)
    if step.reads and not _complete(place.cache(step.reads)):
        what = f"known when the cache '{step.reads}' is there"
        return Cost(command=command, words=what, seconds=None)
    done = subprocess.run(
        [*GAAM, *words, "--dry-run", "--json"], capture_output=True, check=False, text=True
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        seconds = found.get("seconds")
    except ValueError:
        error = done.stderr.strip().splitlines()
        return Cost(command=command, words=brief("; ".join(error) or "not known"), seconds=None)
    if step.command == "train":
        trainings = sum(run["num_seeds"] for run in found["runs"])
        what = f"{trainings:,} trainings" if trainings else "is there"
        return Cost(command=command, words=what, seconds=seconds)
    return Cost(command=command, words="", seconds=seconds)


def _complete(cache: Path) -> bool:
    """Whether every shard of a cache is there."""
    from gaam_cache.cache import open_cache

    try:
        open_cache(cache)
    except (GaamError, OSError):
        return False
    return True


def _code(command: list[str]) -> int:
    """Exit code of a command, which is told to end where this process is."""
    # stdout is for what comes out of the study; a session of its own: the terminal's Ctrl-C would
    # reach it beside ours, and a second signal ends a command before it has kept its work
    with subprocess.Popen(command, stdout=2, start_new_session=True) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()  # it keeps what is finished
            process.wait()
            raise


def _run(step: Step, study: Study, place: Place) -> Path:
    """The run that is to be ablated: over all layers, of most seeds."""
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
    return meant[0].path
