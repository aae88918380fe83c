"""What is recorded of a study beside its recipe: read, and known to be what a study wrote.

``results.json`` ends with the SHA-256 of the page, the seeds and the pictures, and of its own
values. Whoever changes one by hand or by a slip is told so before anything is trained: what people
read, and a check compares with, is what came out of runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gaam_cache.errors import CacheError, NotFoundError
from gaam_cache.messages import excerpt
from gaam_decoder.studying.recipe import Study

RESULTS = "results.json"
FILES = "files"
"""SHA-256 of every other file that a study writes, by name."""
DIGEST = "sha256"
HINT = "take the file from where it came, or record it anew: gaam study FOLDER --record"


def digest(values: Mapping[str, Any]) -> str:
    """SHA-256 of results, however they are laid out in the file; hexadecimal.

    Args:
        values: JSON values; what is called ``sha256`` is left out.
    """
    of = {name: value for name, value in values.items() if name != DIGEST}
    return hashlib.sha256(json.dumps(of, sort_keys=True, allow_nan=False).encode()).hexdigest()


def digest_of_file(content: bytes) -> str:
    """SHA-256 of a file of lines, hexadecimal; however a checkout ends its lines."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def recorded(study: Study) -> dict[str, Any]:
    """What is recorded of a study.

    Raises:
        NotFoundError: nothing.
        CacheError: it cannot be read, or was changed after a study wrote it.
    """
    path = study.folder / RESULTS
    if not path.is_file():
        raise NotFoundError(
            f"nothing is recorded of the study '{study.name}'",
            expected=RESULTS,
            where=str(study.folder),
            hint="gaam study FOLDER --record makes it",
        )
    try:
        text = path.read_text("utf-8")
        found = json.loads(text, object_pairs_hook=_once)
        written = digest(found) if isinstance(found, dict) else ""
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1 : error.lineno]
        raise _unreadable(
            f"{error.msg} after column {error.colno - 1} of: {excerpt(''.join(line).strip())}",
            f"{path}, line {error.lineno}",
        ) from error
    except (ValueError, RecursionError) as error:
        raise _unreadable(str(error), str(path)) from error
    if not isinstance(found, dict):
        raise _unreadable(excerpt(found), str(path))
    if found.get(DIGEST) != written:
        raise CacheError(
            "recorded results that are not as a study wrote them",
            expected=f"values with the SHA-256 that the file ends with, as '{DIGEST}'",
            found="values with another" if DIGEST in found else f"no '{DIGEST}'",
            where=str(path),
            hint=HINT,
        )
    for name, expected in found.get(FILES, {}).items():
        _check_file(study.folder / name, expected)
    return found


def _check_file(path: Path, expected: str) -> None:
    """Refuse a page, seeds or a picture that is not as a study wrote it."""
    found = digest_of_file(path.read_bytes()) if path.is_file() else "no such file"
    if found != expected:
        raise CacheError(
            "a recorded file that is not as a study wrote it",
            expected=f"a file with SHA-256 {expected[:12]}, as {RESULTS} says",
            found=found if found == "no such file" else f"one with {found[:12]}",
            where=str(path),
            hint=HINT,
        )


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, every name of which stands once: else the last would count."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{excerpt(name)} stands twice in one object")
        found[name] = value
    return found


def _unreadable(found: str, where: str) -> CacheError:
    return CacheError(
        "results that cannot be read",
        expected=f"{RESULTS} as 'gaam study --record' writes it",
        found=found,
        where=where,
        hint=HINT,
    )
