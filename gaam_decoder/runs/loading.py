"""Load the finished runs of folders, and filter them."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gaam_cache.common import plugins
from gaam_cache.common.errors import CacheError, ConfigError, GaamWarning, NotFoundError
from gaam_cache.common.messages import brief
from gaam_cache.common.paths import absolute_path, shown_path, suggest_folder
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.store.files import DAMAGE, ElsewhereError, read_json
from gaam_cache.store.plan import PLAN_FILE, read_plan
from gaam_cache.workers.leases import holdings
from gaam_decoder.number_lists import parse_layer_sets, parse_rates
from gaam_decoder.runs.files import EXPORT_FILE, EXPORT_FORMAT, TEST_FILE
from gaam_decoder.runs.folders import (
    LEASE_FOLDER,
    is_run,
    run_folders,
    unfinished_folders,
    unfinished_name,
)
from gaam_decoder.runs.frame import frame_of_runs
from gaam_decoder.runs.read import read_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.specs import parse_plugin, parse_spec

if TYPE_CHECKING:
    import pandas

Texts = str | Sequence[str] | None
Filter = Callable[[RunResult], bool]
OPTIONS = {
    "attn": "--attn",
    "head": "--head",
    "layers": "--where layers",
    "lr": "--where lr",
    "cache": "--where cache",
}
"""Filters of runs, with their options on the command line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Which filters selected the runs of a report, and how many runs they left out."""

    filters: tuple[str, ...] = ()
    """The filters, as on the command line."""
    num_selected: int
    """Number of selected runs."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of runs that each filter left out; a run counts for its first filter.

    ``name`` counts the runs beside those that were named one by one.
    """
    lost_mechanisms: Mapping[str, str] = field(default_factory=dict)
    """Mechanisms without a selected run, with a filter that left out their runs."""

    @property
    def total(self) -> int:
        """Number of runs before the filters."""
        return self.num_selected + sum(self.left_out.values())

    def to_dict(self) -> dict[str, object]:
        """The selection as JSON values."""
        return {
            "asked": list(self.filters),
            "runs": self.num_selected,
            "of_runs": self.total,
            "left_out": dict(self.left_out),
            "mechanisms_left_out": sorted(self.lost_mechanisms),
        }

    def in_words(self) -> str:
        """The numbers of runs, and the filters."""
        text = f"{self.num_selected:,} of {self.total:,} runs"
        return f"{text} ({' '.join(self.filters)})" if self.filters else text


class _LeftOutRun(NamedTuple):
    """A run that does not pass the filters."""

    run: RunResult
    option: str
    """The option of the first filter that it failed, such as ``--head``."""


class Runs(list[RunResult]):
    """A list of runs, as ``train`` and ``load_runs`` return it.

    >>> len(runs.selected(attn="gaam").to_frame())
    3
    """

    selection: Selection | None = None
    """How the runs were selected; None where no filter was used."""
    others: Sequence[RunResult] = ()
    """Runs that filters left out: corrections for many comparisons count them."""

    def selected(self, **filters_by_name: Any) -> Runs:
        """The runs that pass all filters, which are those of ``load_runs``.

        The result records in ``selection`` and ``others`` which runs were left out.
        """
        filter_values = {
            name: list(value) if isinstance(value, (list, tuple)) else [value]
            for name, value in filters_by_name.items()
            if value not in (None, (), [])
        }
        if not filter_values:
            return self
        filters = {
            OPTIONS[name]: _make_filter(name, values, self)
            for name, values in filter_values.items()
        }

        selected = Runs()
        left_out: list[_LeftOutRun] = []
        for run in self:
            option = _first_failed(run, filters)
            if option is None:
                selected.append(run)
            else:
                left_out.append(_LeftOutRun(run, option))

        newly_left_out = [left_out_run.run for left_out_run in left_out]
        selected.others = [*self.others, *newly_left_out]
        words = [
            brief(f"{OPTIONS[name]} {value}")
            for name, values in filter_values.items()
            for value in values
        ]
        selected.selection = self._next_selection(selected, left_out, words)
        return selected

    def _next_selection(
        self,
        selected: Runs,
        left_out: Sequence[_LeftOutRun],
        words: Sequence[str],
    ) -> Selection:
        """The record of which runs filters selected and left out of these runs.

        These runs may be a selection already: then the earlier record is added.

        Args:
            selected: the runs that passed all filters.
            left_out: the other runs.
            words: the filters, as on the command line.
        """
        before = self.selection or Selection(num_selected=len(self))
        counts = Counter(left_out_run.option for left_out_run in left_out)
        selected_mechanisms = {run.attention for run in selected}
        lost_mechanisms = dict(before.lost_mechanisms)
        for left_out_run in left_out:
            mechanism = left_out_run.run.attention
            if mechanism not in selected_mechanisms:
                lost_mechanisms[mechanism] = left_out_run.option
        return Selection(
            filters=(*before.filters, *words),
            num_selected=len(selected),
            left_out=Counter(before.left_out) + counts,
            lost_mechanisms=lost_mechanisms,
        )

    def to_frame(self) -> pandas.DataFrame:
        """A row per run and seed; accuracies are fractions."""
        return frame_of_runs(self)


def _first_failed(run: RunResult, filters: Mapping[str, Filter]) -> str | None:
    """The option of the first filter that leaves out a run; None if it passes all."""
    for option, passes in filters.items():
        if not passes(run):
            return option
    return None


def _make_filter(name: str, values: list[Any], runs: Sequence[RunResult]) -> Filter:
    """A function that says whether a run passes a filter.

    Args:
        name: of the filter, a key of ``OPTIONS``.
        values: of which a run must have one.
        runs: all runs to filter.
    """
    if name == "cache":
        return _cache_filter(values[0])
    if name == "attn":
        specs = {run.attention for run in runs}
        attentions = _matching_specs(values, specs, "mechanism")
        return lambda run: run.attention in attentions
    if name == "head":
        specs = {run.head for run in runs}
        heads = _matching_specs(values, specs, "head")
        return lambda run: run.head in heads
    return _number_filter(name, values)


def _cache_filter(value: Any) -> Filter:
    """A filter by a cache's folder, or by the first digits of its fingerprint."""
    folder = absolute_path(value)
    digits = str(value).lower()
    if os.path.lexists(folder / PLAN_FILE):
        digits = read_plan(folder).fingerprint
    return lambda run: run.cache.fingerprint.startswith(digits)


