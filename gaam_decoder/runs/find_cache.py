"""Where the cache of a run is, also after one of the two was moved: found by its fingerprint."""

from __future__ import annotations

from pathlib import Path

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.errors import CacheError, ConfigError, GaamError, NotFoundError
from gaam_cache.format.plan import read_plan
from gaam_cache.messages.foreign_text import visible
from gaam_decoder.runs.result import RunResult

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
    if cache is not None:
        return _named(run, Path(cache).expanduser())
    fingerprint = run.cache["fingerprint"]
    found: dict[Path, GaamError | str] = {}
    for folder in places(run):
        try:
            other = read_plan(folder).fingerprint
            if other == fingerprint:
                return open_cache(folder)
            found[folder] = f"another cache, {other[:12]}"
        except GaamError as error:
            found[folder] = error
    raise _not_found(run, found)


def places(run: RunResult) -> list[Path]:
    """Folders in which the cache of a run may be, the likeliest first."""
    recorded = _recorded(run)
    names = [Path(recorded).name] if recorded else []
    # beside the folder of the runs, as it is called and as it is
    beside = [run.path.absolute().parent.parent, run.path.resolve().parent.parent]
    found = [Path(recorded)] if recorded else []
    found += [folder / name for folder in beside for name in (*names, USUAL_NAME)]
    return list(dict.fromkeys(found))


def _recorded(run: RunResult) -> str | None:
    """Where the cache was when the run was trained; run.json may say anything."""
    path = run.cache.get("path")
    return path if isinstance(path, str) and path.strip("\0 ") and "\0" not in path else None


def check_fingerprint(fingerprint: str, folder: Path) -> None:
    """Refuse a folder that holds another cache than that of a run.

    Raises:
        NotFoundError: no cache there.
        CacheError: another one, or its plan is unusable.
    """
    found = read_plan(folder).fingerprint
    if found != fingerprint:
        raise CacheError(
            "this is not the cache that the run was trained on",
            expected=f"fingerprint {fingerprint[:12]}",
            found=found[:12],
            where=visible(str(folder.absolute())),
            hint="name the folder of the cache with --cache",
        )


def _named(run: RunResult, folder: Path) -> EmbeddingCache:
    check_fingerprint(run.cache["fingerprint"], folder)
    return open_cache(folder)


def _not_found(run: RunResult, found: dict[Path, GaamError | str]) -> GaamError:
    lines = [f"{folder}: {_in_words(what)}" for folder, what in found.items()]
    absent = all(isinstance(what, NotFoundError) for what in found.values())
    kind: type[GaamError] = NotFoundError if absent else CacheError
    message = "the cache of the run is not where it was, nor beside the runs"
    if _recorded(run) is None:
        kind, message = ConfigError, "the run does not say where its cache is"
    return kind(
        message,
        expected=f"the cache with fingerprint {run.cache['fingerprint'][:12]}, "
        f"{run.cache['dataset']} through {run.cache['encoder']}",
        found=visible("\n".join(lines), keep="\n"),
        where=f"the run {visible(str(run.path.absolute()))}",
        hint="name the folder of the cache with --cache",
    )


def _in_words(what: GaamError | str) -> str:
    if isinstance(what, str):
        return what
    if isinstance(what, NotFoundError):
        return "no cache there"
    return " ".join(what.reason.split())
