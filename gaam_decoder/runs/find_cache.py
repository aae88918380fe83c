"""Where the cache of a run is, also after one of the two was moved: found by its fingerprint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.errors import CacheError, ConfigError, GaamError, NotFoundError
from gaam_cache.messages import visible
from gaam_cache.store.digest import short_digest
from gaam_cache.store.plan import Plan, read_plan
from gaam_decoder.runs.result import RunResult

T = TypeVar("T")
USUAL_NAME = "cache"
"""What ``gaam extract`` calls a cache where nobody says otherwise."""


def cache_of(run: RunResult, cache: str | Path | None = None) -> EmbeddingCache:
    """The complete cache that a run was trained on, and never another one.

    Without ``cache`` it is looked for where the run says that it was, and then beside the folder of
    the runs, under the name that it had and as ``cache``.

    Args:
        run: a finished run.
        cache: its folder; then it is looked for nowhere else.

    Raises:
        ConfigError: the run does not say where it was, and it is not beside the runs.
        NotFoundError: no cache at any of these places.
        CacheError: another cache, or one that is damaged or incomplete.
        StorageError: the one that was named cannot be read now.
    """
    return _found(run.cache, run.path, cache, open_cache)


def plan_of(about: Mapping[str, Any], path: Path, cache: str | Path | None = None) -> Plan:
    """The plan of that cache, all of whose shards need not be there; as ``cache_of`` otherwise.

    Args:
        about: what a run says of it, as ``RunResult.cache``.
        path: folder of the run.
        cache: see ``cache_of``.
    """
    return _found(about, path, cache, read_plan)


def _found(
    about: Mapping[str, Any], path: Path, cache: str | Path | None, read: Callable[[Path], T]
) -> T:
    if cache is not None:
        return read(_named(about, Path(cache).expanduser()))
    found: dict[Path, GaamError | str] = {}
    for folder in places(about, path):
        try:
            other = read_plan(folder).fingerprint
            if other == about["fingerprint"]:
                return read(folder)
            found[folder] = f"another cache, {short_digest(other)}"
        except GaamError as error:
            found[folder] = error
    raise _not_found(about, path, found)


def places(about: Mapping[str, Any], path: Path) -> list[Path]:
    """Folders in which the cache of a run may be, the likeliest first; see ``plan_of``."""
    recorded = _recorded(about)
    names = [Path(recorded).name] if recorded else []
    # beside the folder of the runs, as it is called and as it is
    beside = [path.absolute().parent.parent, path.resolve().parent.parent]
    found = [Path(recorded)] if recorded else []
    found += [folder / name for folder in beside for name in (*names, USUAL_NAME)]
    return list(dict.fromkeys(found))


def _recorded(about: Mapping[str, Any]) -> str | None:
    """Where the cache was when the run was trained; run.json may say anything."""
    path = about.get("path")
    return path if isinstance(path, str) and path.strip("\0 ") and "\0" not in path else None


def _named(about: Mapping[str, Any], folder: Path) -> Path:
    found = read_plan(folder).fingerprint
    if found != about["fingerprint"]:
        raise CacheError(
            "this is not the cache that the run was trained on",
            expected=f"fingerprint {short_digest(about['fingerprint'])}",
            found=short_digest(found),
            where=visible(str(folder.absolute())),
            hint="name the folder of the cache with --cache",
        )
    return folder


def _not_found(
    about: Mapping[str, Any], path: Path, found: dict[Path, GaamError | str]
) -> GaamError:
    lines = [f"{folder}: {_in_words(what)}" for folder, what in found.items()]
    absent = all(isinstance(what, NotFoundError) for what in found.values())
    kind: type[GaamError] = NotFoundError if absent else CacheError
    message = "the cache of the run is not where it was, nor beside the runs"
    if _recorded(about) is None:
        kind, message = ConfigError, "the run does not say where its cache is"
    return kind(
        message,
        expected=f"the cache with fingerprint {short_digest(about['fingerprint'])}",
        found=visible("\n".join(lines), keep="\n"),
        where=f"the run {visible(str(path.absolute()))}",
        hint="name the folder of the cache with --cache",
    )


def _in_words(what: GaamError | str) -> str:
    if isinstance(what, str):
        return what
    if isinstance(what, NotFoundError):
        return "no cache there"
    return " ".join(what.reason.split())
