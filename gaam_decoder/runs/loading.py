"""Runs of folders as a list: finding them, which of them are meant, and a table of pandas."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaam_cache import plugins
from gaam_cache.errors import CacheError, ConfigError, GaamWarning, NotFoundError
from gaam_cache.messages import brief, did_you_mean, shortened, visible
from gaam_cache.store.digest import short_digest
from gaam_cache.store.plan import PLAN_FILE, read_plan
from gaam_decoder.number_lists import DRAWN_BY, parse_layer_sets, parse_layers, parse_rates
from gaam_decoder.runs.folders import is_run, run_folders, unfinished_folders, work_of
from gaam_decoder.runs.result import RUN_FILE, TEST_FILE, RunResult, read_run
from gaam_decoder.runs.tuning import choose, first_runs, on_training_rows, reported
from gaam_decoder.specs import KINDS, parse_spec

if TYPE_CHECKING:
    import pandas

Texts = str | Sequence[str] | None
Progress = Callable[[int, int, str], None]
READERS = 4
"""Threads that hash: more do not pay, and each holds a file open."""
UNNAMED = "name"
"""What left out a run that lies beside those that were named one by one."""
OPTIONS = {"attn": "--attn", "head": "--head"} | {
    name: f"--where {name}" for name in ("layers", "lr", "cache")
}
"""Filters, and how the command line has them."""
SCORE_PACKAGE = "gaam_decoder.stats.scores"
SCORES = {name.replace("-", "_"): name for name in plugins.names(SCORE_PACKAGE)}
"""Every score that a report may compare, by its column."""
COLUMNS: dict[str, str] = {
    "run": "string",
    **dict.fromkeys(("attention", "head", "pool"), "category"),
    "layers": "string",
    **dict.fromkeys(("lr", "weight_decay"), "float64"),
    **dict.fromkeys(("loss", "select", "train_split", "test_split"), "category"),
    "fold": "string",
    **dict.fromkeys(("split_seed", *DRAWN_BY, "seed"), "Int64"),
    **dict.fromkeys(("counts", "tuning_seed"), "bool"),
    "failed": "string",
    "epoch": "Int64",
    "seconds": "float64",
    **dict.fromkeys(("evaluated", "on_training_rows", "shuffled_labels"), "bool"),
    "test_rows": "Int64",
    **dict.fromkeys(("accuracy", "macro_f1", *SCORES), "float64"),
    **dict.fromkeys(("selection_accuracy", "majority_accuracy"), "float64"),
    **dict.fromkeys(("parameters", "attention_parameters"), "Int64"),
    **dict.fromkeys(("dataset", "encoder", "fingerprint", "key"), "category"),
    "created": "datetime64[s, UTC]",
    "path": "string",
}
"""Names and types. ``layers`` and ``fold`` are missing where a run has all layers or no folds,
``train_rows`` and ``shots`` where it learned from all rows, ``lr``, ``weight_decay``, ``loss`` and
``epoch`` where a head is fitted at once, ``failed`` (why) where a seed finished, scores and
``majority_accuracy`` where a run was not evaluated. ``counts`` says whether a report takes the seed
from this run: not from a second one that has it too, nor from what chose a rate or was not chosen,
nor from a final model. A report weighs folds by their ``test_rows``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """That a report is of some runs only: what was asked for, and what that left out."""

    asked: tuple[str, ...] = ()
    """As the command line has it."""
    chosen: int
    """Runs."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Runs, by what left them out first."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Mechanisms of which no run is left, and what left out the last of them."""

    @property
    def total(self) -> int:
        """Runs that there are."""
        return self.chosen + sum(self.left_out.values())

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "asked": list(self.asked),
            "runs": self.chosen,
            "of_runs": self.total,
            "left_out": dict(self.left_out),
            "mechanisms_left_out": sorted(self.lost),
        }

    def left_out_in_words(self) -> str:
        """How many runs were left out by what; empty where none were."""
        by = {name: f"by {name}" for name in self.left_out} | {UNNAMED: "not named"}
        return ", ".join(f"{count:,} {by[name]}" for name, count in self.left_out.items())

    def in_words(self) -> str:
        """A line for people."""
        asked = f" ({' '.join(self.asked)})" if self.asked else ""
        left_out = f"; left out: {self.left_out_in_words()}" if self.left_out else ""
        return f"{self.chosen:,} of {self.total:,} runs{asked}{left_out}"


