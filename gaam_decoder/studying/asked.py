"""Whether a report can be asked for, before there are runs: what is wrong is not found after hours.

The values are taken apart by the functions that ``gaam report`` itself uses.
"""

from __future__ import annotations

from typing import Any

from gaam_cache.errors import ConfigError
from gaam_decoder.reports.table.layout import check
from gaam_decoder.reports.writing.unit import DEFAULT, margin_of, score_of
from gaam_decoder.runs.filters import rules
from gaam_decoder.specs import parse_attention, parse_head

FLAGS = ("every_candidate", "temperature")
TEXTS = ("baseline", "score", "sort", "pairs", "tune_seeds")
LISTS = ("attn", "head", "layers", "lr")


def check_asked(**options: Any) -> None:
    """Check options of ``gaam report`` by themselves.

    Whether a baseline is among the runs, and whether they differ in what ``pairs`` names, is known
    when they are there.

    Args:
        options: by the names that ``gaam_decoder.report`` gives them.

    Raises:
        ConfigError: one of another type, or that means nothing.
    """
    for name, value in options.items():
        if name in FLAGS and not isinstance(value, bool):
            raise _wrong(name, "true or false", value)
        if name in TEXTS and not isinstance(value, str):
            raise _wrong(name, "a text", value)
        if name in LISTS and not _texts(value):
            raise _wrong(name, "a list of texts", value)
        if name == "top" and (not isinstance(value, int) or isinstance(value, bool)):
            raise _wrong(name, "a whole number", value)
        if name == "margin" and (not isinstance(value, (int, float)) or isinstance(value, bool)):
            raise _wrong(name, "a number", value)
    if baseline := options.get("baseline"):
        parse_attention(baseline, "--baseline")
    for name, parse in (("attn", parse_attention), ("head", parse_head)):
        for text in options.get(name, ()):
            parse(text)
    check(options.get("sort"), options.get("top"))
    margin_of(options.get("margin"), score_of(options.get("score", DEFAULT)))
    rules([], **{name: options[name] for name in LISTS if name in options})


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _wrong(name: str, expected: str, found: Any) -> ConfigError:
    return ConfigError(f"bad value for '{name}'", expected=expected, found=repr(found))
