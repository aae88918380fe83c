"""Text of messages: harmless characters, bounded length, suggested names."""

import difflib
import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

LONGEST_WORD = 60  # characters of a word that a person wrote
LONGEST_NAME = 120  # characters of a name
MOST_MARKS = 4  # combining marks on one letter; no script needs more
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"
    "\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""Invisible letters and marks: fillers, variation selectors."""
Aliases = Mapping[str, str] | None


def visible(text: str, *, keep: str = "") -> str:
    """The text with escapes for harmful and invisible characters, except ``keep``.

    Harmful are characters that control a terminal, change the direction of text or
    break lines.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = []
    marks = 0
    for character in text:
        # C: control, format, surrogate; Zl and Zp: line and paragraph separators
        category = unicodedata.category(character)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        is_control = category.startswith("C") or category in ("Zl", "Zp")
        is_unseen = _UNSEEN.match(character) is not None
        is_harmful = is_control or is_unseen or marks > MOST_MARKS
        # an escape shows what was there, and does nothing
        if is_harmful and character not in keep:
            escape = character.encode("unicode_escape", "surrogatepass")
            character = escape.decode()
        shown.append(character)
    return "".join(shown)


def visible_values(value: object) -> Any:
    """JSON values in which every string is visible, keys too."""
    if isinstance(value, dict):
        return {
            visible_values(key): visible_values(entry) for key, entry in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [visible_values(entry) for entry in value]
    if isinstance(value, str):
        return visible(value)
    return value


def brief(text: str, longest: int = LONGEST_NAME, *, keep: str = "") -> str:
    """A visible name of bounded length; a hash of the name replaces its middle."""
    text = visible(text, keep=keep)
    if len(text) <= longest:
        return text
    # long names that differ in the middle alone stay different
    digest = f"...{hashlib.sha256(text.encode()).hexdigest()[:8]}..."
    front = (longest - len(digest)) * 2 // 3
    back = longest - len(digest) - front
    return text[:front] + digest + text[-back:]


def tell(text: str, *, to: TextIO | None = None) -> None:
    """Print visible lines, on stdout by default."""
    print(visible(text, keep="\n"), file=to or sys.stdout)


def shortened(word: str, longest: int = LONGEST_WORD) -> str:
    """A word, cut off if it is long."""
    if len(word) <= longest:
        return word
    return f"{word[: longest - 3]}..."


def excerpt(value: object) -> str:
    """A value on one line, a text in quotes, cut off if it is long."""
    longest = LONGEST_WORD + 2 if isinstance(value, str) else 100
    return shortened(repr(value), longest)


def option_of(field: str) -> str:
    """The option of a field: ``--max-length`` for ``max_length``."""
    return "--" + field.replace("_", "-")


def nearest(word: str, valid: Iterable[str], aliases: Aliases = None) -> str | None:
    """The valid name that a person probably meant, by its spelling or an alias."""
    # a valid name wins over an alias of the same spelling
    names = {_simplified(alias): name for alias, name in (aliases or {}).items()}
    names |= {_simplified(name): name for name in valid}
    target = _simplified(word[:LONGEST_WORD])

    # one wrong letter changes much of a short word: 'best' is not 'test'
    cutoff = 0.6 if len(target) > 4 else 0.8
    candidates = difflib.get_close_matches(target, names, 1, cutoff)
    # letters in another order: 'mah' is 'mha'
    candidates += [name for name in names if sorted(name) == sorted(target)]
    if target:
        candidates += [
            name for name in names if target.startswith(name) or name.startswith(target)
        ]
    if not candidates:
        return None
    return names[candidates[0]]


def _simplified(word: str) -> str:
    """A name without differences of case, spaces and underscores."""
    return word.strip().casefold().replace("_", "-").replace(" ", "-")


def did_you_mean(
    word: str, valid: Iterable[str], aliases: Aliases = None
) -> str | None:
    """The hint that names the nearest valid name; None if there is none."""
    name = nearest(word, valid, aliases)
    if not name:
        return None
    return f"did you mean '{name}'?"


def duration(seconds: float) -> str:
    """A duration in at most two units: '1 h 20 min'."""
    # an estimate of the time that is left may be negative for a moment
    rounded = max(0, round(seconds))
    if rounded >= 86400:
        return f"{rounded // 86400} d {rounded % 86400 // 3600} h"
    if rounded >= 3600:
        return f"{rounded // 3600} h {rounded % 3600 // 60} min"
    if rounded >= 60:
        return f"{rounded // 60} min {rounded % 60:02} s"
    return f"{rounded} s"


def install(extra: str) -> str:
    """The command that installs an extra, from the checkout if there is one."""
    # only a checkout has pyproject.toml beside the package
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").is_file():
        return f"pip install -e '{root}[{extra}]'"
    return f"pip install 'gaam[{extra}]'"