def _matching_specs(texts: Sequence[str], specs: set[str], kind: str) -> set[str]:
    """The specs that texts name: ``gaam`` names ``gaam:heads=1``, too.

    Args:
        texts: names, or names with options; or ``FILE.py:CLASS`` with or without them.
        specs: mechanisms or heads of the runs.
        kind: mechanism or head.
    """
    matching: set[str] = set()
    for text in texts:
        spec_text = plugins.without_file(text)
        # a report can draw the gate of a class that a person named with its file
        if spec_text != text:
            parse_plugin(text, kind)
        specs_of_text = {spec for spec in specs if spec_text in (spec, _name_of(spec))}
        # Only a text that no run has as it is written is parsed, which spells it as
        # runs do: the runs of a plug-in can be filtered without the plug-in.
        if not specs_of_text:
            specs_of_text = {str(parse_plugin(text, kind))}
        matching |= specs_of_text
    return matching


def _name_of(spec: str) -> str:
    """The name of a mechanism or head without its options: gaam of gaam:heads=1."""
    name, _, _ = spec.partition(":")
    return name


def _number_filter(name: str, values: list[Any]) -> Filter:
    """A filter by learning rates or by sets of layers."""
    try:
        if name == "lr":
            rates = parse_rates(values)
            return lambda run: run.fit is None and run.recipe.lr in rates
        layer_sets = parse_layer_sets(values)
    except ValueError as error:
        raise ConfigError(
            f"{OPTIONS[name]} is out of range", expected=str(error), found=str(values)
        ) from error
    return lambda run: run.recipe.layers in layer_sets


