"""One line under a table that is enough to train it again, as sacreBLEU has (Post 2018).

Such as ``gaam 0.2.0|cache 20d93e8a1b2c|attn gaam none|head linear|pool mean|lr 0.001|epochs
35|select val|seeds 0-9|rows 2|baseline none|claims seeds+rows|holm 1|margin 0.5|signature 1``:
fields parted by ``|``, each a name and its values, parted by spaces. What is called like an option
of ``gaam train`` is what that option was; one that is left out was at its default. Where rows
differ in a setting, all of its values are there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

import gaam_cache
from gaam_cache.errors import ConfigError
from gaam_cache.format.digest import digest_of, short_digest
from gaam_cache.messages import shortened
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import DRAWN_BY, spell_numbers
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.reports.writing.unit import DEFAULT
from gaam_decoder.runs.tuning import TUNED

VERSION = "1"
LONGEST, PART = 120, 16
"""Characters of a word, and of what is left of a longer one."""
EMPTY = "%"
"""What stands for no character at all."""
PLAIN = ":=,._+-/<>()"
"""Beside letters and digits; other characters stand as in an address (``%7C``)."""
ALWAYS = ("pool", "lr", "epochs", "select")
"""Settings that are said whatever they are: everybody asks."""
OF_TABLE = (
    *(
        "gaam",
        "cache",
        "attn",
        "head",
        "fit",
        "folds",
        "fold",
        "repeats",
        "tune-seeds",
        "seeds",
        "rows",
    ),
    *("baseline", "claims", "holm", "margin", "score", "temperature", "only", "signature"),
)
"""Fields that are no settings of a recipe."""
AND = "+"
"""Between mechanism and head of what is fitted at once."""
TOGETHER = ("fold",)
"""Settings that ``OF_TABLE`` has in other words."""
DEFAULTS = {one.name: one.default for one in dataclasses.fields(TrainConfig)} | {
    "loss_scale": "none"  # what a recipe has of auto
}

Fields = dict[str, tuple[str, ...]]
"""Values by name, in the order of the line."""


def signature(table: Table) -> str:
    """The signature of a table, in ASCII; '' of one that has no rows, or is a part of another."""
    if not table.rows or table.covered:
        return ""
    found: Fields = {
        "gaam": (gaam_cache.__version__,),
        "cache": (short_digest(table.cache["fingerprint"]),),
        **_decoders(table.rows),
        **_settings(table.rows),
        **_protocol(table.rows),
        "rows": (str(len(table.rows)),),
    }
    if table.finals:
        found["final"] = ("yes",)
    if table.baseline is not None:
        found["baseline"] = (table.baseline,)
    if table.num_tests:
        found |= {"claims": ("seeds+rows",), "holm": (str(table.num_tests),)}
        found["margin"] = (f"{table.unit.factor * table.margin:.6g}",)
    if table.score != DEFAULT:
        found["score"] = (table.score,)
    if table.temperature:
        found["temperature"] = ("yes",)
    if table.selection is not None and table.selection.left_out:
        found["only"] = table.selection.asked or ("named",)
    return spell(found | {"signature": (VERSION,)})


def spell(found: Fields) -> str:
    """Fields as one line, which ``read`` reads."""
    return "|".join(" ".join(map(_quoted, (name, *of))) for name, of in found.items())


def _quoted(word: str) -> str:
    """A word without white space, in ASCII; a very long one, which no option is, is its digest."""
    if len(word) > LONGEST:
        word = f"{word[:PART]}~{digest_of(word.encode(errors='surrogatepass'))[:PART]}"
    return quote(word, safe=PLAIN, errors="surrogatepass") or EMPTY


def read(line: str) -> Fields:
    """The fields of a signature.

    Raises:
        ConfigError: it is none, or of another version.
    """
    found: Fields = {}
    for part in line.strip().removeprefix("signature:").strip(" `").split("|"):
        name, *values = map(_unquoted, part.split() or [EMPTY])
        if not name or not values or name in found:
            raise _none(line, f"the field {shortened(part)!r}")
        found[name] = tuple(values)
    if next(iter(found)) != "gaam" or "cache" not in found or "signature" not in found:
        raise _none(line, shortened(line))
    if found["signature"] != (VERSION,):
        raise _none(line, f"signature {' '.join(found['signature'])}")
    return found


def _unquoted(word: str) -> str:
    return "" if word == EMPTY else unquote(word, errors="surrogatepass")


def _none(line: str, found: str) -> ConfigError:
    return ConfigError(
        "this is no signature of a report",
        expected=f"gaam VERSION|cache FINGERPRINT|...|signature {VERSION}, the whole line",
        found=found if line.strip() else "nothing",
        hint="'gaam report --signature' prints it; quote it: | means something to a shell",
    )


def _decoders(rows: Iterable[Row]) -> Fields:
    """What is trained by steps, and what is fitted at once, such as ``none+lbfgs``."""
    rows = list(rows)
    return {
        name: values
        for name, values in {
            "attn": _each(row.attention for row in rows if not row.fitted),
            "head": _each(row.head for row in rows if not row.fitted),
            "fit": _each(f"{row.attention}{AND}{row.head}" for row in rows if row.fitted),
        }.items()
        if values
    }


def _settings(rows: Iterable[Row]) -> Fields:
    """What the recipes have that is not at its default, by name as an option has it."""
    values: dict[str, list[Any]] = {name: [] for name in ALWAYS}
    for row in rows:
        # of all training rows a recipe has no number
        for name, value in {**dict.fromkeys(DRAWN_BY), **row.recipe}.items():
            if name in TUNED and row.tunings:  # every fold may have chosen for itself
                tried = [c.values[name] for of in row.tunings for c in of.candidates]
            else:
                tried = [] if name in TOGETHER else [value]
            values.setdefault(name, []).extend(tried)
    return {
        name.replace("_", "-"): _each(map(_word, sorted(of) if name in TUNED else of))
        for name, of in values.items()
        if of and (name in ALWAYS or set(map(_word, of)) != {_word(DEFAULTS.get(name))})
    }


def _protocol(rows: Iterable[Row]) -> Fields:
    """Folds, seeds, and the seeds that chose."""
    rows = list(rows)
    found: Fields = {}
    first = rows[0].runs[0].recipe.get("fold")
    if first is not None:
        number, _, count = str(first).partition("/")
        found["folds"] = (count,)
        if rows[0].folds == 1:
            found["fold"] = (number,)
        if rows[0].repeats > 1:
            found["repeats"] = (str(rows[0].repeats),)
    if chose := sorted({seed for row in rows for t in row.tunings if t.apart for seed in t.seeds}):
        found["tune-seeds"] = (spell_numbers(chose),)
    stepped = [row for row in rows if not row.fitted] or rows
    found["seeds"] = _each(spell_numbers(row.seeds) for row in stepped if row.seeds) or ("none",)
    return found


def _each(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _word(value: Any) -> str:
    """A value as the command line has it; ``-`` where it is left at nothing."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, dict):
        return ",".join(f"{name}={code}" for name, code in sorted(value.items()))
    return str(value)
