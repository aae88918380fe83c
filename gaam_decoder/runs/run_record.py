"""What run.json says of a run, and what follows from it alone.

S seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaam_decoder.number_lists import DRAWN_BY, parse_layers, spell_budget
from gaam_decoder.recipe import DEFAULTS, has_test_rows
from gaam_decoder.specs import row_title


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RunRecord:
    """A finished run without its other files."""

    path: Path
    key: str
    """Hash of mechanism, recipe and cache; runs that share it differ in their seeds alone."""
    attention: str
    head: str
    recipe: dict[str, Any]
    """Training settings that change the numbers."""
    cache: dict[str, Any]
    """Fingerprint, path (where it was then), encoder, dataset, layers, hidden_size, rows,
    class_names; ``first_layer`` where that is 0; ``encoding``, which says how to encode further
    rows alike, where it is no run of an earlier version."""
    environment: dict[str, Any]
    parameters: dict[str, int]
    majority_accuracy: float | None
    """Of the test rows; None where there are none."""
    seeds: tuple[int, ...]
    failed: dict[int, str]
    epochs: dict[int, int]
    """Epoch that was kept, per seed."""
    seconds: dict[int, float]
    learned_start: dict[str, list[float]] = field(default_factory=dict)
    """Smallest and largest value of every learned parameter before training."""
    engine: dict[str, Any] = field(default_factory=dict)
    """How the seeds were run: device, dtype, seed_batch, compiled, why, data."""
    fit: dict[str, Any] = field(default_factory=dict)
    """How a head was fitted that is fitted at once, as ``Fit`` has it: setting, value, lowest,
    highest, tried, kept, edge, unconverged. The epochs of such a run are the values that were
    tried; its recipe has none, and no rate. Empty for all others."""

    groups: dict[str, Any] = field(default_factory=dict)
    """Where the groups were read that folds keep together: ``kind`` (column, file), ``source``;
    empty without groups, and in runs of earlier versions."""
    drawn: dict[str, int] = field(default_factory=dict)
    """Rows of the train split that it learned from, ``learn``, and that chose, ``choose``; empty
    where these are all."""
    tuning: dict[str, Any] = field(default_factory=dict)
    """``seeds``: those that were trained to choose between candidates; empty where none were."""
    created: str | None = None
    """When it was published, such as ``2026-11-01T09:30:00Z``; None of earlier versions."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    """Size and SHA-256 (bytes, sha256) of every file beside run.json."""

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """Seeds that were trained to choose between candidates of which this is one."""
        return tuple(self.tuning.get("seeds", ()))

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """Layers that it learned from, by number: 0 is what the first one reads."""
        some, first = self.recipe.get("layers"), self.cache.get("first_layer", 1)
        return parse_layers(some) if some else tuple(range(first, first + self.cache["layers"]))

    def setting(self, name: str) -> Any:
        """What the recipe has of a setting, or means where it does not name it."""
        return self.recipe.get(name, DEFAULTS.get(name))

    @property
    def finished(self) -> tuple[int, ...]:
        """Seeds that did not fail."""
        return tuple(seed for seed in self.seeds if seed not in self.failed)

    @property
    def still_learning(self) -> tuple[int, ...]:
        """Finished seeds whose best epoch is the last: a longer training may do better."""
        if self.select == "last" or self.fit or self.shuffled:
            return ()
        last = self.recipe["epochs"]
        return tuple(seed for seed in self.finished if self.epochs[seed] == last)

    @property
    def failure(self) -> str | None:
        """Why no seed finished, as the first of them says; None where one did."""
        return None if self.finished else self.failed[self.seeds[0]]

    @property
    def title(self) -> str:
        """Decoder and what of the recipe a sweep varies."""
        names = ("pool", "lr", "weight_decay", "layers", "fold", "split_seed", "shuffle")
        part = {name: self.recipe.get(name) for name in names}
        part["budget"] = spell_budget(*(self.recipe.get(name) for name in DRAWN_BY))
        final = not self.evaluated
        return row_title(self.attention, self.head, **part, shuffled=self.shuffled, final=final)

    @property
    def evaluated(self) -> bool:
        """Whether it was tested; a final model has no test rows, and no accuracy."""
        return has_test_rows(self.recipe, self.cache["rows"])

    @property
    def shuffled(self) -> bool:
        """Whether it learned from shuffled labels, which shows what a decoder without any gets."""
        return bool(self.recipe.get("shuffle_labels"))

    @property
    def select(self) -> str:
        """Selection protocol: val, last or test."""
        return str(self.recipe["select"])
