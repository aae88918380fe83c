"""A recipe: one decoder and everything that decides its numbers but for the seed."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from gaam_cache.common import plugins
from gaam_cache.store.files import digest_of
from gaam_decoder.number_lists import Layers, spell_numbers
from gaam_decoder.specs import KINDS, Spec, head_class, row_title

OF_STEPS = (
    *(
        "loss",
        "epochs",
        "batch_size",
        "lr",
        "weight_decay",
        "schedule",
        "clip_grad_norm",
        "dtype",
    ),
    *(
        "loss_scale",
        "clip_order",
        "ties",
        "eval_dtype",
        "class_weights",
        "shuffle",
        "shard_rows",
    ),
    "optimizer",
)
"""Settings that play no part where a head is fitted at once."""
NO_TEST = "none"
"""The test split of a final model, which learns from all rows and is tested on none."""
Dtype = Literal["float32", "bfloat16", "float16"]  # of matrix products


class Fold(NamedTuple):
    """One of the folds of a cross-validation: which, from 1, and how many there are."""

    number: int
    of: int

    def __str__(self) -> str:
        """Such as ``1/5``."""
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class Groups:
    """Rows that are kept together where they learn, choose or are tested."""

    names: tuple[str, ...]  # one per row of the train split
    source: str  # where they were read: a kept column of the cache, or an absolute path
    kind: Literal["column", "file"] = "file"

    @cached_property
    def digest(self) -> str:
        """Of the names: from a column or a file, the same names are the same recipe."""
        return digest_of("\n".join(["whole groups choose", *self.names]).encode())[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What a row of a report is trained by; the names are those of ``TrainConfig``."""

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
    groups: Groups | None
    # since 0.1.0, each with the value that all recipes had before
    loss_scale: Literal["none", "dynamic"] = "none"
    clip_order: Literal["unscale-first", "clip-first"] = "unscale-first"
    ties: Literal["loss", "first"] = "loss"
    eval_dtype: Literal["same", "float32"] = "same"
    shuffle_labels: bool = False
    shuffle: str = "full"
    shard_rows: int | None = (
        None  # of the cache, where the order of the rows depends on it
    )
    class_weights: Literal["none", "balanced"] = "none"
    train_rows: int | None = None
    shots: int | None = None
    val_folds: int | None = None  # None: all seeds hold out the same ``val_fraction``
    optimizer: Spec = Spec("adamw")  # noqa: RUF009 it is frozen

    def __str__(self) -> str:
        """Decoder and what a sweep varies, for people."""
        return row_title(self.attention, self.head, final=self.final, **self.to_dict())

    @property
    def final(self) -> bool:
        """Whether nothing is tested; a cache with a split of that name is refused before."""
        return self.fold is None and self.test_split == NO_TEST

    @property
    def drawn(self) -> bool:
        """Whether it learns from some of the training rows alone."""
        return self.train_rows is not None or self.shots is not None

    @property
    def window(self) -> int | None:
        """Rows of a block within which rows are shuffled; None where all rows are one."""
        return None if self.shuffle == "full" else int(self.shuffle.partition(":")[2])

    @property
    def fitted(self) -> bool:
        """Whether the head is fitted at once, without steps and seeds."""
        return head_class(self.head).trained_by == "fit"

    def settled(self) -> Recipe:
        """The recipe in the one form that all have which mean the same."""
        own = {name: DEFAULTS[name] for name in OF_STEPS if name in DEFAULTS}
        own |= {
            "loss": Spec("cross-entropy"),
            "epochs": 1,
            "batch_size": 1,
            "dtype": "float32",
        }
        own |= {
            "lr": 0.0,
            "weight_decay": 0.0,
            "schedule": "constant",
            "clip_grad_norm": None,
        }
        return replace(self, **own) if self.fitted else self

    def without_test(self) -> Recipe:
        """The recipe of the final model beside this one; what only decides test rows is gone."""
        chooses = self.select == "val"
        return replace(
            self,
            test_split=NO_TEST,
            fold=None,
            groups=self.groups if chooses else None,
            allow_train_as_test=False,
            split_seed=self.split_seed if chooses or self.drawn else 0,
        )

    def to_dict(self) -> dict[str, Any]:
        """What plays a part, but for the decoder, as run.json has it: defaults are left out."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values |= {
            "loss": str(self.loss),
            "fold": str(self.fold) if self.fold else None,
        }
        values["layers"] = spell_numbers(self.layers) if self.layers else None
        out = {"attention", "head", "groups", *(OF_STEPS if self.fitted else ())}
        out |= {name for name, usual in DEFAULTS.items() if values[name] == usual}
        values = {name: value for name, value in values.items() if name not in out}
        values |= {"optimizer": str(self.optimizer)} if "optimizer" in values else {}
        values |= {"groups": self.groups.digest} if self.groups else {}
        # of others' plug-ins: a new version is another recipe
        theirs = {what: code for what, code in self.code().items() if " " in code}
        return values | ({"plugins": theirs} if theirs else {})

    def code(self) -> dict[str, str]:
        """What its parts are computed by, as ``plugins.code`` has it."""
        parts = {"mechanism": self.attention, "head": self.head}
        parts |= {} if self.fitted else {"loss": self.loss, "optimizer": self.optimizer}
        return {
            f"{kind} {spec.name}": plugins.code(KINDS[kind][0], spec.name, kind=kind)
            for kind, spec in parts.items()
        }

    def key(self, states: str) -> str:
        """The hash of decoder, recipe and states: runs of one key differ in their seeds alone.

        ``states`` names those of the cache (``Plan.states``).
        """
        parts = [str(self.attention), str(self.head), self.to_dict(), states]
        return digest_of(json.dumps(parts, sort_keys=True).encode())


DEFAULTS: dict[str, Any] = {
    one.name: one.default for one in fields(Recipe) if one.default is not MISSING
}
"""Settings since 0.1.0, which a recipe names only where they have another value."""
