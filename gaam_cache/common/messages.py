"""Text of messages: harmless characters, bounded length, suggested names."""

import difflib
import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
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
    """A text in which harmful and invisible characters are replaced by escapes.

    Harmful are characters that control a terminal, change the direction of text or
    break lines, and heaps of combining marks on one letter.

    Args:
        text: from elsewhere.
        keep: characters that stay as they are, such as a line break.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = []
    successive_marks = 0
    for character in text:
        # Mn and Me: combining marks; C: control, format and surrogate characters;
        # Zl and Zp: separators of lines and paragraphs
        category = unicodedata.category(character)
        is_mark = category in ("Mn", "Me")
        successive_marks = successive_marks + 1 if is_mark else 0
        is_control = category.startswith("C") or category in ("Zl", "Zp")
        is_unseen = _UNSEEN.match(character) is not None
        is_harmful = is_control or is_unseen or successive_marks > MOST_MARKS
        # an escape such as \x1b shows which character was there, and does nothing
        if is_harmful and character not in keep:
            escape = character.encode("unicode_escape", "surrogatepass")
            character = escape.decode()
        shown.append(character)
    return "".join(shown)


def visible_values(value: object) -> Any:
    """A copy of JSON values with every string made visible, keys too.

    ``visible`` replaces control characters and other unseen ones by escapes.
    """
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
    """A visible text of at most ``longest`` characters.

    In a longer text a hash of the text replaces the middle.

    Args:
        text: from elsewhere.
        longest: most characters of the result.
        keep: characters that stay as they are, see ``visible``.
    """
    text = visible(text, keep=keep)
    if len(text) <= longest:
        return text
    # long names that differ in the middle alone stay different
    digest = f"...{hashlib.sha256(text.encode()).hexdigest()[:8]}..."
    front = (longest - len(digest)) * 2 // 3
    back = longest - len(digest) - front
    return text[:front] + digest + text[-back:]


def tell(text: str, *, to: TextIO | None = None) -> None:
    """Print a text, made visible, on the stream ``to``; on stdout by default."""
    print(visible(text, keep="\n"), file=to or sys.stdout)


def shortened(word: str, longest: int = LONGEST_WORD) -> str:
    """A word of at most ``longest`` characters; dots mark a longer word's end."""
    if len(word) <= longest:
        return word
    return f"{word[: longest - 3]}..."


def excerpt(value: object) -> str:
    """A value for a message: on one line, a text in quotes, cut off if it is long."""
    # 2: the quotes
    longest = LONGEST_WORD + 2 if isinstance(value, str) else 100
    return shortened(repr(value), longest)


def join_first(names: Sequence[str], max_shown: int, separator: str = ", ") -> str:
    """The first names, and how many more there are."""
    text = separator.join(names[:max_shown])
    if len(names) > max_shown:
        text += f" and {len(names) - max_shown:,} more"
    return text


def counted(number: int, noun: str) -> str:
    """A number of things: ``1 row``, ``1,200 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def option_of(field: str) -> str:
    """The option of a field: ``--max-length`` for ``max_length``."""
    return "--" + field.replace("_", "-")


def nearest(word: str, valid: Iterable[str], aliases: Aliases = None) -> str | None:
    """The valid name that a person probably meant by ``word``; None if none is like it.

    Args:
        word: what the person wrote.
        valid: the valid names.
        aliases: further words that people use -> the valid names for them.
    """
    # simplified word -> valid name; a valid name replaces an alias of its spelling
    names = {_simplified(alias): name for alias, name in (aliases or {}).items()}
    names |= {_simplified(name): name for name in valid}
    target = _simplified(word[:LONGEST_WORD])

    # words that begin alike may differ more: 'gamm' is 'gaam', but 'best' is not 'test'
    begin_alike = [name for name in names if name[:1] == target[:1]]
    # a letter is a large part of a short word
    cutoff = 0.6 if len(target) > 4 else 0.7
    candidates = difflib.get_close_matches(target, begin_alike, n=1, cutoff=cutoff)
    candidates += difflib.get_close_matches(target, names, n=1, cutoff=0.8)
    # letters in another order: 'mah' is 'mha'
    candidates += [name for name in names if sorted(name) == sorted(target)]
    # one is the beginning of the other; an empty word would begin every name
    if target:
        candidates += [
            name for name in names if target.startswith(name) or name.startswith(target)
        ]
    if not candidates:
        return None
    # the first rule that has found a name decides
    return names[candidates[0]]


def _simplified(word: str) -> str:
    """A word in lower case, with '-' for spaces and underscores, to compare words."""
    return word.strip().casefold().replace("_", "-").replace(" ", "-")


def did_you_mean(
    word: str, valid: Iterable[str], aliases: Aliases = None
) -> str | None:
    """A hint that asks whether the nearest valid name was meant; None without one.

    See ``nearest`` for the arguments.
    """
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


def size_in_words(num_bytes: float) -> str:
    """A size in kilobytes or megabytes: '28 kB', '2.8 MB'."""
    if num_bytes < 1e5:
        return f"{max(1, round(num_bytes / 1e3))} kB"
    return f"{num_bytes / 1e6:,.1f} MB"


def install_command(extra: str) -> str:
    """The command of pip that installs an extra, a group of optional dependencies.

    In a checkout of the sources the command installs from the checkout.
    """
    # only a checkout has pyproject.toml beside the folder of the package
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").is_file():
        return f"pip install -e '{root}[{extra}]'"
    return f"pip install 'gaam[{extra}]'"
