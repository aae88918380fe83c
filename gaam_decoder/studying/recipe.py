"""What a study is: ``study.toml``, every option of which a public command has.

``[caches.NAME]`` holds options of ``gaam extract`` or, with ``command = "plant"``, of that command;
every ``[[train]]``, ``[[ablate]]`` and ``[[report]]`` those of the command of that name, and
``cache`` names one of the caches. ``[check]`` are the tolerances of ``gaam study --check``.
"""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError
from gaam_cache.settings import key_of, resolve
from gaam_cache.store.files import read_bytes
from gaam_decoder.config import TrainConfig
from gaam_decoder.reports.report import report
from gaam_decoder.specs import parse_attention
from gaam_decoder.studying.asked import check_asked
from gaam_decoder.studying.finding import FILE, NAME, find, find_beside
from gaam_decoder.studying.place import CACHES, MACHINE
from gaam_decoder.studying.step import CONFIGS, Step
from gaam_decoder.studying.tables import (
    by_field,
    chosen,
    no_others,
    said_of,
    table,
    tables,
    wrong,
)
from gaam_decoder.studying.together import check_together

LARGEST_FILE = 2**20
"""Bytes of a recipe; more is none."""
ABLATE = ("num_layers", "seed", "of", "cache")
PLACES = ("out", "runs", "cache")
"""What a study decides itself."""
REPORT = tuple(name for name in inspect.signature(report).parameters if name != "runs")
NOT_ASKED = {"since", "top"}
"""What depends on the day, and what would leave rows out of the record."""
MOST_TABLES = 100
"""Of one report; each has a number in the names of its pictures."""
TOLERANCES = {"accuracy": 0.3, "difference": 0.3}
"""Points by which a mean accuracy, or a difference, may come out otherwise on another machine.

A study states its own. Of one machine and number of threads the numbers are the same to the bit;
other machines sum in another order, which changes which epoch is best of some seeds. With 20 seeds
whose accuracies have a standard deviation of 0.4 points a mean has one of 0.09: 0.3 is three times.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One report: what ``gaam report`` is asked, and a heading."""

    name: str
    title: str
    options: Mapping[str, Any]
    cache: str | None
    studies: tuple[str, ...]
    """Others, whose runs stand beside those of this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """A recipe that was read and checked; nothing is known of what there is of it."""

    folder: Path
    title: str
    question: str
    text: str
    steps: tuple[Step, ...]
    reports: tuple[Asked, ...]
    tolerances: Mapping[str, float]

    @property
    def name(self) -> str:
        """The folder's."""
        return self.folder.name

    @property
    def caches(self) -> list[str]:
        """Names of all caches that it makes, in order."""
        return [step.makes for step in self.steps if step.makes]


def read_study(what: str | Path) -> Study:
    """Read a study and check every option of it, so that nothing is found wrong after hours.

    Args:
        what: its folder, or the name of one in ``data/studies``.

    Raises:
        NotFoundError: there is none.
        ConfigError: it is none, or a command has no such option or takes no such value.
    """
    folder = find(what).parent.resolve()
    path = folder / FILE
    try:
        found = tomllib.loads(read_bytes(path, max_bytes=LARGEST_FILE).decode("utf-8-sig"))
    except (ValueError, OSError) as error:
        raise ConfigError(
            "a recipe that cannot be read", expected="TOML", found=str(error), where=str(path)
        ) from error
    if not NAME.fullmatch(folder.name) or folder.name == CACHES:  # which all studies share
        expected = f"small letters, digits, - and ., and not '{CACHES}'"
        raise wrong(path, "the name of the folder", expected, folder.name)
    return _study(found, folder, path)


