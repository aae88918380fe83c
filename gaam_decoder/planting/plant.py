"""``gaam plant``: states, a teacher, labels, a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.errors import ConfigError
from gaam_cache.messages import visible
from gaam_cache.store.digest import short_digest
from gaam_cache.store.files import check_folder
from gaam_cache.store.importing import write
from gaam_cache.store.plan import GAUSSIAN, PLAN_FILE, SHARD_FOLDER, Planted
from gaam_decoder.planting.gates import GATES
from gaam_decoder.planting.linear import linear_accuracy
from gaam_decoder.planting.plant_config import LAYERS, LEAST_LAYERS, ROWS, WIDTH, PlantConfig
from gaam_decoder.planting.room import room_to_plant
from gaam_decoder.planting.states import CachedStates, GaussianStates, States, chosen_rows
from gaam_decoder.planting.teacher import Floats, draw_labels, make_teacher

Progress = Callable[[int, int, str], None]
SPLITS = ("train", "test")
SHOWN = 0.05
"""Smallest difference in points that a digit shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantSummary:
    """What was planted. Accuracies are fractions of the test rows."""

    path: str
    fingerprint: str
    gate: str
    mechanism: str
    """The one that can express the gate exactly, with one head and a linear head."""
    strength: float
    num_layers: int
    hidden_size: int
    storage_dtype: str
    rows: dict[str, int]
    teacher_accuracy: float
    """What is to be expected of the teacher, and the most that any decoder can expect."""
    teacher_accuracy_drawn: float
    """Of the teacher, on the labels that were drawn."""
    linear_accuracy: float | None
    """To be expected of the best linear decoder of the states; None where it is not known."""

    @property
    def attn(self) -> str:
        """What can express it, as ``--attn`` takes it."""
        return GATES[self.gate].attn

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        rows = ", ".join(f"{name} {count:,}" for name, count in self.rows.items())
        linear = "a linear decoder of the states: not known, they have too many features"
        if self.linear_accuracy is not None:
            gap = 100 * (self.teacher_accuracy - self.linear_accuracy)
            gap = 0.0 if abs(gap) < SHOWN else gap
            linear = (
                f"the best linear decoder of the states {100 * self.linear_accuracy:.1f}%: "
                f"strength {self.strength:g} is {gap:.1f} points here"
            )
        return "\n".join(
            [
                f"the cache in '{visible(self.path)}' is complete",
                f"  gate         {self.gate}: {GATES[self.gate].formula}; "
                f"--attn {self.attn} can express it",
                f"  states       {self.num_layers} layers x {self.hidden_size}, "
                f"stored as {self.storage_dtype}",
                f"  rows         {rows}",
                f"  accuracy     teacher {100 * self.teacher_accuracy:.1f}% expected, "
                f"{100 * self.teacher_accuracy_drawn:.1f}% on the labels that were drawn;",
                f"               {linear}",
                f"  fingerprint  {short_digest(self.fingerprint)}",
            ]
        )


def plant(config: PlantConfig, *, progress: Progress | None = None) -> PlantSummary:
    """Make a cache whose labels depend on the states through a known gate, or complete one.

    Everything is decided by the configuration; every number is computed from the states as the
    cache stores them. At most some hundred rows of states are in memory, but for the rows to which
    a linear decoder is fitted (1 GB at most).

    Args:
        config: what to plant, in what, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        ConfigError: more rows than the given cache has, or the folder holds something else.
        NotFoundError: no cache where one was given.
        CacheError: the given cache is incomplete or damaged.
        NumericsError: a state of the given cache that cannot be stored in the type asked for.
        StorageError: the file system refused.
    """
    check_folder(config.out, option="OUT")
    _check_folder(config.out)
    source = open_cache(config.from_cache) if config.from_cache is not None else None
    states = states_of(config, source)
    train, test = states
    if train.shape[1] < LEAST_LAYERS and config.gate != "none":
        raise ConfigError(
            f"the gate '{config.gate}' standardises over layers, and of two every value is 1 or -1",
            expected=f"states of {LEAST_LAYERS} layers or more, or --gate none",
            found=f"{train.shape[1]}",
        )
    rows = len(train) + len(test)
    with room_to_plant(rows, *train.shape[1:], config.classes, given=source is not None):
        p, label = planted_labels(config, states)
        linear = linear_accuracy(train, p[0], test, p[1])
    expected = float(p[1].max(1).mean())
    drawn = float((p[1].argmax(1) == label[1]).mean())
    about = GATES[config.gate]
    figures = {"teacher_accuracy": f"{expected:.4f}", "teacher_accuracy_drawn": f"{drawn:.4f}"}
    if linear is not None:
        figures["linear_accuracy"] = f"{linear:.4f}"
    made = write(
        config.out,
        {
            name: (of_split, label_N)
            for name, of_split, label_N in zip(SPLITS, states, label, strict=True)
        },
        class_names=[str(number) for number in range(config.classes)],
        storage_dtype=config.storage_dtype or (_stored(source) if source else "float32"),
        axes="nld",
        encoder_name=f"states of {source.plan.encoder_label}" if source else "Gaussian states",
        dataset_name=f"planted {config.gate} strength {config.strength:g} seed {config.seed}",
        pool=source.plan.pooling[0] if source else GAUSSIAN,
        planted=Planted(parameters=recorded(config, source), figures=figures),
        progress=progress,
    )
    return PlantSummary(
        path=made.path,
        fingerprint=made.fingerprint,
        gate=config.gate,
        mechanism=about.mechanism,
        strength=config.strength,
        num_layers=made.num_layers,
        hidden_size=made.hidden_size,
        storage_dtype=made.storage_dtype,
        rows=dict(made.rows),
        teacher_accuracy=expected,
        teacher_accuracy_drawn=drawn,
        linear_accuracy=linear,
    )


