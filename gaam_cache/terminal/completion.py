"""What a shell is offered for the word that is being typed.

Names are those of the folders of plug-ins, other distributions' too; words to choose from are those
of the help text. Nothing that is offered is imported. Where there is nothing to offer, shells offer
files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.terminal import cached_splits, plugin_options, settings

FOLDERS = {
    "attn": "gaam_decoder.attention",
    "baseline": "gaam_decoder.attention",
    "head": "gaam_decoder.heads",
    "loss": "gaam_decoder.losses",
    "pool": "gaam_cache.encoders.poolings",
    "format": "gaam_decoder.reports.formats",
    "score": "gaam_decoder.stats.scores",
    "engine": "gaam_cache.engines",
}
"""Folder of the plug-ins that an option takes, by what ``cli.py`` calls the variable."""
SPLITS = frozenset({"split", "train_split", "test_split"})
"""Options that take the name of a split of the cache, by what ``cli.py`` calls the variable."""
WORD = re.compile(r"[a-z][a-z0-9-]*")
"""A word of a metavar that is meant as it is; ``N``, ``PATH`` and ``3e-4`` are not."""
SEPARATORS = ":="
"""Characters of ours at which bash parts words."""
PARTED = "_GAAM_PARTED"
"""Variable that is set, in this process, where bash has parted the word that is being typed."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A word for the shell, as typer's own."""

    value: str
    help: None = None
    type: str = "plain"


def offers(param: Any, command: str, ctx: Any, incomplete: str) -> list[Offer]:
    """What may stand where ``incomplete`` is being typed.

    Args:
        param: the option or argument.
        command: whose it is.
        ctx: what else was typed.
        incomplete: the value so far.
    """
    words = [one for one in _words(param, command, ctx, incomplete) if one.startswith(incomplete)]
    parted = max(incomplete.rfind(mark) for mark in SEPARATORS) + 1
    cut = parted if PARTED in os.environ else 0
    return [Offer(one[cut:]) for one in words]


def _words(param: Any, command: str, ctx: Any, incomplete: str) -> Iterable[str]:
    name, metavar = str(param.name), str(param.metavar or "")
    if name == "preset":
        return settings.preset_names(command)
    if param.param_type_name != "option":
        return []
    if name in SPLITS:
        fixed = [one for one in metavar.split("|") if WORD.fullmatch(one)]
        return [*cached_splits.names(_cache(ctx)), *fixed]
    if name not in FOLDERS or (name == "pool" and command == "import"):
        return [one for one in metavar.split("|") if WORD.fullmatch(one)]
    if ":" in metavar:
        return _specs(FOLDERS[name], incomplete)
    before = incomplete[: incomplete.rfind(",") + 1] if "," in metavar else ""
    return [before + one for one in plugins.names(FOLDERS[name])]


def _cache(ctx: Any) -> str | None:
    """The cache that was typed, or the one that is read where none is named."""
    params = getattr(ctx, "params", {})
    typed = params.get("cache")
    typed = typed[-1] if isinstance(typed, list) and typed else typed
    if isinstance(typed, str):
        return typed
    return str(ExtractConfig.__dataclass_fields__["out"].default)


def _specs(package: str, incomplete: str) -> list[str]:
    """Names of plug-ins, or after a colon ``name:key=value`` of one, which may be several."""
    name, colon, _ = incomplete.partition(":")
    if not colon:
        return plugins.names(package)
    before = incomplete[: max(incomplete.rfind(mark) for mark in ":,") + 1]
    taken = {part.partition("=")[0] for part in before[len(name) + 1 :].split(",")}
    return [
        f"{before}{key}={value}"
        for key, values in plugin_options.read(package, name).items()
        for value in values or ("",)
        if key not in taken
    ]


def join_words(environ: MutableMapping[str, str] = os.environ) -> None:
    """Put together what bash has parted: ``gaam``, ``:``, ``heads`` is one word of ours."""
    parts = environ.get("COMP_WORDS", "").split("\n")
    place = environ.get("COMP_CWORD", "")
    if not place.isdecimal() or environ.get("_GAAM_COMPLETE") != "complete_bash":
        return
    words: list[list[str]] = []
    for part in parts[: int(place) + 1]:
        mark = words and (not part.strip(SEPARATORS) or not words[-1][-1].strip(SEPARATORS))
        if mark and part:
            words[-1].append(part)
        else:
            words.append([part])
    environ["COMP_WORDS"] = "\n".join(map("".join, words))
    environ["COMP_CWORD"] = str(len(words) - 1)
    if len(words[-1]) > 1:
        environ[PARTED] = "1"
