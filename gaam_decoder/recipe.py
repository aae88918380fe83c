"""A recipe: a decoder and every setting that changes its numbers, but for the seed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

from gaam_cache.common import plugins
from gaam_cache.store.files import digest_of
from gaam_decoder.number_lists import Layers, parse_numbers, spell_numbers
from gaam_decoder.records import check_names, read_field, read_record, read_value
from gaam_decoder.specs import (
    KINDS,
    Settings,
    Spec,
    decoder_title,
    head_class,
    read_spec,
)

STEP_SETTINGS = (
    "loss",
    "epochs",
    "batch_size",
    "lr",
    "weight_decay",
    "schedule",
    "clip_grad_norm",
    "dtype",
    "loss_scale",
    "clip_order",
    "ties",
    "eval_dtype",
    "class_weights",
    "shuffle",
    "shard_rows",
    "optimizer",
    "state_scale",
)
"""Settings of training in steps, which a head that is fitted at once ignores."""
FIXED_SETTINGS_OF_FITS: Mapping[str, Any] = {
    "loss": "cross-entropy",
    "epochs": 1,
    "batch_size": 1,
    "dtype": "float32",
    "lr": 0.0,
    "weight_decay": 0.0,
    "schedule": "constant",
    "clip_grad_norm": None,
}
"""Settings of steps in the recipe of a head that is fitted at once, as JSON values."""
PLUGINS = "plugins"
"""The key of a recipe in run.json that names the code of other packages."""
NO_TEST = "none"
"""The test split of a final model, which learns from all rows and is not tested."""
Dtype = Literal["float32", "bfloat16", "float16"]
"""Arithmetic of matrix products."""
StateScaling = Literal["none", "layer"]
"""Whether a decoder reads states as they are stored, or each layer divided."""


class Fold(NamedTuple):
    """A fold of a cross-validation: its number, from 1, and the number of folds."""

    number: int
    total: int

    def __str__(self) -> str:
        """Such as ``1/5``."""
        return f"{self.number}/{self.total}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a text such as ``1/5``, as ``__str__`` writes it."""
        match = re.fullmatch(r"([1-9]\d{0,8})/([1-9]\d{0,8})", text, re.ASCII)
        if match is None or int(match[1]) > int(match[2]):
            raise ValueError(f"'fold' is {text!r}, not a fold such as 1/5")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True)
class GroupsRecord:
    """What a run records of its groups: where the names are from, not the names."""

    digest: str
    """As ``Groups.digest``."""
    source: str = ""
    """As ``Groups.source``; empty where run.json does not say it."""
    kind: Literal["column", "file"] | None = None