class Runs(list[RunResult]):
    """What ``train`` and ``load_runs`` return: a list.

    Args:
        runs: in order.
        selection: what was left out; None where nothing was asked for.
        others: the runs that filters left out, which a correction for many tests has to count.
    """

    def __init__(
        self,
        runs: Iterable[RunResult] = (),
        selection: Selection | None = None,
        others: Iterable[RunResult] = (),
    ) -> None:
        super().__init__(runs)
        self.selection = selection
        self.others = list(others)

    def selected(self, **asked: Any) -> Runs:
        """Those that are meant, as ``load_runs`` has it; NotFoundError where none is left."""
        runs, selection = select(self, self.selection, **asked)
        if selection is not None and not runs:
            raise NotFoundError(
                "no run is left",
                expected="runs that fit all filters",
                found=selection.in_words(),
                hint="'gaam runs' lists what there is",
            )
        kept = set(runs)
        return Runs(runs, selection, [*self.others, *(run for run in self if run not in kept)])

    def to_frame(self) -> pandas.DataFrame:
        """A row per run and seed, in the order of the runs and their seeds.

        Columns: see ``COLUMNS``. Accuracies are fractions; of a seed that failed, and of a run that
        was not evaluated, they are NaN.
        """
        import pandas

        from gaam_decoder.stats.scores._base import Answers

        of_key: dict[str, list[RunResult]] = {}
        for run in self:
            of_key.setdefault(run.key, []).append(run)
        counting = {key: first_runs(same) for key, same in of_key.items()}
        choice = choose(self)
        chosen = set(choice.runs)
        scores = {k: plugins.load(SCORE_PACKAGE, n, kind="score")() for k, n in SCORES.items()}
        rows: list[dict[str, Any]] = []
        for run in self:
            tested = run.finished_logits() if run.evaluated else ()
            answers = dict(zip(run.finished, tested, strict=run.evaluated))
            tuning = choice.tunings.get(run.key)
            reports = set(reported(run.seeds, tuning) if run in chosen and run.evaluated else ())
            # of the epoch or fit that was kept, on the rows that chose it
            log = run.log if run.finished else []
            kept = {e["seed"]: e for e in log if e["epoch"] == run.epochs[e["seed"]]}
            for seed in run.seeds:
                failed = run.failed.get(seed)
                row = {name: run.recipe.get(name) for name in COLUMNS} | {
                    **{name: run.cache[name] for name in ("dataset", "encoder", "fingerprint")},
                    **{n: getattr(run, n) for n in ("attention", "head", "key", "created")},
                    "run": run.path.name,
                    "evaluated": run.evaluated,
                    "on_training_rows": on_training_rows(run.recipe),
                    "shuffled_labels": run.shuffled,
                    "majority_accuracy": run.majority_accuracy,
                    "parameters": run.parameters["total"],
                    "attention_parameters": run.parameters["attention"],
                    "path": str(run.path.absolute()),
                    "seed": seed,
                    "tuning_seed": seed in run.tuning_seeds,
                    "failed": failed,
                    "epoch": None if failed is not None or run.fit else run.epochs[seed],
                    "seconds": run.seconds[seed],
                    "selection_accuracy": None if failed else kept.get(seed, {}).get("accuracy"),
                    "counts": counting[run.key][seed] is run and seed in reports,
                }
                if seed in answers:
                    answer = Answers(answers[seed], run.labels)
                    row |= {column: score.value(answer) for column, score in scores.items()}
                    row["test_rows"] = answer.num_rows
                rows.append(row)
        return pandas.DataFrame(rows, columns=list(COLUMNS), dtype=object).astype(COLUMNS)


