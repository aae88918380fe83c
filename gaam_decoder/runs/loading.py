"""Finished runs as a list, of folders or one by one, and as a table of pandas."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaam_cache import plugins
from gaam_cache.errors import CacheError, ConfigError, GaamWarning, NotFoundError
from gaam_cache.messages import brief, did_you_mean, visible
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.runs.filters import UNNAMED, Selection, Texts, select
from gaam_decoder.runs.folders import is_run, run_folders, unfinished_folders, work_of
from gaam_decoder.runs.result import RUN_FILE, TEST_FILE, RunResult, read_run
from gaam_decoder.runs.tuning import choose, first_runs, on_training_rows, reported

if TYPE_CHECKING:
    import pandas

READERS = 4
"""Threads that hash: more do not pay, and each holds a file open."""
PACKAGE = "gaam_decoder.stats.scores"
SCORES = {name: name.replace("-", "_") for name in plugins.names(PACKAGE)}
"""Every score that a report may compare, and its column."""
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
    **dict.fromkeys(("accuracy", "macro_f1", *SCORES.values()), "float64"),
    **dict.fromkeys(("selection_accuracy", "majority_accuracy"), "float64"),
    **dict.fromkeys(("parameters", "attention_parameters"), "Int64"),
    **dict.fromkeys(("dataset", "encoder", "fingerprint", "key"), "category"),
    "created": "datetime64[s, UTC]",
    "path": "string",
}
"""Names and types. ``layers`` and ``fold`` are missing where a run has all layers or no folds,
``train_rows`` and ``shots`` where it learned from all rows, ``lr``, ``weight_decay``, ``loss`` and
``epoch`` where a head is fitted at once, ``failed`` (why) where a seed finished, scores and
``majority_accuracy`` where a run was not evaluated. ``parameters`` are all of a decoder, and
``on_training_rows`` and ``shuffled_labels`` mark what is no test accuracy. ``counts`` says whether
a report takes the seed from this run: not from a second one that has it too, nor from what chose a
rate or was not chosen, nor from a final model, which is not evaluated. A report weighs folds by
their ``test_rows``."""


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
        was not evaluated, they are NaN. Where several runs hold a seed, ``counts`` is true in one
        row: the one that reports are of.

        Raises:
            ConfigError: pandas is not installed.
            CacheError: a run is damaged.
        """
        try:
            import pandas
        except ImportError as error:
            message, hint = "a table of runs needs pandas", "pip install pandas"
            raise ConfigError(message, found=str(error), hint=hint) from error

        def readable(value: Any) -> Any:
            """Half a character, of a file name that is no UTF-8, fits in no column."""
            return value.encode(errors="replace").decode() if type(value) is str else value

        rows = [{name: readable(value) for name, value in row.items()} for row in records(self)]
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
    paths: Sequence[Path],
) -> tuple[list[RunResult], dict[Path, CacheError], list[Path]]:
    """Finished runs, what is damaged, by folder, and folders of unfinished work; nothing twice."""
    found, begun = dict[Path, Path](), dict[Path, Path]()
    for place in paths:
        runs = [place] if is_run(place) else run_folders(place)
        partial = [] if is_run(place) else unfinished_folders(place)
        if not runs and not partial:
            raise _nothing(place, "no runs in", "a folder of runs, or a run")
        for paths_of, there in ((runs, found), (partial, begun)):
            for path in paths_of:
                there.setdefault(path.resolve(), path)
    return *check_all(list(found.values())), list(begun.values())


def check_all(
    folders: Sequence[Path], *, whole: bool = False, done: Callable[[Path], None] | None = None
) -> tuple[list[RunResult], dict[Path, CacheError]]:
    """Runs whose test results, or ``whole``, are what was written; what is damaged, by folder."""

    def checked(path: Path) -> RunResult | CacheError:
        try:
            run = read_run(path)
            for name in run.files if whole else (TEST_FILE,):
                run.check_digest(name)
        except CacheError as error:
            return error
        return run

    runs, damaged = list[RunResult](), dict[Path, CacheError]()
    with ThreadPoolExecutor(READERS) as pool:
        for path, found in zip(folders, pool.map(checked, folders), strict=True):
            if done is not None:
                done(path)
            if isinstance(found, RunResult):
                runs.append(found)
            else:
                damaged[path] = found
    return runs, damaged


def records(runs: Sequence[RunResult]) -> Iterator[dict[str, Any]]:
    """A row per run and seed, by the names of ``COLUMNS``."""
    of_key: dict[str, list[RunResult]] = {}
    for run in runs:
        of_key.setdefault(run.key, []).append(run)
    counting = {key: first_runs(same) for key, same in of_key.items()}
    choice = choose(runs)
    chosen = set(map(id, choice.runs))
    for run in runs:
        of_run = {
            **{name: run.recipe.get(name) for name in COLUMNS},
            **{name: run.cache[name] for name in ("dataset", "encoder", "fingerprint")},
            **{k: getattr(run, k) for k in ("attention", "head", "key", "evaluated", "created")},
            "run": run.path.name,
            "on_training_rows": on_training_rows(run.recipe),
            "shuffled_labels": run.shuffled,
            "majority_accuracy": run.majority_accuracy,
            "parameters": run.parameters["total"],
            "attention_parameters": run.parameters["attention"],
            "path": str(run.path.absolute()),
        }
        scores = _scores(run)
        reports = set(reported(run.seeds, choice.tunings.get(run.key)) if id(run) in chosen else ())
        # of the epoch or fit that was kept, on the rows that chose it
        log = run.log if run.finished else []
        kept = {e["seed"]: e for e in log if e["epoch"] == run.epochs[e["seed"]]}
        for seed in run.seeds:
            failed = run.failed.get(seed)
            yield {
                **of_run,
                **scores.get(seed, {}),
                "seed": seed,
                "tuning_seed": seed in run.tuning_seeds,
                "failed": failed,
                "epoch": None if failed is not None or run.fit else run.epochs[seed],
                "seconds": run.seconds[seed],
                "selection_accuracy": None if failed else kept.get(seed, {}).get("accuracy"),
                "counts": run.evaluated and counting[run.key][seed] is run and seed in reports,
            }


def _scores(run: RunResult) -> dict[int, dict[str, float | None]]:
    """Every score of every finished seed; None where these rows and classes have none."""
    if not (run.evaluated and run.finished):
        return {}
    from gaam_decoder.stats.scores._base import Answers

    scores = {of: plugins.load(PACKAGE, name, kind="score")() for name, of in SCORES.items()}
    answers = [Answers(logits_NC, run.labels) for logits_NC in run.finished_logits()]
    return {
        seed: {of: score.value(one) for of, score in scores.items()} | {"test_rows": one.num_rows}
        for seed, one in zip(run.finished, answers, strict=True)
    }
