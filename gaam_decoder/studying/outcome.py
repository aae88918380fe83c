"""A study as a whole: its commands, its reports, and whether they are what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines._ranks import Rank
from gaam_cache.store.files import check_file, check_folder
from gaam_decoder.reports.writing.unit import DEFAULT, Unit, score_of
from gaam_decoder.studying.asked_runs import check_runs, check_strangers
from gaam_decoder.studying.checking import Checked, compare
from gaam_decoder.studying.place import Place, own_rank
from gaam_decoder.studying.recipe import Study
from gaam_decoder.studying.record import RESULTS, recorded
from gaam_decoder.studying.results import PAGE, SEEDS, make, save
from gaam_decoder.studying.running import run


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came out, where it is, and what a check found."""

    study: str
    folder: Path
    found: dict[str, Any] | None
    """None of a rank that reports nothing."""
    rank: Rank | None = None
    """Of this process, where it is one of several."""
    written: tuple[Path, ...] = ()
    """Beside the recipe."""
    checked: Checked | None = None

    @property
    def exit_code(self) -> int:
        """1 where a check found differences."""
        return 1 if self.checked and self.checked.differences else 0

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        values: dict[str, Any] = {"folder": str(self.folder), "results": self.found}
        if self.rank is not None:
            values["rank"] = {"number": self.rank.number, "of": self.rank.total}
        if self.checked is not None:
            values["check"] = {
                "rows": self.checked.num_rows,
                "differences": list(self.checked.differences),
            }
        return values

    def in_words(self) -> str:
        """For people: what every report concludes, and where it stands whole."""
        if self.found is None:
            assert self.rank is not None
            return (
                f"rank {self.rank.number} of {self.rank.total} has done its part; rank 0 waits for "
                f"the others, and reports, records and checks"
            )
        lines = [
            f"{name}, {table['dataset']}: {table['conclusion']}"
            for name, tables in self.found["reports"].items()
            for table in tables
        ]
        lines.append(f"the page, {RESULTS}, the seeds and the pictures are in {self.folder}")
        if self.written:
            lines.append(f"recorded: {len(self.written)} files in {self.written[0].parent}")
        if self.checked is not None:
            lines += [f"differs: {line}" for line in self.checked.differences]
            number = len(self.checked.differences)
            told = (
                f"{number} difference{'s' * (number > 1)}"
                if number
                else "as recorded, within the tolerances"
            )
            lines.append(f"check of {self.checked.num_rows} rows: {told}")
        return "\n".join(lines)


def carry_out(
    study: Study,
    place: Place,
    *,
    check: bool,
    record: bool,
    quiet: bool,
    say: Callable[[str], None],
) -> Outcome:
    """Run what is missing, make the reports, and record them or compare them with the record.

    Of several ranks only the first does so, when the runs of all are there.

    Raises:
        NotFoundError: nothing is recorded that could be compared, or runs are missing.
        ConfigError: there are runs that the recipe does not ask for.
        StepError: a command failed.
        CacheError: what is recorded is of other states.
    """
    check_folder(place.out, option="--out")
    for name in (RESULTS, SEEDS, PAGE) if record else ():
        check_file(study.folder / name, option="STUDY")
    rank = own_rank(place)
    before = recorded(study) if check else None
    check_strangers(study, place)
    into = place.out / study.name
    run(study, place, rank=rank, quiet=quiet, say=say)
    if rank is not None and rank.number:
        return Outcome(study=study.name, folder=into, found=None, rank=rank)
    check_runs(study, place)
    found = make(study, place, into)
    return Outcome(
        study=study.name,
        folder=into,
        found=found,
        rank=rank,
        written=tuple(save(study, into)) if record else (),
        checked=_checked(study, before, found) if before is not None else None,
    )


def _checked(study: Study, before: dict[str, Any], found: dict[str, Any]) -> Checked:
    scores = {one.name: one.options.get("score", DEFAULT) for one in study.reports}
    units = {name: Unit(score_of(score)) for name, score in scores.items()}
    return compare(before, found, study.tolerances, units=units)
