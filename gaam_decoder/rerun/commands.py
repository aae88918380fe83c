"""Commands as text, one a line, and what no command can say as comments of a shell."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gaam_cache.messages import option_of, visible
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_layers, spell_numbers

REPEATED = ("attn", "head", "pool", "layers")
"""Options that are given once for each of several values."""
LISTED = ("lr", "weight_decay")
"""Options whose values stand with commas between them."""
SAID = ("seeds", "probe")
"""Fields that are said whatever they are: a variable or a file may have another default."""
ELSEWHERE = (
    *("device", "seed_batch", "memory_share", "compile", "track", "skip_impossible"),
    *("engine", "devices", "address", "gpus_per_worker", "rank"),
)
"""Fields of a configuration that are of a machine, and decide no experiment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rerun:
    """What to do, in order."""

    commands: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What has to be known beside them."""

    def script(self) -> str:
        """All of it as a shell reads it: notes are comments."""
        return "\n".join([*(f"# {visible(note)}" for note in self.notes), *self.commands])

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"commands": list(self.commands), "notes": list(self.notes)}


def train_command(config: TrainConfig) -> str:
    """The command line of a training; what is at its default is left out.

    ``ELSEWHERE`` is left out too.
    """
    words = ["gaam", "train"]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in ELSEWHERE or (value == field.default and field.name not in SAID):
            continue
        words += _words(field.name, value)
    return shlex.join(words)


def _words(name: str, value: Any) -> list[str]:
    option = option_of(name)
    if isinstance(value, bool):
        return [option if value else option.replace("--", "--no-", 1)]
    if name in ("seeds", "tune_seeds"):
        return [option, spell_seeds(value)]
    if name in REPEATED:
        several = value if _is_several(name, value) else (value,)
        texts = [one if isinstance(one, str) else spell_layers(one) for one in several]
        return [word for text in texts for word in (option, text)]
    if name in LISTED:
        return [option, ",".join(map(repr, value)) if isinstance(value, tuple) else repr(value)]
    return [option, str(value)]


def _is_several(name: str, value: Any) -> bool:
    """Whether there are several values; numbers of layers are one set of layers."""
    if not isinstance(value, (tuple, list)):
        return False
    return name != "layers" or not all(isinstance(one, int) for one in value)


def spell_seeds(seeds: Sequence[int]) -> str:
    """Seeds as ``--seeds`` reads them; a number alone would be how many."""
    text = spell_numbers(sorted(seeds))
    return f"{text}," if text.isdecimal() else text