def recorded(config: PlantConfig, source: EmbeddingCache | None) -> dict[str, Any]:
    """All that decides the labels, as the plan of the cache says it; see FORMAT.md."""
    about = GATES[config.gate]
    return {
        "gate": config.gate,
        "mechanism": about.mechanism,
        "parameters": {name: _exact(value) for name, value in about.parameters.items()},
        "strength": _exact(config.strength),
        "seed": config.seed,
        "states": GAUSSIAN if source is None else source.fingerprint,
    }


def _exact(value: float) -> str:
    """The shortest text that is that number again."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def planted_labels(
    config: PlantConfig, states: Sequence[States]
) -> tuple[list[Floats], list[NDArray[np.int64]]]:
    """Probabilities that the teacher gives every row of every split, (N, C), and labels, (N,).

    Raises:
        ConfigError: the rows to learn from are all the same behind the gate.
    """
    teacher = make_teacher(
        config.gate, states[0], classes=config.classes, strength=config.strength, seed=config.seed
    )
    p = [teacher.probabilities(of_split) for of_split in states]
    return p, [draw_labels(p_NC, config.seed, split) for split, p_NC in enumerate(p)]


def _check_folder(out: Path) -> None:
    """Refuse what is there and is no cache; another cache is refused where its plan is compared."""
    folder = out.expanduser()
    others = folder.exists() and not folder.is_dir()
    if folder.is_dir():
        # a process that is about to write the plan, or was killed then, leaves no more than these
        found = (path for path in folder.rglob("*") if path != folder / SHARD_FOLDER)
        others = not all(fnmatch(path.name, ".*.tmp") for path in found)
    if others and not (folder / PLAN_FILE).exists():
        raise ConfigError(
            f"'{out}' is there already, and is no cache",
            expected="a new folder, or one that this command began",
            where=str(folder.absolute()),
        )


def states_of(config: PlantConfig, source: EmbeddingCache | None) -> list[States]:
    """Of every split, drawn or taken from a cache."""
    return _given_states(config, source) if source else _gaussian_states(config)


def _sizes(rows: int) -> tuple[int, int]:
    return rows - rows // 3, rows // 3


def _gaussian_states(config: PlantConfig) -> list[States]:
    sizes = _sizes(config.rows or ROWS)
    shape = (config.layers or LAYERS, config.width or WIDTH)
    dtype = config.storage_dtype or "float32"
    return [
        GaussianStates((count, *shape), config.seed, first, dtype)
        for count, first in zip(sizes, (0, sizes[0]), strict=True)
    ]


def _stored(cache: EmbeddingCache) -> Any:
    return cache.plan.storage_dtype


def _given_states(config: PlantConfig, cache: EmbeddingCache) -> list[States]:
    there = sum(len(cache[name]) for name in cache)
    rows = config.rows or there
    if rows > there:
        raise ConfigError(
            "the cache has fewer rows than --rows",
            expected=f"--rows of at most {there:,}",
            found=f"--rows {rows:,}",
            where=str(cache.root.absolute()),
        )
    config.check_rows(rows)
    dtype = config.storage_dtype or str(next(iter(cache.values())).embeddings.dtype)
    chosen = chosen_rows(there, _sizes(rows), config.seed)
    return [CachedStates(cache, np.asarray(row_N), dtype) for row_N in chosen]
