"""Where a study is run, and by whom: what no recipe says, because it changes no number."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaam_cache.engines._ranks import Rank, find_rank, without_rank
from gaam_cache.errors import ConfigError

ENGINE = ("engine", "devices", "address", "gpus_per_worker")
"""Who does the work of ``extract`` and ``train``."""
OF = {
    "extract": ("device", *ENGINE, "device_map", "tokens_per_second"),
    "train": ("device", *ENGINE, "memory_share", "track"),
    "ablate": ("device",),
}
"""Settings of the machine that a command takes."""
MACHINE = sorted({"rank", *(name for names in OF.values() for name in names)})
"""All settings of the machine: ``gaam study --set`` says them, and no recipe."""


CACHES = "caches"
"""The folder that all studies share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a study is run, and by whom; none of it changes a number."""

    out: Path = Path("studies")
    """Folder of all studies: caches are shared, runs are of each."""
    dataset: str | None = None
    """Instead of the data set of every extraction."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Settings of ``MACHINE``, by the names of fields."""

    @property
    def device(self) -> str | None:
        """Where to compute."""
        return self.machine.get("device")

    def cache(self, name: str) -> Path:
        """Of a cache of any study."""
        return self.out / CACHES / name

    def runs(self, study: str) -> Path:
        """Of the runs of a study."""
        return self.out / study / "runs"

    def options(self, command: str) -> dict[str, Any]:
        """Those that are of the machine, by the names of fields."""
        return {name: self.machine[name] for name in OF.get(command, ()) if name in self.machine}


def own_rank(place: Place) -> Rank | None:
    """The rank of this process; None where it is not one of several.

    Raises:
        ConfigError: a rank that there cannot be.
    """
    return find_rank(place.machine.get("rank"))


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
                hint=f"leave it out; gaam study --set {key}=... says it",
            )


def environment(*, ranked: bool = False) -> dict[str, str]:
    """The environment of commands.

    Args:
        ranked: whether a command has the rank of this process. Without one it waits for what
            others are at work on.
    """
    return dict(os.environ) if ranked else without_rank(os.environ)
