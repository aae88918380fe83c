"""Where a study is run, and by whom: what no recipe says, because it changes no number."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines.sharing.ranks import Rank, find_rank, without_rank
from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import option_of
from gaam_cache.terminal.settings import PREFIX
from gaam_decoder.studying.step import CONFIGS

RANK = f"{PREFIX}RANK"
"""A variable that says it as ``--rank`` does."""
ENGINE = ("engine", "devices", "address", "gpus_per_worker")
"""Who does the work of ``extract`` and ``train``."""
ELSEWHERE = ("device_map", "memory_share", "track", "tokens_per_second")
"""Of the machine too, but no option of ``gaam study``: variables say them to its commands."""


CACHES = "caches"
"""The folder that all studies share."""


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
        return self.out / CACHES / name

    def runs(self, study: str) -> Path:
        """Of the runs of a study."""
        return self.out / study / "runs"

    def options(self, command: str) -> dict[str, Any]:
        """Those that are of the machine, by the names of fields."""
        names = [*(ENGINE if command in ("extract", "train") else ())]
        names += ["device"] if command in ("extract", "train", "ablate") else []
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}


OPTIONS = tuple(one.name for one in dataclasses.fields(Place) if one.name not in ("out", "dataset"))
"""Of the machine, and of ``gaam study``."""
MACHINE = {
    **{name: f"gaam study {option_of(name)}" for name in OPTIONS},
    **{name: f"the variable {PREFIX}{name.upper()}" for name in ELSEWHERE},
    "rank": f"SLURM, torchrun or {RANK}",
}
"""Settings of the machine, and what says them to the commands of a study."""


def own_rank() -> Rank | None:
    """The rank of this process; None where it is not one of several.

    Raises:
        ConfigError: a rank that there cannot be.
    """
    return find_rank(os.environ.get(RANK))


def not_of_machine(spelled: Mapping[str, str], path: Path, where: str) -> None:
    """Refuse a setting of the machine in a recipe, with what says it.

    Args:
        spelled: fields as the recipe has them.
        path: of the recipe.
        where: in it.

    Raises:
        ConfigError: naming the setting.
    """
    for name, key in spelled.items():
        if name in MACHINE:
            raise ConfigError(
                f"'{key}' in {where}",
                expected="settings of the experiment: this one belongs to the machine",
                found=key,
                where=str(path),
                hint=f"leave it out; {MACHINE[name]} says it",
            )


def environment(environ: Mapping[str, str] = os.environ, *, ranked: bool = False) -> dict[str, str]:
    """The environment of commands: variables that would change a recipe are not in it.

    Args:
        environ: of this process.
        ranked: whether a command has the rank of this process. Without one it waits for what
            others are at work on.
    """
    if not ranked:
        environ = {name: value for name, value in without_rank(environ).items() if name != RANK}
    fields = {one.name for config in CONFIGS.values() for one in dataclasses.fields(config)}
    changing = {f"{PREFIX}{name.upper()}" for name in fields - set(MACHINE)}
    return {name: value for name, value in environ.items() if name not in changing}