def load_runs(
    path: str | Path | Sequence[str | Path],
    *,
    attn: Texts = None,
    head: Texts = None,
    layers: Texts = None,
    lr: Texts = None,
    cache: str | Path | None = None,
) -> Runs:
    """All finished runs below a folder, or the one run that ``path`` itself is; or of several.

    What was tested is hashed at once, and a damaged run refused: a table without one of its runs
    would be another table. A run that is named twice, by a link too, is there once.

    >>> (run,) = gaam_decoder.load_runs("runs", attn="gaam")
    >>> run.accuracy.shape  # of every seed that finished
    (3,)

    Args:
        path: folders of runs, and runs.
        attn: mechanisms that are meant: ``gaam`` in every form, ``gaam:heads=1`` in that one,
            ``gaam:`` in the one without options.
        head: the same of heads.
        layers: sets of layers that are meant, such as ``1-8`` or ``all``.
        lr: learning rates that are meant, by value: ``3e-4``, ``1e-4,3e-4``.
        cache: folder of the cache that is meant, or 4 or more digits of its fingerprint.

    Returns:
        A list with ``to_frame()``, which knows what was left out (``selection``).

    Raises:
        NotFoundError: no finished run there, or none that is meant.
        ConfigError: a filter that means nothing.
        CacheError: a damaged run, or none that is finished.
        StorageError: one that cannot be read now.

    Warns:
        GaamWarning: runs that are not finished.
    """
    paths = [Path(one).expanduser() for one in ([path] if isinstance(path, (str, Path)) else path)]
    runs, damaged, begun = find_runs(paths)
    if damaged:  # gaam verify lists them all
        raise next(iter(damaged.values()))
    if not runs:
        raise CacheError(
            f"no finished runs in '{paths[0]}'",
            found=f"{len(begun)} unfinished",
            hint="the same 'gaam train' again finishes them",
        )
    if begun:
        names = brief(", ".join(work_of(folder.name) for folder in begun))
        text = f"not among the runs, because they are not finished: {names}"
        warnings.warn(text, GaamWarning, stacklevel=2)
    # how many lie beside those that were named one by one
    parents = {path.resolve().parent for path in paths if is_run(path)}
    beside = {run.resolve() for parent in parents for run in run_folders(parent)}
    unnamed = len(beside - {run.path.resolve() for run in runs})
    selection = Selection(chosen=len(runs), left_out={UNNAMED: unnamed}) if unnamed else None
    found = Runs(runs, selection)
    return found.selected(attn=attn, head=head, layers=layers, lr=lr, cache=cache)


def gathered(runs: str | Path | RunResult | Sequence[str | Path | RunResult], **asked: Any) -> Runs:
    """Runs that are on disk or in memory, those that are meant; none of them twice."""
    several = [runs] if isinstance(runs, (str, Path, RunResult)) else runs
    paths = [one for one in several if not isinstance(one, RunResult)]
    found = load_runs(paths) if paths else Runs()
    found.extend(dict.fromkeys(one for one in several if isinstance(one, RunResult)))
    if not found:
        raise NotFoundError("nothing to report on", expected="one run or more", found="none")
    if isinstance(runs, Runs):
        found.selection, found.others = runs.selection, runs.others
    return found.selected(**asked)


def find_runs(
    paths: Sequence[Path], *, whole: bool = False, progress: Progress | None = None
) -> tuple[list[RunResult], dict[Path, CacheError], list[Path]]:
    """Finished runs, what is damaged, by folder, and folders of unfinished work; nothing twice."""
    found, begun = dict[Path, Path](), dict[Path, Path]()
    for place in paths:
        there = [place] if is_run(place) else run_folders(place)
        partial = [] if is_run(place) else unfinished_folders(place)
        if not there and not partial:
            raise _nothing(place, "no runs in", "a folder of runs, or a run")
        for path in there:
            found.setdefault(path.resolve(), path)
        for path in partial:
            begun.setdefault(path.resolve(), path)
    runs, damaged = check_all(list(found.values()), whole=whole, progress=progress)
    return runs, damaged, list(begun.values())


def one_run(path: Path) -> RunResult:
    """The finished run in a folder."""
    if not is_run(path):
        raise _nothing(path, "no finished run at", f"the folder of one run, with {RUN_FILE}")
    return read_run(path)


def _nothing(path: Path, message: str, expected: str) -> NotFoundError:
    """That there is no run where one was named, and which name was probably meant."""
    beside = [one.name for one in path.absolute().parent.glob("*") if one.is_dir()]
    return NotFoundError(
        visible(f"{message} '{path}'"),
        expected=expected,
        found="no run, finished or begun" if path.is_dir() else "no such folder",
        where=visible(str(path.absolute())),
        hint=did_you_mean(path.name, {*beside} - {path.name}) or "make one with 'gaam train'",
    )


def check_all(
    folders: Sequence[Path], *, whole: bool = False, progress: Progress | None = None
) -> tuple[list[RunResult], dict[Path, CacheError]]:
    """Runs whose test results, or ``whole``, are what was written; what is damaged, by folder."""

    def checked(path: Path) -> RunResult | CacheError:
        try:
            run = read_run(path)
            for name in run.files if whole else (TEST_FILE,):
                with run.reading(name):
                    pass
        except CacheError as error:
            return error
        return run

    sound, damaged = list[RunResult](), dict[Path, CacheError]()
    with ThreadPoolExecutor(READERS) as pool:
        for number, found in enumerate(pool.map(checked, folders), 1):
            path = folders[number - 1]
            if isinstance(found, RunResult):
                sound.append(found)
            else:
                damaged[path] = found
            if progress is not None:
                progress(number, len(folders), f"run {path.name}")
    return sound, damaged


