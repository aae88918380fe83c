"""Runs of folders as a list: finding them, which of them are meant, and a table of pandas."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaam_cache.common import plugins
from gaam_cache.common.errors import CacheError, ConfigError, GaamWarning, NotFoundError
from gaam_cache.common.messages import brief, did_you_mean
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.store.files import ElsewhereError
from gaam_cache.store.plan import PLAN_FILE, read_plan
from gaam_cache.workers.leases import holdings
from gaam_decoder.number_lists import parse_layer_sets, parse_rates
from gaam_decoder.runs.folders import (
    LEASE_FOLDER,
    is_run,
    run_folders,
    unfinished_folders,
)
from gaam_decoder.runs.result import TEST_FILE, RunResult, read_run
from gaam_decoder.runs.tuning import (
    HELD,
    choose,
    first_runs,
    on_training_rows,
    reported,
)
from gaam_decoder.specs import parse_spec

if TYPE_CHECKING:
    import pandas

Texts = str | Sequence[str] | None
Progress = Callable[[int, int, str], None]
OPTIONS = {"attn": "--attn", "head": "--head"}
OPTIONS |= {
    name: f"--where {name}" for name in ("layers", "lr", "cache")
}  # that filter runs
SCORE_PACKAGE = "gaam_decoder.stats.scores"
SCORES = {name.replace("-", "_"): name for name in plugins.names(SCORE_PACKAGE)}
"""Every score that a report may compare, by its column."""
_TYPES = {
    "string": "run decoder attention head pool layers loss select train_split test_split fold "
    "failed dataset encoder fingerprint key path",
    "float64": f"lr weight_decay {' '.join(SCORES)} selection_accuracy majority_accuracy seconds",
    "Int64": "seed epoch train_rows shots split_seed test_rows parameters attention_parameters",
    "bool": "counts tuning_seed evaluated on_training_rows shuffled_labels",
    "datetime64[s, UTC]": "created",
}
COLUMNS = {name: kind for kind, names in _TYPES.items() for name in names.split()}
"""Columns of a frame and their types; missing is what a run or seed does not have. ``decoder`` has
a name for each of them; ``counts`` says whether a report takes the seed from this run; it weighs
folds by their ``test_rows``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """That a report is of some runs only: what was asked for, and what that left out."""

    asked: tuple[str, ...] = ()  # as the command line has it
    chosen: int  # runs
    # runs, by what left them out first; ``name``: they lie beside those that were named
    left_out: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, str] = field(
        default_factory=dict
    )  # mechanisms, by what left out the last

    @property
    def total(self) -> int:
        return self.chosen + sum(self.left_out.values())

    def to_dict(self) -> dict[str, Any]:
        counts = {
            "runs": self.chosen,
            "of_runs": self.total,
            "left_out": dict(self.left_out),
        }
        return {
            "asked": list(self.asked),
            **counts,
            "mechanisms_left_out": sorted(self.lost),
        }

    def in_words(self) -> str:
        text = f"{self.chosen:,} of {self.total:,} runs"
        return f"{text} ({' '.join(self.asked)})" if self.asked else text