@dataclass(frozen=True)
class Groups:
    """Groups of the training rows, which no split separates."""

    names: tuple[str, ...]
    """The group of each row of the train split."""
    source: str
    """A kept column of the cache, or the absolute path of a file."""
    kind: Literal["column", "file"] = "file"

    @cached_property
    def digest(self) -> str:
        """Hash of the names, not of their source.

        A column and a file with the same names make the same recipe.
        """
        # the rule for these groups: under an earlier one, validation rows were split
        # from their groups, so the keys of its runs have to differ
        rule = "whole groups choose"
        return digest_of("\n".join([rule, *self.names]).encode())[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How a decoder is trained; the names are those of ``TrainConfig``."""

    attention: Spec
    head: Spec
    loss: Spec
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    schedule: Literal["constant", "plateau", "cosine"]
    clip_grad_norm: float | None
    select: Literal["val", "last", "test"]
    val_fraction: float
    split_seed: int
    pool: str
    layers: Layers
    train_split: str
    test_split: str
    allow_train_as_test: bool
    dtype: Dtype
    fold: Fold | None
    groups: Groups | GroupsRecord | None
    """A record where the recipe was read from run.json."""
    # settings since 0.1.0: the defaults are what earlier recipes did, so that their
    # keys stay the same
    loss_scale: Literal["none", "dynamic"] = "none"
    clip_order: Literal["unscale-first", "clip-first"] = "unscale-first"
    ties: Literal["loss", "first"] = "loss"
    eval_dtype: Literal["same", "float32"] = "same"
    shuffle_labels: bool = False
    shuffle: str = "full"
    shard_rows: int | None = None
    """Rows of a shard of the cache, where the order of the rows depends on it."""
    class_weights: Literal["none", "balanced"] = "none"
    train_rows: int | None = None
    shots: int | None = None
    val_folds: int | None = None
    """None: all seeds hold out the same ``val_fraction``."""
    optimizer: Spec = Spec("adamw")  # noqa: RUF009 it is frozen
    state_scale: StateScaling = "none"
    """``layer``: the states of each layer are divided by a number before a decoder
    reads them."""
    val_split: str | None = None
    """The split of the validation rows; None: they are held out of the train split."""

    def __str__(self) -> str:
        """The decoder, with the settings that a sweep varies, for people."""
        return decoder_title(
            self.attention, self.head, self.to_dict(), final=self.final
        )

    @property
    def final(self) -> bool:
        """Whether it is the recipe of a final model, which has no test rows."""
        return self.fold is None and self.test_split == NO_TEST

    @property
    def named_groups(self) -> Groups | None:
        """The groups with their names; None where rows have no groups.

        A recipe from run.json has no names, and cannot be trained.
        """
        assert not isinstance(self.groups, GroupsRecord), "run.json holds no names"
        return self.groups

    @property
    def on_training_rows(self) -> bool:
        """Whether it tests, or may test, on the rows that it trains on."""
        # a fold never trains on its test rows, although they are of the same split
        if self.fold is not None:
            return False
        # With allow_train_as_test, two splits may hold the same rows.
        return self.test_split == self.train_split or self.allow_train_as_test

    @property
    def tested_split(self) -> str:
        """The split with the test rows; folds test on rows of the training split."""
        return self.train_split if self.fold is not None else self.test_split

    @property
    def used_splits(self) -> list[str]:
        """The splits whose rows are used, the train split first."""
        splits = [self.train_split]
        if self.val_split is not None:
            splits.append(self.val_split)
        if self.fold is None:
            splits.append(self.test_split)
        return splits

    @property
    def holds_out_rows(self) -> bool:
        """Whether some rows of the train split are validation rows."""
        return self.select == "val" and self.val_split is None

    @property
    def has_budget(self) -> bool:
        """Whether it learns from a random part of the training rows."""
        return self.train_rows is not None or self.shots is not None

    @property
    def window_rows(self) -> int | None:
        """Rows of a block that is shuffled by itself; None: all rows are one block.

        It is the number in a ``shuffle`` such as ``window:4096``.
        """
        if self.shuffle == "full":
            return None
        return int(self.shuffle.partition(":")[2])

    @property
    def is_fitted_at_once(self) -> bool:
        """Whether the head is fitted at once, without steps and seeds."""
        return head_class(self.head).trained_by == "fit"

    def normalized(self) -> Recipe:
        """The recipe with fixed values for the settings that its head ignores.

        A head that is fitted at once ignores the settings of steps. Equivalent recipes
        become equal.
        """
        if not self.is_fitted_at_once:
            return self
        # settings of steps get their default, or where they have none a fixed value
        changes: dict[str, Any] = {
            name: DEFAULTS[name] for name in STEP_SETTINGS if name in DEFAULTS
        }
        changes |= FIXED_SETTINGS_OF_FITS
        # the fixed values are those of JSON; a recipe has the loss as a spec
        changes["loss"] = Spec(FIXED_SETTINGS_OF_FITS["loss"])
        return replace(self, **changes)

    def without_test_rows(self) -> Recipe:
        """The recipe of the final model, which learns from all rows and is not tested.

        Settings that only decide test rows are reset, so that recipes which differ in
        them alone have one final model.
        """
        # Groups and the split seed still decide the validation rows, if there are any.
        has_validation = self.select == "val"
        draws_rows = has_validation or self.has_budget
        return replace(
            self,
            test_split=NO_TEST,
            fold=None,
            groups=self.groups if has_validation else None,
            allow_train_as_test=False,
            split_seed=self.split_seed if draws_rows else 0,
        )

    def to_dict(self) -> Settings:
        """The settings for run.json, as JSON values.

        Without mechanism and head, without defaults, and without settings that the
        head ignores.
        """
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        values["loss"] = str(self.loss)
        values["fold"] = str(self.fold) if self.fold else None
        values["layers"] = spell_numbers(self.layers) if self.layers else None

        ignored = {"attention", "head", "groups"}
        if self.is_fitted_at_once:
            ignored.update(STEP_SETTINGS)
        for name, default in DEFAULTS.items():
            if values[name] == default:
                ignored.add(name)
        values = {name: value for name, value in values.items() if name not in ignored}

        if "optimizer" in values:
            values["optimizer"] = str(self.optimizer)
        if self.groups:
            values["groups"] = self.groups.digest

        # A new version of another package's plug-in is another recipe: its code is
        # named with a digest behind a space; gaam's own code has none.
        foreign = {part: code for part, code in self.code().items() if " " in code}
        if foreign:
            values[PLUGINS] = foreign
        return values

    @classmethod
    def from_dict(
        cls,
        settings: Mapping[str, Any],
        *,
        attention: str,
        head: str,
        groups: Mapping[str, Any],
    ) -> Self:
        """Read what ``to_dict`` wrote, as a ``normalized`` recipe.

        Plug-ins are not loaded: those of a recorded recipe need not be installed.

        Args:
            settings: the recipe in run.json.
            attention: the mechanism.
            head: the head.
            groups: ``kind`` and ``source`` of the groups; empty where there are none.

        Raises:
            ValueError, TypeError: an unknown, missing or wrong setting.
        """
        values = dict(settings)
        # the code of plug-ins is no setting: see ``recorded_plugins``
        read_value(values.pop(PLUGINS, {}), dict[str, str], f"recipe.{PLUGINS}")
        # the recipe of a head that is fitted at once records no settings of steps
        is_fitted_at_once = values.keys().isdisjoint(STEP_SETTINGS)
        if is_fitted_at_once:
            values |= FIXED_SETTINGS_OF_FITS
        values |= {"attention": attention, "head": head}
        values.setdefault("groups", None)
        check_names(cls, values, "recipe")

        parsed: dict[str, Any] = {}
        for name, value in values.items():
            if name in _PARSERS and value is not None:
                text = read_value(value, str, f"recipe.{name}")
                parsed[name] = _PARSERS[name](text)
            else:
                parsed[name] = read_field(cls, name, value, f"recipe.{name}")
        if groups:
            record = {"digest": values["groups"], **groups}
            parsed["groups"] = read_record(GroupsRecord, record, "groups")
        return cls(**parsed)

    def code(self) -> dict[str, str]:
        """Where the code of each plug-in is from, as ``plugins.code_hash`` says it.

        By kind and name, such as ``mechanism gaam``.
        """
        parts = {"mechanism": self.attention, "head": self.head}
        if not self.is_fitted_at_once:
            parts["loss"] = self.loss
            parts["optimizer"] = self.optimizer
        return {
            f"{kind} {spec.name}": plugins.code_hash(
                KINDS[kind].package, spec.name, kind=kind
            )
            for kind, spec in parts.items()
        }

    def key(self, states: str, division_rule: str = "") -> str:
        """Hash of decoder, recipe and states: runs of one key differ in seeds alone.

        Args:
            states: the name of the cache's states, ``Plan.states_id``.
            division_rule: of the task, see ``Task.division_rule``.
        """
        parts = [str(self.attention), str(self.head), self.to_dict(), states]
        if division_rule and (self.select == "val" or self.has_budget):
            parts.append(division_rule)
        return digest_of(json.dumps(parts, sort_keys=True).encode())


DEFAULTS: dict[str, Any] = {
    entry.name: entry.default
    for entry in fields(Recipe)
    if entry.default is not MISSING
}
"""Defaults of the settings since 0.1.0; run.json names only other values."""
_PARSERS: dict[str, Callable[[str], object]] = {
    "attention": read_spec,
    "head": read_spec,
    "loss": read_spec,
    "optimizer": read_spec,
    "layers": parse_numbers,
    "fold": Fold.parse,
    "groups": GroupsRecord,
}
"""How the settings are read that run.json holds as text."""


def recorded_plugins(settings: Mapping[str, Any]) -> dict[str, str]:
    """The code of other packages that a recorded recipe names, by kind and name."""
    return dict(settings.get(PLUGINS, {}))
