"""What a planted cache says of its recipe, and what comes of it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.errors import CacheError, GaamError, NotFoundError
from gaam_cache.store.plan import GAUSSIAN, PLAN_FILE, Plan, planted_in, read_plan
from gaam_decoder.planting.plant import SPLITS, planted_labels, recorded, states_of
from gaam_decoder.planting.plant_config import PlantConfig
from gaam_decoder.planting.states import States


def drawn_again(root: Path, plan: Plan) -> dict[str, tuple[States, NDArray[np.int64]]]:
    """States and labels of every split, as ``gaam plant`` makes them.

    States of another cache are looked for by its fingerprint, beside this one and in the folder
    that the program runs in.

    Args:
        root: the planted cache.
        plan: its plan.

    Raises:
        CacheError: this version does not plant what the plan says.
        NotFoundError: the cache that states were taken from is not there.
    """
    about = planted_in(plan)
    try:
        if about is None:
            raise ValueError("no labels that were planted")
        source = None if about["states"] == GAUSSIAN else _source(root, str(about["states"]))
        config = _config(root, plan, about, source)
        states = states_of(config, source)
        sizes = dict(zip(SPLITS, map(len, states), strict=True))
        if dict(plan.rows) != sizes:
            raise ValueError("splits of other sizes")
        now = recorded(config, source)
        if differ := [name for name in now if now[name] != about[name]]:
            raise ValueError(", ".join(f"{name} {about[name]}" for name in differ))
        _, label = planted_labels(config, states)
    except NotFoundError:
        raise
    except (GaamError, ValueError, TypeError, KeyError) as error:
        raise CacheError(
            "this version plants nothing like what the cache says of itself",
            expected="a recipe of settings that 'gaam plant' has",
            found=" ".join(str(error).split()),
            where=str(root.absolute()),
        ) from error
    return dict(zip(SPLITS, zip(states, label, strict=True), strict=True))


def _config(
    root: Path, plan: Plan, about: Mapping[str, Any], source: EmbeddingCache | None
) -> PlantConfig:
    given: dict[str, Any] = {"layers": plan.num_layers, "width": plan.hidden_size}
    if source is not None:
        given = {"from_cache": source.root}
    if source is None or source.plan.storage_dtype != plan.storage_dtype:
        given["storage_dtype"] = plan.storage_dtype
    return PlantConfig(
        out=root,
        gate=about["gate"],
        strength=float(about["strength"]),
        classes=len(plan.class_names),
        rows=sum(plan.rows.values()),
        seed=about["seed"],
        **given,
    )


def _source(root: Path, fingerprint: str) -> EmbeddingCache:
    """The cache of a fingerprint.

    Raises:
        NotFoundError: none of that fingerprint at the places where it may be.
    """
    for folder in _caches(root):
        try:
            if read_plan(folder).fingerprint == fingerprint:
                return open_cache(folder)
        except GaamError:
            continue  # another one, which is damaged, or is not complete
    raise NotFoundError(
        "the cache that the states were taken from is not to be found, and nothing can be "
        "recomputed without it, no label either",
        expected=f"a complete cache of fingerprint {fingerprint[:12]} beside this one, or here",
        where=str(root.absolute()),
        hint="put it there, or a link to it; gaam verify without --recompute checks every byte",
    )


def _caches(root: Path) -> Iterator[Path]:
    for parent in dict.fromkeys((root.absolute().parent, Path.cwd())):
        yield from (path for path in sorted(parent.iterdir()) if (path / PLAN_FILE).is_file())