class Runs(list[RunResult]):
    """What ``train`` and ``load_runs`` return: a list.

    >>> len(runs.selected(attn="gaam").to_frame())
    3
    """

    selection: Selection | None = (
        None  # what was left out; None where nothing was asked for
    )
    others: Sequence[
        RunResult
    ] = ()  # that filters left out: a correction has to count them

    def selected(self, **asked: Any) -> Runs:
        """Those that are meant, as ``load_runs`` has it, and what was left out by which filter."""
        given = {k: v for k, v in asked.items() if v not in (None, (), [])}
        if not given:
            return self
        given = {
            k: v if isinstance(v, (list, tuple)) else [v] for k, v in given.items()
        }
        fits = {
            OPTIONS[name]: _rule(name, values, self) for name, values in given.items()
        }
        # a run that several filters leave out counts for the first of them
        by = [
            (run, next((o for o, fit in fits.items() if not fit(run)), ""))
            for run in self
        ]
        before = self.selection or Selection(chosen=len(self))
        words = [f"{OPTIONS[k]} {v}" for k, values in given.items() for v in values]
        found = Runs(run for run, option in by if not option)
        found.others = [*self.others, *(run for run, option in by if option)]
        there = {run.attention for run in found}
        found.selection = Selection(
            asked=(*before.asked, *map(brief, words)),
            chosen=len(found),
            left_out=Counter(before.left_out)
            + Counter(option for _, option in by if option),
            lost={
                **before.lost,
                **{r.attention: o for r, o in by if r.attention not in there},
            },
        )
        return found

    def to_frame(self) -> pandas.DataFrame:
        """A row per run and seed, in their order, with ``COLUMNS``; accuracies are fractions."""
        import pandas

        from gaam_decoder.stats.scores.base import Answers

        counting = {
            run.key: first_runs(r for r in self if r.key == run.key) for run in self
        }
        chosen = set((choice := choose(self)).runs)
        scores = {
            k: plugins.load(SCORE_PACKAGE, n, kind="score")() for k, n in SCORES.items()
        }
        decoders = _decoders(self)
        rows: list[dict[str, Any]] = []
        for run in self:
            answers = {}
            if run.evaluated:
                answers = dict(zip(run.finished, run.finished_logits(), strict=True))
            meant = run.seeds if run in chosen else ()
            reports = reported(meant, choice.tunings.get(run.key))
            # of the epoch or fit that was kept, on the rows that chose it
            log, epochs = run.log if run.finished else [], run.epochs
            kept = {
                e["seed"]: e.get("accuracy")
                for e in log
                if e["epoch"] == epochs[e["seed"]]
            }
            of_run = (
                "attention",
                "head",
                "key",
                "created",
                "evaluated",
                "majority_accuracy",
            )
            shared = {name: getattr(run, name) for name in of_run}
            shared |= {
                name: run.cache[name] for name in ("dataset", "encoder", "fingerprint")
            }
            shared |= {
                name: value for name, value in run.recipe.items() if name in COLUMNS
            }
            shared |= {
                "run": run.path.name,
                "decoder": decoders[run.key],
                "path": str(run.path),
                "on_training_rows": on_training_rows(run.recipe),
                "shuffled_labels": run.shuffled,
                "parameters": run.parameters["total"],
                "attention_parameters": run.parameters["attention"],
            }
            for seed in run.seeds:
                failed = run.failed.get(seed)
                row = shared | {
                    "seed": seed,
                    "tuning_seed": seed in run.tuning_seeds,
                    "failed": failed,
                    "epoch": None if failed or run.fit else run.epochs[seed],
                    "seconds": run.seconds[seed],
                    "selection_accuracy": None if failed else kept.get(seed),
                    "counts": run.evaluated
                    and counting[run.key][seed] is run
                    and seed in reports,
                }
                if seed in answers:
                    answer = Answers(answers[seed], run.labels)
                    row |= {
                        column: score.value(answer) for column, score in scores.items()
                    }
                    row["test_rows"] = answer.num_rows
                rows.append(row)
        return pandas.DataFrame(rows, columns=list(COLUMNS), dtype=object).astype(
            COLUMNS
        )


def _decoders(runs: Sequence[RunResult]) -> dict[str, str]:
    """By key the title, with settings (but ``HELD``) in which others of that title differ."""
    recipes: dict[str, dict[str, dict[str, Any]]] = {}
    for run in runs:
        recipe = run.recipe | {"cache": run.states[:12], HELD: None}
        recipes.setdefault(run.title, {})[run.key] = recipe
    found = {}
    for title, of_key in recipes.items():
        names = sorted({name for recipe in of_key.values() for name in recipe})
        apart = [
            n for n in names if len({str(of.get(n)) for of in of_key.values()}) > 1
        ]
        for key, recipe in of_key.items():
            told = [f"{n.replace('_', ' ')} {recipe[n]}" for n in apart if n in recipe]
            found[key] = ", ".join([title, *told])
    return found


def _rule(
    name: str, given: list[Any], runs: Sequence[RunResult]
) -> Callable[[RunResult], bool]:
    if name == "cache":
        folder = absolute_path(given[0])
        there = os.path.lexists(folder / PLAN_FILE)
        digits = read_plan(folder).fingerprint if there else str(given[0]).lower()
        return lambda run: run.cache["fingerprint"].startswith(digits)
    if name in ("attn", "head"):
        part, kind = ("attention", "mechanism") if name == "attn" else ("head", "head")
        specs, meant = {getattr(run, part) for run in runs}, set[str]()
        for text in given:  # a plug-in need not be installed where its runs are
            forms = {spec for spec in specs if text in (spec, spec.partition(":")[0])}
            meant |= forms or {str(parse_spec(text, kind, OPTIONS[name]))}
        return lambda run: getattr(run, part) in meant
    try:
        values = parse_rates(given) if name == "lr" else parse_layer_sets(given)
    except ValueError as error:
        message = f"{OPTIONS[name]} is out of range"
        raise ConfigError(message, expected=str(error), found=str(given)) from error
    if name == "lr":
        return lambda run: run.recipe.get("lr") in values
    return lambda run: parse_layer_sets(run.recipe.get("layers"))[0] in values


