"""The commands that a signature stands for; the cache it names by its fingerprint alone."""

from __future__ import annotations

import math
import shlex
from itertools import product
from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError, GaamError
from gaam_cache.messages import shortened
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import parse_numbers
from gaam_decoder.reports.signature import AND, OF_TABLE, Fields, read
from gaam_decoder.rerun.commands import LISTED, REPEATED, Rerun, train_command
from gaam_decoder.rerun.of_runs import NO_OPTIONS
from gaam_decoder.training.probe import ATTENTION, HEAD

AXES = {*REPEATED, *LISTED}
"""Settings of which one command takes several values."""


def commands_of_signature(line: str) -> Rerun:
    """Commands for the table of a signature.

    Raises:
        ConfigError: it is no signature, or asks for what this version does not have.
    """
    found = read(line)
    try:
        given, notes = _given(found)
        rows = int(found.get("rows", ("0",))[0])
    except ValueError as error:
        raise ConfigError(
            "a field of the signature cannot be read", expected=str(error), found=shortened(line)
        ) from None
    several = {n: v for n, v in given.items() if n not in AXES and isinstance(v, list)}
    configs = []
    for values in product(*several.values()):
        one = {**given, **dict(zip(several, values, strict=True))}
        configs += _configs({n: v for n, v in one.items() if v is not None}, found)
    trained = math.prod(len(given.get(name) or "-") for name in (*several, *AXES - {*LISTED}))
    if trained > rows:
        notes.append(f"the table has {rows} rows; not every combination below was among them")
    commands = [train_command(config) for config in configs]
    return Rerun(commands=(*commands, _report(found)), notes=tuple(notes))


def _given(found: Fields) -> tuple[dict[str, Any], list[str]]:
    """Fields of a configuration; a list where there are several values."""
    notes = [
        f"made with gaam {' '.join(found['gaam'])}",
        f"the cache is {found['cache'][0]}: gaam rerun of one of the runs prints how to build it; "
        "gaam inspect cache says whether it is that one",
    ]
    given: dict[str, Any] = {n: list(found[n]) for n in ("attn", "head") if n in found}
    for field, words in found.items():
        name = field.replace("-", "_")
        if field in OF_TABLE:
            continue
        if name in NO_OPTIONS:
            if name != "shard_rows":
                notes.append(f"no signature can carry {name}: {' '.join(words)}")
            continue
        values = [_value(word) for word in words]
        given[name] = values if len(values) > 1 or name in AXES else values[0]
    for name in ("folds", "fold", "repeats"):
        if name in found:
            given[name] = int(found[name][0])
    if given.get("repeats", 1) > 1:
        given["split_seed"] = _first(given.get("split_seed", 0))
    if "tune-seeds" in found:
        given["tune_seeds"] = tuple(parse_numbers(found["tune-seeds"][0]))
    seeds = {seed for text in found["seeds"] if text != "none" for seed in parse_numbers(text)}
    if seeds:
        given["seeds"] = tuple(sorted(seeds))
    if len(found["seeds"]) > 1:
        notes.append("not all rows had the same seeds; the commands train all of them")
    return given, notes


def _first(split_seeds: Any) -> int:
    """Of several split seeds, which repeats count up from."""
    return int(str(split_seeds).split(",")[0])


def _value(word: str) -> Any:
    """A word as a value of a configuration."""
    known: dict[str, Any] = {"-": None, "yes": True, "no": False}
    if word in known:
        return known[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _configs(given: dict[str, Any], found: Fields) -> list[TrainConfig]:
    """A sweep of what is trained by steps, with the probe if the table has it, and other fits."""
    given = {name: _plain(name, value) for name, value in given.items()}
    fits = [fit.rpartition(AND) for fit in found.get("fit", ())]
    decoders: list[dict[str, Any]] = []
    if given.get("attn"):
        beside = (str(ATTENTION), AND, str(HEAD))
        probe = beside in fits and given.get("select") == "val"
        decoders.append({"probe": probe})
        fits = [fit for fit in fits if not (probe and fit == beside)]
    decoders += [{"attn": (attn,), "head": head, "probe": False} for attn, _, head in fits]
    try:
        return [
            TrainConfig(**{**given, **of}, cache=Path("cache"), runs=Path("runs"))
            for of in decoders
        ]
    except (GaamError, TypeError, ValueError) as error:
        raise ConfigError(
            "the signature asks for what this version of gaam cannot train",
            expected="settings of 'gaam train'",
            found=" ".join(str(error).split()),
            where=f"a signature of gaam {' '.join(found['gaam'])}",
        ) from error


def _plain(name: str, value: Any) -> Any:
    """Values of an axis as the configuration reads them."""
    if name == "layers":
        return tuple("all" if one is None else str(one) for one in value)
    if isinstance(value, list):
        return tuple(value) if len(value) > 1 or name == "attn" else value[0]
    return value


def _report(found: Fields) -> str:
    words = ["gaam", "report", "runs"]
    for name in ("baseline", "score", "margin"):
        if name in found:
            words += [f"--{name}", found[name][0]]
    if "temperature" in found:
        words.append("--temperature")
    for asked in found.get("only", ()):
        if asked.startswith("--"):
            words += asked.split(" ", 1)
    return shlex.join(words)
