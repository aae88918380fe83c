"""Which runs are tested on the same rows, and which of them are the folds of one cross-validation.

Rows of different folds are different test rows. Where all folds of a mechanism are there, its test
rows are put one after the other, so that every row of the split is tested once, by decoders that
did not learn from it; else a fold is a table of its own. Cross-validations with other folds of the
same rows are repeats, and one table too.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gaam_cache.messages import brief
from gaam_cache.store.digest import digest_of
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.table.scores import Part
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import TUNED

SPLITTING = ("train_split", "groups", "split_seed")
"""Settings that, with the number of folds, decide which rows a fold holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TestedRows:
    """Rows of a table: for every mechanism and recipe its parts, and which rows test them."""

    where: str
    groups: tuple[tuple[Part, ...], ...]
    incomplete: tuple[str, ...] = ()
    """Of a whole cross-validation: what is not in it, because a fold is missing."""

    def majority_accuracy(self) -> float:
        """Accuracy of the majority class, over all folds if there are several."""
        runs = [part[0] for part in self.groups[0]]
        rows = [len(run.labels) for run in runs]
        right = sum((r.majority_accuracy or 0) * n for r, n in zip(runs, rows, strict=True))
        return right / sum(rows)


def by_test_rows(runs: Sequence[RunResult], apart: Container[str] = ()) -> list[TestedRows]:
    """Everything that may stand in one table; a fold alone where none has all folds.

    Args:
        runs: all of them.
        apart: keys whose numbers were chosen, and may be others in every fold.
    """
    found: dict[tuple[Any, ...], dict[str, list[RunResult]]] = {}
    for run in runs:
        found.setdefault(_place(run), {}).setdefault(run.key, []).append(run)
    whole = _whole(runs, apart)
    repeated = _repeated(whole, apart)
    tables = list(repeated.values())
    tables += [tested for key, tested in whole.items() if key[:-1] not in repeated]
    for by_key in found.values():
        parts = tuple(by_key.values())
        first = parts[0][0]
        fold = fold_of(first)
        if fold is None:
            where = f"test split '{first.recipe.get('test_split', 'test')}'"
        else:
            where = f"fold {fold[0]} of {fold[1]}{_split(first)}"
        if fold is None or _partition(first) not in whole:  # else a part of what is there
            tables.append(TestedRows(where=where, groups=tuple((part,) for part in parts)))
    return tables


def fold_of(run: RunResult) -> tuple[int, int] | None:
    """Number of the fold, from 1, and of all folds; the recipe has it as ``2/5``."""
    fold = run.recipe.get("fold")
    if fold is None:
        return None
    number, _, count = str(fold).partition("/")
    return int(number), int(count)


def _split(run: RunResult, *, split_seed: bool = True) -> str:
    """Of what the folds are, and what else decides which rows they hold."""
    text = f" of the '{run.recipe.get('train_split', 'train')}' split"
    if split_seed and (seed := run.recipe.get("split_seed")):
        text += f", split seed {seed}"
    if groups := run.recipe.get("groups"):
        text += f", groups {str(groups)[:8]} kept together"
    return text


def _place(run: RunResult) -> tuple[Any, ...]:
    """What runs must share to be tested on the same rows; labels alone may agree by accident."""
    names = (run.cache["fingerprint"], run.recipe.get("test_split"), fold_of(run))
    splitting = _partition(run) if fold_of(run) else ()
    labels = digest_of(run.labels.tobytes())
    return *names, *splitting, run.majority_accuracy, labels


def _partition(run: RunResult) -> tuple[str, ...]:
    """What runs must share to be folds of the same cross-validation."""
    _, count = fold_of(run) or (1, 1)
    splitting = [str(run.recipe.get(name)) for name in SPLITTING]
    return run.cache["fingerprint"], str(count), *splitting


def _name(run: RunResult, apart: Container[str], without: tuple[str, ...]) -> str:
    """What the folds of one row have in common."""
    left_out = (*without, *TUNED) if run.key in apart else without
    rest = sorted((k, str(v)) for k, v in run.recipe.items() if k not in left_out)
    return repr((run.attention, run.head, rest))


def _whole(runs: Sequence[RunResult], apart: Container[str]) -> dict[tuple[str, ...], TestedRows]:
    """For every way to split, the mechanisms and recipes of which all folds are there."""
    found: dict[tuple[str, ...], dict[str, dict[int, list[RunResult]]]] = {}
    for run in runs:
        if (fold := fold_of(run)) is not None:
            name = _name(run, apart, ("fold",))
            folds = found.setdefault(_partition(run), {}).setdefault(name, {})
            folds.setdefault(fold[0], []).append(run)
    whole = {}
    for key, by_name in found.items():
        groups: list[tuple[Part, ...]] = []
        incomplete = []
        for by_fold in by_name.values():
            first = next(iter(by_fold.values()))[0]
            _, count = fold_of(first) or (1, 1)
            if set(by_fold) == set(range(1, count + 1)):
                groups.append(tuple(by_fold[fold] for fold in sorted(by_fold)))
            else:
                incomplete.append(f"{_decoder(first)} ({len(by_fold)} of {count})")
        if groups:
            where = f"all {len(groups[0])} folds{_split(groups[0][0][0])}"
            whole[key] = TestedRows(
                where=where, groups=tuple(groups), incomplete=tuple(sorted(incomplete))
            )
    return whole


def _repeated(
    whole: Mapping[tuple[str, ...], TestedRows], apart: Container[str]
) -> dict[tuple[str, ...], TestedRows]:
    """Cross-validations that differ in their folds alone: the mechanisms that all of them have.

    By what they have in common, ``_partition`` without its last, the split seed.
    """
    found: dict[tuple[str, ...], dict[str, dict[str, tuple[Part, ...]]]] = {}
    for (*common, split_seed), tested in whole.items():
        by_name = found.setdefault(tuple(common), {})
        for parts in tested.groups:
            if all(part[0].test_rows is not None for part in parts):
                name = _name(parts[0][0], apart, ("fold", "split_seed"))
                by_name.setdefault(name, {})[split_seed] = parts
    repeated = {}
    for key, by_name in found.items():
        seeds = {seed for by_seed in by_name.values() for seed in by_seed}
        if len(seeds) < 2:
            continue
        groups = []
        incomplete = []
        for by_seed in by_name.values():
            parts = tuple(part for seed in sorted(by_seed, key=int) for part in by_seed[seed])
            if set(by_seed) == seeds:
                groups.append(parts)
            else:
                name = _decoder(parts[0][0])
                incomplete.append(f"{name} ({len(by_seed)} of {len(seeds)} repeats)")
        if groups:
            spelt = spell_numbers(sorted(map(int, seeds)))
            of = _split(groups[0][0][0], split_seed=False)
            repeated[key] = TestedRows(
                where=f"{len(seeds)} times {key[1]} folds{of}, split seeds {spelt}",
                groups=tuple(groups),
                incomplete=tuple(sorted(incomplete)),
            )
    return repeated


def _decoder(run: RunResult) -> str:
    return f"{brief(run.attention)} + {brief(run.head)}"
