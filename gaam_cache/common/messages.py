"""What is said: text from elsewhere made harmless, and the words of messages."""

import difflib
import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

LONGEST_WORD, LONGEST_NAME = 60, 120  # characters of what a person wrote, and of a name
MOST_MARKS = (
    4  # on one letter: more than any script needs, few enough to stay between the lines
)
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""Letters and marks that leave no trace: fillers, variation selectors."""
Aliases = Mapping[str, str] | None


def visible(text: str, *, keep: str = "") -> str:
    """The text, with all that a terminal or reader would obey or hide as escapes; but ``keep``."""
    if text.isascii() and text.isprintable():
        return text
    shown, marks = [], 0
    for c in text:
        category = unicodedata.category(
            c
        )  # of control, direction, surrogates: C; of lines: Zl, Zp
        marks = marks + 1 if category in ("Mn", "Me") else 0
        harmful = category[0] == "C" or category in ("Zl", "Zp") or marks > MOST_MARKS
        harmful = c not in keep and (harmful or bool(_UNSEEN.match(c)))
        shown.append(
            c.encode("unicode_escape", "surrogatepass").decode() if harmful else c
        )
    return "".join(shown)


def visible_values(value: Any) -> Any:
    """JSON values with every string in them, keys too, made visible."""
    if isinstance(value, dict):
        return {
            visible_values(key): visible_values(entry) for key, entry in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [visible_values(entry) for entry in value]
    return visible(value) if isinstance(value, str) else value


def brief(text: str, longest: int = LONGEST_NAME, *, keep: str = "") -> str:
    """A name of bounded length: a hash stands for the middle, so that names stay different."""
    text = visible(text, keep=keep)
    if len(text) <= longest:
        return text
    digest = f"...{hashlib.sha256(text.encode()).hexdigest()[:8]}..."
    front = (longest - len(digest)) * 2 // 3
    return text[:front] + digest + text[front + len(digest) - longest :]


def tell(text: str, *, to: TextIO | None = None) -> None:
    """Print lines, whatever they are made of; default: on stdout."""
    print(visible(text, keep="\n"), file=to or sys.stdout)


def shortened(word: str, longest: int = LONGEST_WORD) -> str:
    """What a person wrote, cut off where it is long."""
    return word if len(word) <= longest else f"{word[: longest - 3]}..."


def excerpt(value: object) -> str:
    """A value in quotes and on one line; its end is cut off where it is long."""
    return shortened(repr(value), LONGEST_WORD + 2 if isinstance(value, str) else 100)


def option_of(field: str) -> str:
    return "--" + field.replace("_", "-")


def nearest(word: str, valid: Iterable[str], aliases: Aliases = None) -> str | None:
    """The valid name that was probably meant: its spelling is close, or it has that alias."""

    def plain(word: str) -> str:
        return word.strip().casefold().replace("_", "-").replace(" ", "-")

    known = {plain(alias): name for alias, name in (aliases or {}).items()}
    known |= {plain(name): name for name in valid}
    asked = plain(word[:LONGEST_WORD])
    parts = [one for one in known if sorted(one) == sorted(asked)]  # 'mah' is 'mha'
    parts += [
        one
        for one in known
        if asked and (one.startswith(asked) or asked.startswith(one))
    ]
    # 'best' is not 'test': of a short word one letter is much
    found = difflib.get_close_matches(asked, known, 1, 0.6 if len(asked) > 4 else 0.8)
    return known[[*found, *parts][0]] if found or parts else None


def did_you_mean(
    word: str, valid: Iterable[str], aliases: Aliases = None
) -> str | None:
    meant = nearest(word, valid, aliases)
    return f"did you mean '{meant}'?" if meant else None


def duration(seconds: float) -> str:
    """Two units at most: '1 h 20 min'."""
    whole = max(0, round(seconds))
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


def install(extra: str) -> str:
    """The command that installs an extra: of a checkout its own, else of the package."""
    root = Path(__file__).resolve().parents[2]
    checkout = (root / "pyproject.toml").is_file()
    return (
        f"pip install -e '{root}[{extra}]'"
        if checkout
        else f"pip install 'gaam[{extra}]'"
    )