def _study(found: dict[str, Any], folder: Path, path: Path) -> Study:
    known = {"title", "question", "text", "caches", "train", "ablate", "report", "check"}
    no_others(found, known, path)
    words = {name: found.get(name, "") for name in ("title", "question", "text")}
    for name, value in words.items():
        if not isinstance(value, str) or (name == "title" and not value.strip()):
            raise wrong(path, f"'{name}'", "a text", repr(value))
    steps = [_cache(name, options, path) for name, options in table(found, "caches", path).items()]
    names = {step.makes for step in steps}
    for step in steps:
        if step.reads:
            chosen(step.reads, names - {step.makes}, "cache", path, f"cache '{step.makes}'")
    for number, options in enumerate(tables(found, "train", path), 1):
        who = f"[[train]] {number}"
        rest = {k: v for k, v in options.items() if k != "cache"}
        fields = _fields(TrainConfig, "train", rest, path, who, {"cache"})
        cache = _cache_of(options, names, who, path)
        steps.append(Step(command="train", options=fields, reads=cache))
    for options in tables(found, "ablate", path):
        fields = by_field(options, path, "[[ablate]]", ABLATE)
        if not isinstance(fields.get("of"), str):
            raise wrong(
                path, "'of' in [[ablate]]", "the mechanism of a run", repr(fields.get("of"))
            )
        with said_of(path, "'of' in [[ablate]]"):
            parse_attention(fields["of"], "of")
        reads = _cache_of(fields, names, "[[ablate]]", path) if "cache" in fields else None
        fields.pop("cache", None)
        for name in ("num_layers", "seed"):
            if not isinstance(value := fields.get(name, 0), int) or isinstance(value, bool):
                spelled_so = name.replace("_", "-")
                raise wrong(path, f"'{spelled_so}' in [[ablate]]", "a whole number", repr(value))
        steps.append(Step(command="ablate", options=fields, reads=reads))
    reports = [_asked(options, names, path) for options in tables(found, "report", path)]
    if not steps or not reports:
        raise wrong(path, "the study", "a cache and a [[report]] at least", "neither or one")
    numbered = {f"{one.name}-{number}" for one in reports for number in range(1, MOST_TABLES)}
    if taken := sorted({one.name for one in reports} & numbered):
        raise wrong(path, "names of reports", "none that is another and '-1'", ", ".join(taken))
    if twice := {a.name for a in reports if sum(a.name == b.name for b in reports) > 1}:
        raise wrong(path, "names of reports", "each once", ", ".join(sorted(twice)))
    check_together(steps, reports, path)
    return Study(
        folder=folder,
        steps=tuple(steps),
        reports=tuple(reports),
        tolerances=_tolerances(table(found, "check", path, needed=False), path),
        **words,
    )


def _cache(name: str, options: Any, path: Path) -> Step:
    if not NAME.fullmatch(name) or not isinstance(options, dict):
        raise wrong(path, f"cache '{name}'", "a table, named by small letters, digits, -", name)
    command = options.get("command", "extract")
    chosen(command, ("extract", "plant"), "command", path, f"cache '{name}'")
    rest = {k: v for k, v in options.items() if k != "command"}
    source = rest.pop("from", None)
    if source is not None and (command != "plant" or not isinstance(source, str)):
        raise wrong(path, f"'from' of cache '{name}'", "with command = 'plant', a cache", source)
    fields = _fields(CONFIGS[command], command, rest, path, f"cache '{name}'", {"command", "from"})
    return Step(command=command, options=fields, makes=name, reads=source)


def _fields(
    config: type, command: str, options: Mapping[str, Any], path: Path, who: str, own: set[str]
) -> dict[str, Any]:
    """Options by the names of fields, all taken by the command; ``own`` stand beside them."""
    names = {key_of(field): field.name for field in dataclasses.fields(config)}
    known = {field.name for field in dataclasses.fields(config)} - {*PLACES, *MACHINE}
    if place := [name for name in options if name in PLACES]:
        raise wrong(
            path, f"'{place[0]}' of {command}", "what the study itself does not decide", place[0]
        )
    fields = by_field(options, path, who, known | own, names)
    given = {"out": Path("out")} if command == "plant" else {}
    with said_of(path, who):
        resolve(config, command, fields | given)
    return fields


def _asked(options: Mapping[str, Any], caches: set[str | None], path: Path) -> Asked:
    known = {*REPORT, "name", "title", "studies"} - NOT_ASKED
    who = f"report '{options.get('name')}'"
    fields = by_field(options, path, who, known, {"all": "every_candidate"})
    fields.setdefault("every_candidate", False)
    name, title = fields.pop("name", None), fields.pop("title", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise wrong(path, "'name' of a [[report]]", "small letters, digits, -", repr(name))
    studies = fields.pop("studies", [])
    if not isinstance(studies, list) or not all(NAME.fullmatch(str(one)) for one in studies):
        raise wrong(path, f"'studies' of report '{name}'", "names of studies", repr(studies))
    for one in studies:
        find_beside(str(one), path.parent)
    cache = _cache_of(fields, caches, f"report '{name}'", path) if "cache" in fields else None
    fields.pop("cache", None)
    with said_of(path, f"report '{name}'"):
        check_asked(**fields)
    return Asked(
        name=name, title=str(title or name), options=fields, cache=cache, studies=tuple(studies)
    )


def _tolerances(found: Mapping[str, Any], path: Path) -> dict[str, float]:
    no_others(found, set(TOLERANCES), path, "[check]")
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 100:
            raise wrong(path, f"'{name}' of [check]", "points, 0 or more", repr(value))
    return TOLERANCES | {name: float(value) for name, value in found.items()}


def _cache_of(options: Mapping[str, Any], names: set[str | None], who: str, path: Path) -> str:
    return chosen(options.get("cache"), names, "cache", path, who)