def one_form(spec: str, there: set[str], option: str) -> str:
    """The spec that is meant, of those that runs have: its heads may have been chosen to fit."""
    forms = sorted(one for one in there if one.partition(":")[0] == spec)
    if spec not in there and len(forms) > 1:
        message = f"{option} {spec} may be any of several"
        raise ConfigError(message, expected=f"one of: {', '.join(forms)}")
    return spec if spec in there or not forms else forms[0]


def load_runs(
    path: str | Path | RunResult | Sequence[str | Path | RunResult],
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
        path: folders of runs, and runs, on disk or in memory.
        attn: mechanisms that are meant: ``gaam`` in every form, ``gaam:heads=1`` in that one.
        head: the same of heads.
        layers: sets of layers that are meant, such as ``1-8`` or ``all``.
        lr: learning rates that are meant, by value: ``3e-4``, ``1e-4,3e-4``.
        cache: folder of the cache that is meant, or what its fingerprint begins with.

    Returns:
        A list with ``to_frame()``, which knows what was left out (``selection``). A warning names
        runs that are not finished.

    Raises:
        NotFoundError: no finished run there, or none that is meant.
        ConfigError: a filter that means nothing.
        CacheError: a damaged run.
    """
    several = [path] if isinstance(path, (str, Path, RunResult)) else path
    paths = once([one for one in several if not isinstance(one, RunResult)])
    sound, damaged, begun = find_runs(paths)
    if damaged:  # gaam verify lists them all
        raise next(iter(damaged.values()))
    found = Runs(
        [*sound, *dict.fromkeys(one for one in several if isinstance(one, RunResult))]
    )
    if begun:
        names = brief(", ".join(sorted({folder.stem[1:] for folder in begun})))
        warnings.warn(f"not finished, and left out: {names}", GaamWarning, stacklevel=2)
    # how many lie beside those that were named one by one
    parents = {Path(os.path.realpath(path)).parent for path in paths if is_run(path)}
    beside = {
        Path(os.path.realpath(run)) for parent in parents for run in run_folders(parent)
    }
    if unnamed := len(beside - {Path(os.path.realpath(run.path)) for run in found}):
        found.selection = Selection(chosen=len(found), left_out={"name": unnamed})
    if isinstance(path, Runs):
        found.selection, found.others = path.selection, path.others
    found = found.selected(attn=attn, head=head, layers=layers, lr=lr, cache=cache)
    if not found:
        words = (
            found.selection.in_words() if found.selection else "none that is finished"
        )
        raise NotFoundError(
            "no run is left", found=words, hint="'gaam runs' lists what there is"
        )
    return found


def find_runs(
    paths: Sequence[Path],
    *,
    whole: bool = False,
    progress: Progress = lambda done, total, text: None,
) -> tuple[list[RunResult], dict[Path, CacheError], list[Path]]:
    """Finished runs of which the test results, or ``whole``, are sound, damaged ones, and begun."""
    found, begun = dict[Path, Path](), list[Path]()
    for place in paths:
        there = [place] if is_run(place) else run_folders(place)
        partial = unfinished_folders(place)
        if not (there or partial or holdings(place / LEASE_FOLDER)):
            raise _nothing(place)
        for path in there:
            found.setdefault(Path(os.path.realpath(path)), path)
        begun += partial
    sound, damaged = list[RunResult](), dict[Path, CacheError]()
    for number, path in enumerate(found.values(), 1):
        try:
            run = read_run(path)
            for name in run.files if whole else (TEST_FILE,):
                with run.reading(name):
                    pass
            sound.append(run)
        except CacheError as error:
            damaged[path] = error
        progress(number, len(found), f"run {path.name}")
    return sound, damaged, begun


def once(paths: Sequence[str | Path]) -> list[Path]:
    """Folders as absolute paths, each once, however often and by whatever links it is named."""
    found = dict[Path, Path]()
    for path in map(absolute_path, paths):
        found.setdefault(Path(os.path.realpath(path)), path)
    return list(found.values())


def one_run(path: Path) -> RunResult:
    if not is_run(path):
        raise _nothing(path)
    return read_run(path)


def _nothing(path: Path) -> NotFoundError:
    beside = {one.name for one in path.absolute().parent.glob("*") if one.is_dir()} - {
        path.name
    }
    found = "no run in it" if path.is_dir() else "no such folder"
    if path.is_symlink() and not path.exists():
        found = str(ElsewhereError.from_link(path))
    hint = did_you_mean(path.name, beside) or "make one with 'gaam train'"
    return NotFoundError(
        f"no finished run at '{shown_path(path)}'",
        expected="a run",
        found=found,
        hint=hint,
    )