def resolve_baseline(spec: str, specs: set[str]) -> str:
    """The spec among those of the runs that a user's ``--baseline`` names.

    If no run has it, the result is ``spec`` as runs spell it. ``gaam`` also names
    ``gaam:heads=1``, because gaam may have chosen the heads to fit.

    Args:
        spec: a name, or a name with options; or ``FILE.py:CLASS`` with or without them.
        specs: those of the runs.

    Raises:
        ConfigError: several specs of the runs have that name, or neither a run nor a
            mechanism has it.
    """
    spec = plugins.without_file(spec)
    if not any(spec in (known, _name_of(known)) for known in specs):
        spec = str(parse_spec(spec, "mechanism", "--baseline"))
    if spec in specs:
        return spec
    specs_of_name = sorted(known for known in specs if _name_of(known) == spec)
    if len(specs_of_name) > 1:
        raise ConfigError(
            f"--baseline {spec} is ambiguous",
            expected=f"one of: {', '.join(specs_of_name)}",
        )
    return specs_of_name[0] if specs_of_name else spec


def load_runs(
    path: str | Path | RunResult | Sequence[str | Path | RunResult],
    *,
    attn: Texts = None,
    head: Texts = None,
    layers: Texts = None,
    lr: Texts = None,
    cache: str | Path | None = None,
) -> Runs:
    """Load the finished runs of one or several folders, or single runs.

    Test results are hashed at once, and a damaged run is refused: a table without one
    of its runs would be another table. A run that is named twice is loaded once.

    >>> (run,) = gaam_decoder.load_runs("runs", attn="gaam")
    >>> run.accuracy.shape  # of every seed that finished
    (3,)

    Args:
        path: folders of runs, and runs, on disk or in memory.
        attn: mechanisms: ``gaam`` in every form, ``gaam:heads=1`` in that one.
        head: heads, in the same way.
        layers: sets of layers, such as ``1-8`` or ``all``.
        lr: learning rates, by value: ``3e-4``, ``1e-4,3e-4``.
        cache: folder of the cache, or the first digits of its fingerprint.

    Returns:
        A list with ``to_frame()``. Its ``selection`` says what was left out. A warning
        names unfinished runs.

    Raises:
        NotFoundError: no finished run there, or none passes the filters.
        ConfigError: a filter is invalid.
        CacheError: a run is damaged.
    """
    requested = [path] if isinstance(path, (str, Path, RunResult)) else path
    in_memory = [entry for entry in requested if isinstance(entry, RunResult)]
    on_disk = [entry for entry in requested if not isinstance(entry, RunResult)]
    paths = unique_paths(on_disk)
    found_runs = find_runs(paths)
    if found_runs.damaged:
        # 'gaam verify' lists them all; the first is enough to stop here.
        raise next(iter(found_runs.damaged.values()))
    if found_runs.unfinished:
        names = sorted({unfinished_name(folder) for folder in found_runs.unfinished})
        message = f"unfinished runs are left out: {brief(', '.join(names))}"
        warnings.warn(message, GaamWarning, stacklevel=2)

    # the same run in memory twice counts once
    runs = Runs([*found_runs.sound, *dict.fromkeys(in_memory)])
    # runs of the same folder that the user did not name count as left out
    num_unnamed = _count_unnamed(paths, runs)
    if num_unnamed:
        runs.selection = Selection(
            num_selected=len(runs), left_out={"name": num_unnamed}
        )
    # a result of this function knows already which runs were left out
    if isinstance(path, Runs):
        runs.selection = path.selection
        runs.others = path.others

    runs = runs.selected(attn=attn, head=head, layers=layers, lr=lr, cache=cache)
    if not runs:
        raise _no_run_left_error(runs.selection)
    return runs


def _no_run_left_error(selection: Selection | None) -> NotFoundError:
    """The error for filters that leave no run.

    Args:
        selection: says what the filters left out; None if they left out nothing.
    """
    return NotFoundError(
        "no run is left",
        found=selection.in_words() if selection else "none that is finished",
        hint="'gaam runs' lists all runs",
    )


def _count_unnamed(paths: Sequence[Path], runs: Sequence[RunResult]) -> int:
    """Number of runs that a user left out by naming single runs of a folder.

    Args:
        paths: that the user named: runs, and folders of runs.
        runs: that were loaded.
    """
    parents = {Path(os.path.realpath(path)).parent for path in paths if is_run(path)}
    neighbours = {
        Path(os.path.realpath(folder))
        for parent in parents
        for folder in run_folders(parent)
    }
    return len(neighbours - {Path(os.path.realpath(run.path)) for run in runs})


