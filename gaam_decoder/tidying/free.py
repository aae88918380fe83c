"""Whether runs may be taken away from where they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gaam_cache.errors import CacheError, ConfigError
from gaam_cache.messages import brief, visible
from gaam_decoder.runs.run_checks import ALL_FILES
from gaam_decoder.runs.run_files import reading
from gaam_decoder.runs.run_name import key_digits
from gaam_decoder.runs.run_reader import RUN_FILE, read_run
from gaam_decoder.tidying.at_work import at_work, trains

OWN_FILES = {RUN_FILE, *ALL_FILES}
"""What a run consists of; anything else in its folder was put there by somebody."""


def check_free(folders: Sequence[Path]) -> None:
    """Refuse runs that somebody works on or in, and folders in which other things lie.

    Raises:
        ConfigError: naming the first, and how many more there are.
        StorageError: a folder that cannot be read.
    """
    here = Path.cwd().resolve()
    working = {parent: at_work(parent) for parent in {folder.parent for folder in folders}}
    reasons: dict[Path, str] = {}
    for folder in folders:
        digits = _digits(folder)
        held = [one for one in working[folder.parent] if digits and trains(digits)(one)]
        if held:
            reasons[folder] = f"a training of it is at work: {held[0].in_words()}"
        elif here.is_relative_to(folder):
            reasons[folder] = "it is the current folder, or holds it"
        elif others := _others(folder):
            reasons[folder] = f"other things lie in it: {brief(', '.join(others))}"
    if reasons:
        first, why = next(iter(reasons.items()))
        more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        raise ConfigError(
            f"'{brief(first.name)}' must stay as it is{more}",
            expected="runs that nobody is at work on or in, with nothing but their own files",
            found=visible(why),
            where=visible(str(first)),
            hint="wait for the training, leave the folder, or move the other things away",
        )


def _digits(folder: Path) -> str | None:
    try:
        return read_run(folder).key
    except CacheError:
        return key_digits(folder.name)


def _others(folder: Path) -> list[str]:
    with reading(folder / RUN_FILE):
        found = {path.name: path for path in folder.iterdir()}
    strange = found.keys() - OWN_FILES
    strange |= {name for name, path in found.items() if path.is_dir() and not path.is_symlink()}
    return sorted(strange)
