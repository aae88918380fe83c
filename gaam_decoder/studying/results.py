"""What came out of a study: ``results.json``, ``seeds.csv``, pictures and a page.

Everything is written from the reports, which are those of ``gaam report``; nothing by hand.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gaam_cache
from gaam_cache.cache import open_cache
from gaam_cache.errors import NotFoundError
from gaam_cache.store.files import write_file
from gaam_decoder.reports.report import Report, report
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.final_models import all_runs
from gaam_decoder.runs.loading import COLUMNS, records
from gaam_decoder.studying.page import page, pictures
from gaam_decoder.studying.place import Place
from gaam_decoder.studying.recipe import Asked, Study
from gaam_decoder.studying.record import DIGEST, FILES, RESULTS, digest, digest_of_file
from gaam_decoder.studying.running import arguments, typed

SEEDS, PAGE = "seeds.csv", "README.md"
LEFT_OUT = ("seconds", "created", "path")
"""Columns of a table of runs that ``seeds.csv`` has not: they are no result."""
SECTIONS = ("pairs", "omnibus", "gates", "axes", "importance")
"""Of a report, whose first line is kept."""
COMPARED = (
    *("baseline", "difference", "ci95_seeds_and_rows", "p", "p_holm", "verdict"),
    *("margin", "within_margin", "p_equivalent_holm", "on_these_test_rows"),
)
MACHINE = ("cpu", "cpus", "device", "threads", "torch")
"""Of what a run says of its environment: what decides the last digits of a sum."""
RECIPE = ("select", "layers", "train_rows", "shots", "pool", "epochs", "dtype")


@dataclass(frozen=True, slots=True)
class Made:
    """A report of a study and what it was asked."""

    asked: Asked
    report: Report
    words: str
    """The command."""


def make(study: Study, place: Place, into: Path) -> dict[str, Any]:
    """Make all reports of a study and write everything that came out of it.

    Args:
        study: whose runs are there.
        place: where they are.
        into: folder of the files; what is there of them is replaced.

    Returns:
        What ``results.json`` holds.

    Raises:
        NotFoundError: runs are missing.
        StorageError: the file system refused.
    """
    made = [_made(asked, study, place) for asked in study.reports]
    found = {
        "study": study.name,
        "title": study.title,
        "gaam": gaam_cache.__version__,
        "machines": _machines(made),
        "caches": {name: open_cache(place.cache(name)).fingerprint for name in study.caches},
        "reports": {one.asked.name: [_table(table) for table in one.report.tables] for one in made},
    }
    kept: dict[str, Any] = json.loads(json.dumps(_anonymous(found, place), allow_nan=False))
    files = {SEEDS: _anonymous(_seeds(made), place).encode()}
    for one in made:
        files |= dict(pictures(one.asked.name, one.report.tables))
    drawn = [name for name in files if name.endswith(".svg")]
    for stale in {path.name for path in into.glob("*.svg")} - set(drawn):
        (into / stale).unlink()
    public = Place(out=place.out)  # without the options of this machine
    commands = [typed(arguments(step, study, public)) for step in study.steps]
    whole = page(study, commands, [(one.asked, one.report, one.words) for one in made], drawn)
    files[PAGE] = _anonymous(whole, place).encode()
    for name, content in files.items():
        write_file(into / name, content)
    kept[FILES] = {name: digest_of_file(content) for name, content in files.items()}
    kept[DIGEST] = digest(kept)
    write_file(into / RESULTS, (json.dumps(kept, indent=1) + "\n").encode())
    return kept


def save(study: Study, made: Path) -> list[Path]:
    """Copy what came out of a study beside its recipe; pictures that it has no more are removed.

    Raises:
        StorageError: the file system refused.
    """
    files = [made / RESULTS, made / SEEDS, made / PAGE, *sorted(made.glob("*.svg"))]
    for stale in {p.name for p in study.folder.glob("*.svg")} - {p.name for p in files}:
        (study.folder / stale).unlink()
    for path in files:
        write_file(study.folder / path.name, path.read_bytes())
    return [study.folder / path.name for path in files]


def _made(asked: Asked, study: Study, place: Place) -> Made:
    folders = [place.runs(name) for name in (study.name, *asked.studies)]
    for folder, name in zip(folders, (study.name, *asked.studies), strict=True):
        if not folder.is_dir():
            raise NotFoundError(
                f"no runs of the study '{name}'",
                expected=str(folder),
                hint=f"gaam study {name} --out {place.out} makes them",
            )
    options = dict(asked.options)
    words = ["gaam", "report", *map(str, folders), *_words(options, asked.cache, place)]
    if asked.cache is not None:
        options["cache"] = place.cache(asked.cache)
    found = report(folders, **{name: _value(value) for name, value in options.items()})
    return Made(asked, found, " ".join(words))


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _words(options: dict[str, Any], cache: str | None, place: Place) -> Iterator[str]:
    if cache is not None:
        yield from ("--where", f"cache={place.cache(cache)}")
    for name, value in options.items():
        if name in ("sort", "tune_seeds"):
            continue  # of Python and recipes alone
        option = "--all" if name == "every_candidate" else f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            yield from [option] if value else []
        else:
            for one in value if isinstance(value, list) else [value]:
                yield from (
                    ("--where", f"{name}={one}") if name in ("layers", "lr") else (option, str(one))
                )


def _table(table: Table) -> dict[str, Any]:
    """What a reader and a check need of a table; fractions."""
    whole = table.to_dict()
    rows = []
    for label, row in zip(table.labels(), whole["rows"], strict=True):
        compared = row["comparison"] or {}
        rows.append(
            {
                "label": label,
                "attention": row["attention"],
                "head": row["head"],
                **{name: row["recipe"].get(name) for name in RECIPE},
                "tuned": [one["chosen"] for one in row["tuning"] or []],
                "lr": row["recipe"].get("lr"),
                "seeds": row["seeds"],
                "failed_seeds": row["failed_seeds"],
                "accuracy": row["accuracy"],
                "ci95_seeds_and_rows": row["accuracy_ci95_seeds_and_rows"],
                "macro_f1": (row["macro_f1"] or {}).get("mean"),
                "parameters": row["parameters"],
                "undertrained": row["undertrained"],
                "comparison": {name: compared.get(name) for name in COMPARED} if compared else None,
            }
        )
    from gaam_decoder.reports.notes.claims import claims, conclusion
    from gaam_decoder.reports.writing.section import sections

    return {
        "cache": table.cache["fingerprint"],
        "encoder": table.cache["encoder"],
        "dataset": table.cache["dataset"],
        "tested_on": table.where,
        "rows_of": table.cache["rows"],
        "baseline": whole["baseline"],
        "conclusion": conclusion(table),
        "claims": claims(table),
        "sections": {found.name: found.lead for found in sections(table) if found.name in SECTIONS},
        "rows": rows,
    }


def _machines(made: list[Made]) -> list[dict[str, Any]]:
    """Those that trained what is reported, each once; of earlier runs the CPU has no name."""
    environments = [
        run.environment for one in made for table in one.report.tables for run in all_runs(table)
    ]
    found = [{name: one.get(name) for name in MACHINE} for one in environments]
    return [json.loads(text) for text in sorted({json.dumps(one) for one in found})]


def _seeds(made: list[Made]) -> str:
    """A line for every seed of every run of every report, as ``load_runs().to_frame()`` has it."""
    stream = io.StringIO()
    columns = ["report", *(name for name in COLUMNS if name not in LEFT_OUT)]
    writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for one in made:
        runs = dict.fromkeys(run for table in one.report.tables for run in all_runs(table))
        writer.writerows({"report": one.asked.name, **row} for row in records(list(runs)))
    return stream.getvalue()


def _anonymous(value: Any, place: Place) -> Any:
    """The same without paths of this machine: of each its last part stays."""
    if isinstance(value, dict):
        return {key: _anonymous(one, place) for key, one in value.items()}
    if isinstance(value, list):
        return [_anonymous(one, place) for one in value]
    if isinstance(value, str):
        for path in (place.dataset, place.out):
            # a name alone, or '.', is no path of a machine, and may be part of anything
            if path is not None and Path(path).is_absolute() and Path(path).name:
                for spelled in (str(path), str(path).replace("_", r"\_")):  # of Markdown too
                    value = value.replace(spelled, Path(path).name)
    return value