class FoundRuns(NamedTuple):
    """The runs in some folders."""

    sound: list[RunResult]
    damaged: dict[Path, CacheError]
    """What is wrong with each damaged run, by its folder."""
    unfinished: list[Path]
    """Folders of unfinished runs."""


def find_runs(
    paths: Sequence[Path],
    *,
    whole: bool = False,
    progress: ReportProgress = no_progress,
) -> FoundRuns:
    """Find runs, and hash their test results.

    Args:
        paths: runs, and folders of runs.
        whole: hash all files of every run.
        progress: called after each run.

    Raises:
        NotFoundError: a path is no run and has none.
    """
    # Folders by their real paths: a link and its target are one run.
    folders: dict[Path, Path] = {}
    unfinished: list[Path] = []
    for path in paths:
        run_paths = [path] if is_run(path) else run_folders(path)
        partial = unfinished_folders(path)
        # a training that has only begun has a lease, its announcement to others
        is_folder_of_runs = run_paths or partial or holdings(path / LEASE_FOLDER)
        if not is_folder_of_runs:
            raise _no_run_error(path)
        for folder in run_paths:
            folders.setdefault(Path(os.path.realpath(folder)), folder)
        unfinished += partial

    sound: list[RunResult] = []
    damaged: dict[Path, CacheError] = {}
    for number, folder in enumerate(folders.values(), start=1):
        try:
            sound.append(_read_and_hash(folder, whole=whole))
        except CacheError as error:
            damaged[folder] = error
        progress(number, len(folders), f"run {folder.name}")
    return FoundRuns(sound, damaged, unfinished)


def _read_and_hash(folder: Path, *, whole: bool) -> RunResult:
    """Read a run, and check the SHA-256 of its test results, or of all its files.

    Raises:
        CacheError: the run is damaged.
    """
    run = read_run(folder)
    names = run.files if whole else (TEST_FILE,)
    for name in names:
        # entering the block hashes the file
        with run.checked_file(name):
            pass
    return run


def unique_paths(paths: Sequence[str | Path]) -> list[Path]:
    """Absolute paths without repetitions; a link and its target are one."""
    unique: dict[Path, Path] = {}
    for path in paths:
        absolute = absolute_path(path)
        unique.setdefault(Path(os.path.realpath(absolute)), absolute)
    return list(unique.values())


def read_one_run(path: Path) -> RunResult:
    """Read a run folder; NotFoundError if it is none."""
    if not is_run(path):
        raise _no_run_error(path)
    return read_run(path)


def _is_to_suggest(folder: Path) -> bool:
    """Whether a folder is a run of reporting seeds, or has finished runs."""
    if not is_run(folder):
        return bool(run_folders(folder))
    try:
        return not read_run(folder).tuning_only
    except CacheError:
        return False


def _is_exported_decoder(folder: Path) -> bool:
    """Whether ``gaam export`` made the folder of a run."""
    try:
        settings = read_json(folder / EXPORT_FILE)
    except (*DAMAGE, OSError):
        return False
    return settings.get("format") == EXPORT_FORMAT


def _no_run_error(path: Path) -> NotFoundError:
    """The error for a path without a run; it suggests runs, or folders of runs."""
    runs_in_folder = [folder for folder in run_folders(path) if _is_to_suggest(folder)]
    hint = suggest_folder(path, _is_to_suggest, "gaam train")
    if path.is_symlink() and not path.exists():
        reason = str(ElsewhereError.from_link(path))
    elif runs_in_folder:
        reason = "a folder of runs"
        hint = f"name one of its runs, such as '{shown_path(runs_in_folder[0])}'"
    elif os.path.lexists(path / PLAN_FILE):
        reason = "a cache: 'gaam train --cache' makes runs of it"
    elif _is_exported_decoder(path):
        reason = "a decoder that 'gaam export' wrote: its card is README.md"
        hint = (
            f"gaam predict '{shown_path(path)}' 'A text', or gaam_decoder.load in "
            "Python"
        )
    elif path.is_dir():
        reason = "no run in it"
    else:
        reason = "no such folder"
    return NotFoundError(
        f"no finished run at '{shown_path(path)}'",
        expected="a run",
        found=reason,
        hint=hint,
    )