def select(
    runs: Sequence[RunResult], before: Selection | None = None, **asked: Any
) -> tuple[list[RunResult], Selection | None]:
    """The runs that are meant, and what was left out by which filter.

    A run that several filters leave out counts for the first of them.

    Args:
        runs: all there are.
        before: what was left out already.
        asked: by names of ``OPTIONS``, as ``load_runs`` has them; None is no filter.

    Raises:
        ConfigError: a filter that means nothing.
    """
    given = {k: _several(asked[k]) for k in OPTIONS if asked.get(k) not in (None, (), [])}
    if not given:
        return list(runs), before
    fits = {OPTIONS[name]: _rule(name, values, runs) for name, values in given.items()}
    by = [(run, next((o for o, fit in fits.items() if not fit(run)), None)) for run in runs]
    chosen = [run for run, option in by if option is None]
    left = {run.attention for run in chosen}
    words = [f"{OPTIONS[k]} {text}" for k in ("attn", "head") for text in given.pop(k, ())]
    words += [f"{OPTIONS[k]}={','.join(map(str, values))}" for k, values in given.items()]
    before = before or Selection(chosen=len(runs))
    return chosen, Selection(
        asked=(*before.asked, *map(brief, words)),
        chosen=len(chosen),
        left_out=Counter(before.left_out) + Counter(option for _, option in by if option),
        lost={**before.lost, **{r.attention: o for r, o in by if o and r.attention not in left}},
    )


def _several(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _rule(
    name: str, given: tuple[Any, ...], runs: Sequence[RunResult]
) -> Callable[[RunResult], bool]:
    """What a run must be to be meant."""
    if name in ("attn", "head"):
        part, kind = ("attention", "mechanism") if name == "attn" else ("head", "head")
        meant = _specs(given, {getattr(run, part) for run in runs}, kind)
        return lambda run: getattr(run, part) in meant
    if name == "cache":
        digits = _fingerprint(str(given[0]), {run.cache["fingerprint"] for run in runs})
        return lambda run: run.cache["fingerprint"].startswith(digits)
    try:
        values = parse_rates(given) if name == "lr" else parse_layer_sets(given)
    except ValueError as error:
        found = f"'{shortened(','.join(map(str, given)))}'"
        message = f"--where {name} is out of range"
        raise ConfigError(message, expected=str(error), found=found) from error
    if name == "lr":
        return lambda run: run.recipe.get("lr") in values
    return lambda run: (
        (parse_layers(some) if (some := run.recipe.get("layers")) else None) in values
    )


def _specs(given: tuple[str, ...], there: set[str], kind: str) -> set[str]:
    """Of the specs that runs have, those that are meant."""
    package, option = KINDS[kind]
    meant = set()
    for text in map(str.strip, given):  # a plug-in need not be installed where its runs are
        forms = {spec for spec in there if text in (spec, spec.partition(":")[0])}
        if not forms and text not in plugins.names(package):
            forms = {str(parse_spec(text, kind, option))}
        meant |= forms
    return meant


def one_form(spec: str, there: set[str], option: str) -> str:
    """The spec that is meant, of those that runs have: heads may have been chosen by the encoder.

    Raises:
        ConfigError: the mechanism ``spec``, which ``option`` names, is there in several forms.
    """
    forms = sorted(one for one in there if one.partition(":")[0] == spec)
    if spec in there or not forms:
        return spec
    if len(forms) > 1:
        message = f"{option} {spec} may be any of several"
        raise ConfigError(message, expected=f"one of: {', '.join(forms)}")
    return forms[0]


def _fingerprint(text: str, there: set[str]) -> str:
    """The fingerprint of the cache in a folder, or the digits with which the one meant begins."""
    with suppress(OSError, ValueError):  # a name that no file can have
        if (folder := Path(text).expanduser()).joinpath(PLAN_FILE).is_file():
            return read_plan(folder).fingerprint
    digits = text.lower()
    fits = [one for one in there if one.startswith(digits)]
    if not re.fullmatch("[0-9a-f]{4,64}", digits) or len(fits) > 1:
        raise NotFoundError(
            f"--where cache names no cache, or several: '{shortened(text)}'",
            expected="the folder of a cache, or 4 or more digits that one fingerprint begins with",
            hint=f"the runs are of: {', '.join(sorted(short_digest(one) for one in there)[:9])}",
        )
    return digits
