"""What run.json records of a run, beside its recipe."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from gaam_cache.store.plan import Plan
from gaam_decoder.tasks import CLASSIFICATION


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheRecord:
    """The cache that a run was trained on."""

    fingerprint: str
    states: str | None = None
    """``Plan.states_id`` if that is not the fingerprint, else None."""
    path: str
    """The folder at the time of training."""
    encoder: str
    dataset: str
    layers: int
    """Number of layers."""
    hidden_size: int
    rows: dict[str, int]
    """Number of rows, by split."""
    shared_texts: dict[str, dict[str, int]] | None = None
    """Number of rows of a split whose text another split has, by both splits."""
    class_names: tuple[str, ...]
    """Empty where the task is not classification."""
    target_names: tuple[str, ...] | None = None
    """Names of the columns of numbers, or of the labels; None for classes."""
    plan: dict[str, Any] | None = None
    """The plan by which rows are encoded, as JSON values."""
    fitted_on: str | None = None
    """The split on whose texts an encoder was fitted."""
    planted: dict[str, Any] | None = None
    """``Plan.planted``."""
    first_layer: int = 1
    """0 where the input of layer 1 is kept, too."""

    @classmethod
    def from_plan(cls, plan: Plan, path: Path) -> Self:
        """What a run records of the cache with this plan, in this folder."""
        is_of_classes = plan.task == CLASSIFICATION.name
        # equal rows are left out: the run records those of its test rows in a relation
        recorded_plan = replace(plan, dataset=replace(plan.dataset, equal_rows={}))
        # without reference states, the fingerprint is all that identifies the states
        states_id = plan.states_id if plan.reference else None
        return cls(
            fingerprint=plan.fingerprint,
            states=states_id,
            path=str(path),
            encoder=plan.encoder_label,
            dataset=plan.dataset_label,
            layers=plan.num_layers,
            hidden_size=plan.hidden_size,
            rows=plan.rows,
            shared_texts={
                split: dict(counts)
                for split, counts in plan.dataset.shared_texts.items()
            },
            class_names=plan.class_names if is_of_classes else (),
            target_names=None if is_of_classes else plan.target_names,
            plan=recorded_plan.to_dict(),
            # only an encoder that was fitted on texts, such as tf-idf, has this key
            fitted_on=plan.identity.get("fitted_on"),
            planted=plan.planted,
            first_layer=plan.first_layer,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the outputs: classes, columns of numbers, or labels."""
        return self.class_names if self.target_names is None else self.target_names

    @property
    def name_of_states(self) -> str:
        """A hash: caches with equal states have the same (``Plan.states_id``)."""
        return self.states or self.fingerprint

    @property
    def columns(self) -> set[str]:
        """Names of the kept columns; empty where the plan is unknown."""
        return set((self.plan or {}).get("columns", {}))

    @property
    def test_groups(self) -> str | None:
        """The column whose groups split off the test rows, if there is one."""
        dataset: dict[str, Any] = (self.plan or {}).get("dataset", {})
        return dataset.get("test_groups")

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without those that are None or the default."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        values["class_names"] = list(self.class_names)
        if self.target_names is not None:
            values["target_names"] = list(self.target_names)
        # 1 is the default, which is not written
        if self.first_layer == 1:
            values["first_layer"] = None
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """Numbers of rows of a run that learned from a random part of the training rows."""

    # the names of the fields are keys of run.json
    learn: int
    """Number of training rows."""
    choose: int
    """Number of validation rows; 0 where none are held out."""

    @property
    def num_validation_rows(self) -> int:
        """Number of validation rows; 0 where none are held out."""
        return self.choose

    @property
    def total(self) -> int:
        """Number of training and validation rows."""
        return self.learn + self.choose


@dataclass(frozen=True, kw_only=True, slots=True)
class FitRecord:
    """The fit of a head that is not trained in steps; its epochs are values tried."""

    setting: str
    """Name of the setting that was chosen, such as ``C``."""
    value: float
    """The chosen value."""
    lowest: float
    """Lowest value that was tried."""
    highest: float
    """Highest value that was tried."""
    tried: int
    """Number of values that were tried."""
    kept: int
    """Place of the chosen value in the log, from 1."""
    unconverged: tuple[float, ...] = ()
    """Values whose fit did not converge."""
    edge: str | None = None
    """``lowest`` or ``highest`` where the chosen value is that of several."""

    def in_words(self) -> str:
        """The chosen value, such as ``inverse penalty C 0.5, chosen from 40``."""
        name = "inverse penalty C" if self.setting == "C" else self.setting
        text = f"{name} {self.value:.3g}"
        return f"{text}, chosen from {self.tried}" if self.tried > 1 else text

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"unconverged": list(self.unconverged)}


@dataclass(frozen=True, slots=True)
class TuningRecord:
    """The tuning of the decoder of which a run is a candidate."""

    seeds: tuple[int, ...]
    """The tuning seeds."""


@dataclass(frozen=True, slots=True)
class SeedRecord:
    """How the training of a seed ended."""

    seed: int
    failed: str | None
    """Why it stopped early."""
    epoch: int
    """The selected epoch, from 1; 0 where the seed failed."""
    seconds: float


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The content of a file of a run."""

    bytes: int
    sha256: str
