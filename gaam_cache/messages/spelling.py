"""What a word was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gaam_cache.messages.checks import LONGEST_WORD


def nearest(
    word: str, valid: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str | None:
    """The valid name that was probably meant: its spelling is close, or it has that alias."""
    import difflib

    known = {_plain(alias): name for alias, name in (aliases or {}).items()}
    known |= {_plain(name): name for name in valid}
    plain = _plain(word[:LONGEST_WORD])
    for one in (plain, *_swapped(plain)):
        if one in known:
            return known[one]
    if one_slip := difflib.get_close_matches(plain, known, 1, 0.9):
        return known[one_slip[0]]
    shorter = [name for name in known if plain.startswith(f"{name}-")]  # 'focal-loss'
    longer = [name for name in known if plain and name.startswith(f"{plain}-")]  # 'student'
    if shorter or longer:
        return known[max(shorter, key=len) if shorter else min(longer, key=len)]
    # 'best' is not 'test': of a short word one letter is much
    found = difflib.get_close_matches(plain, known, 1, 0.8 if len(plain) < 5 else 0.6)
    return known[found[0]] if found else None


def did_you_mean(
    word: str, valid: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str | None:
    """The question after it, for a message; None where nothing is near."""
    meant = nearest(word, valid, aliases)
    return f"did you mean '{meant}'?" if meant else None


def _swapped(plain: str) -> Iterator[str]:
    """With two letters beside one another the other way round: a slip in words of any length."""
    for at in range(len(plain) - 1):
        yield f"{plain[:at]}{plain[at + 1]}{plain[at]}{plain[at + 2 :]}"


def _plain(word: str) -> str:
    return word.strip().casefold().replace("_", "-").replace(" ", "-")
