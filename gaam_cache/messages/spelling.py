"""What a word was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gaam_cache.messages.checks import LONGEST_WORD


def nearest(
    word: str, valid: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str | None:
    """The valid name that was probably meant: its spelling is close, or it has that alias."""
    import difflib

    known = {_plain(alias): name for alias, name in (aliases or {}).items()}
    known |= {_plain(name): name for name in valid}
    plain = _plain(word[:LONGEST_WORD])
    if plain in known:
        return known[plain]
    if one_slip := difflib.get_close_matches(plain, known, 1, 0.9):
        return known[one_slip[0]]
    shorter = [name for name in known if plain.startswith(f"{name}-")]  # 'focal-loss'
    longer = [name for name in known if plain and name.startswith(f"{plain}-")]  # 'student'
    if shorter or longer:
        return known[max(shorter, key=len) if shorter else min(longer, key=len)]
    # 'best' is not 'test': of a short word one letter is much
    found = difflib.get_close_matches(plain, known, 1, 0.8 if len(plain) < 5 else 0.6)
    return known[found[0]] if found else None


def _plain(word: str) -> str:
    return word.strip().casefold().replace("_", "-").replace(" ", "-")
