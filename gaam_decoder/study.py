"""A study: public commands in a row, what came out of them, and whether it comes out again.

``study.toml`` has a ``title``, a ``question`` and a ``text``; ``[caches.NAME]`` with options of
``gaam extract`` or, with ``command = "plant"``, of ``gaam plant`` (``from`` names another cache);
``[[train]]``, ``[[ablate]]`` and ``[[report]]`` with those of these commands, ``cache`` naming one
of the caches; and ``[check]`` with the tolerances of ``gaam study --check``, in hundredths.
"""

from __future__ import annotations

import dataclasses
import inspect
import io
import re
import shlex
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gaam_cache
import gaam_decoder
from gaam_cache import config_checks, plugins, settings
from gaam_cache.bundle import data_path
from gaam_cache.engines._ranks import find_rank
from gaam_cache.errors import CacheError, ConfigError, GaamError, GaamWarning, NotFoundError
from gaam_cache.messages import did_you_mean, duration, option_of
from gaam_cache.store.files import write_file
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.answer import conclusion
from gaam_decoder.reports.drawing import DARK, LIGHT, svg_file
from gaam_decoder.reports.pictures import overviews
from gaam_decoder.reports.sections._base import sections
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.unit import percent, points, span
from gaam_decoder.runs.filters import one_form
from gaam_decoder.runs.folders import run_folders
from gaam_decoder.runs.result import RunResult
from gaam_decoder.specs import parse_attention, parse_head

FILE, ROWS, SEEDS, PAGE = "study.toml", "rows.csv", "seeds.csv", "README.md"
NAME = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*", re.ASCII)
CONFIGS: dict[str, Any] = {
    "extract": gaam_cache.ExtractConfig,
    "plant": gaam_decoder.PlantConfig,
    "train": gaam_decoder.TrainConfig,
}
TABLES = ("title", "question", "text", "caches", "train", "ablate", "report", "check")
REPORT = {*inspect.signature(gaam_decoder.report).parameters, "name", "title", "cache"}
DECIDED = {"out", "runs", "cache", "rank", "since", "top"}
"""By the study itself, or what would leave rows out."""
MACHINE = {
    *("device", "engine", "devices", "address", "gpus_per_worker"),
    *("device_map", "tokens_per_second", "memory_share", "track"),
}
"""Settings of the machine: ``gaam study --set`` says them, and no recipe; they change no number."""
TOLERANCES = {"accuracy": 0.3, "difference": 0.3}
"""Hundredths by which a mean accuracy, or a difference, may come out otherwise elsewhere.

Other machines sum in another order, which changes which epoch is best of some seeds. With 20 seeds
whose accuracies have a standard deviation of 0.4 points a mean has one of 0.09: 0.3 is three times.
"""
OF_ROW = ("select", "pool", "layers", "train_rows", "shots", "epochs", "dtype")
"""Settings that make two rows two; what validation chose does not."""
KEYS = ["report", "cache", "tested_on", "attention", "head", *OF_ROW]
SAME = ("baseline", "seeds", "failed", "parameters")
TOLERATED = {
    **dict.fromkeys(("accuracy", "sd", "low", "high", "macro_f1"), "accuracy"),
    **dict.fromkeys(("difference", "difference_low", "difference_high"), "difference"),
}
OF_SEED = [
    *("fingerprint", "attention", "head", "select", "pool", "layers", "lr", "train_rows", "shots"),
    *("fold", "seed", "failed", "epoch", "accuracy", "macro_f1"),
]
ABLATE = ("num_layers", "seed", "device")
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command."""

    command: str
    options: Mapping[str, Any]
    """By the names of fields, with the folders that the study decides."""
    here: Mapping[str, Any]
    """Those of this machine, which no page shows."""
    config: Any = None
    """What the command makes of all of them; None of an ablation."""

    def words(self, *, here: bool = False, run: str = "RUN") -> str:
        """The command as a shell takes it; ``run`` is what an ablation is of."""
        given = {**self.options, **(self.here if here else {})}
        if self.command == "ablate":
            named = [(option_of(k), str(v)) for k, v in given.items() if k != "of"]
            return shlex.join(["gaam", "ablate", run, *(word for pair in named for word in pair)])
        first = [str(given.pop("out"))] if self.command == "plant" else []
        fields = {one.name: one for one in dataclasses.fields(CONFIGS[self.command])}
        spelled = (config_checks.words(fields[name], value) for name, value in given.items())
        words = (word for words in spelled for word in words)
        return shlex.join(["gaam", self.command, *first, *words])


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """A recipe that was read and checked, and where it is run: ``out`` is of all studies."""

    folder: Path
    recipe: Mapping[str, Any]
    """As the file has it."""
    steps: tuple[Step, ...]
    reports: tuple[dict[str, Any], ...]
    tolerances: Mapping[str, float]
    out: Path

    @property
    def runs(self) -> Path:
        """Folder of its runs; caches are shared by all studies."""
        return self.out / self.folder.name / "runs"


def read_study(
    what: str | Path,
    *,
    out: Path = Path("studies"),
    dataset: str | None = None,
    machine: Mapping[str, Any] | None = None,
) -> Study:
    """Read a study and check its settings, so that little is found wrong after hours.

    Args:
        what: its folder, or the name of one in ``data/studies``.
        out: folder of all studies.
        dataset: instead of the data set of every extraction.
        machine: settings of ``MACHINE``.

    Raises:
        NotFoundError: there is none; says which may be meant.
        ConfigError: it is none, or a command has no such option or takes no such value.
    """
    ours = {path.parent.name: path.parent for path in (data_path() / "studies").glob(f"*/{FILE}")}
    there = [one for one in (Path(what), ours.get(str(what))) if one and (one / FILE).is_file()]
    if not there:
        raise NotFoundError(
            f"no study '{what}'",
            expected=f"a folder with {FILE}, or one of: {', '.join(sorted(ours))}",
            where=str((Path(what) / FILE).absolute()),
            hint=did_you_mean(str(what), ours),
        )
    folder = there[0].resolve()
    here = {**(machine or {}), **({} if dataset is None else {"dataset": dataset})}
    with _said_of(str(folder / FILE)):
        found = tomllib.loads((folder / FILE).read_text("utf-8"))
        _known(found, TABLES)
        _known(check := found.get("check", {}), TOLERANCES)
        steps = tuple(_steps(found, out, out / folder.name / "runs", here))
        reports = tuple(map(_asked, found.get("report", ())))
        names = {one["name"] for one in reports}
        if not (steps and names and len(names) == len(reports) and found.get("title")):
            raise ConfigError("no study", expected="a title, a cache, reports of different names")
        tolerances = TOLERANCES | {name: float(value) for name, value in check.items()}
        trains = [step.config for step in steps if step.command == "train"]
        choose = {seed for config in trains for seed in config.choosing_seeds or ()}
        if both := choose & {seed for config in trains for seed in config.seeds}:
            message = "tune-seeds of one [[train]] are seeds of another"
            raise ConfigError(message, found=spell_numbers(sorted(both)))
        for one in reports:
            if "cache" in one:
                _one_of("cache", one["cache"], found.get("caches", {}))
            of = [c for c in trains if one.get("cache") in (None, c.cache.name)]
            attn = {"none", *(text.partition(":")[0] for config in of for text in config.attn)}
            with _said_of(f"[[report]] {one['name']}"):
                _one_of("baseline", str(one.get("baseline", "none")).partition(":")[0], attn)
    about: dict[str, Any] = {"folder": folder, "recipe": found, "out": out}
    return Study(steps=steps, reports=reports, tolerances=tolerances, **about)


@contextmanager
def _said_of(where: str) -> Iterator[None]:
    """What a command would refuse is wrong with that part of the recipe."""
    try:
        yield
    except ConfigError as error:
        details = {("hint" if k == "to do" else k): v for k, v in error.details.items() if v}
        details["where"] = f"{where}, {error.details['where']}" if "where" in details else where
        raise ConfigError(error.message, **details) from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError("no recipe of a study", found=str(error), where=where) from error


def _steps(
    found: Mapping[str, Any], out: Path, runs: Path, here: Mapping[str, Any]
) -> Iterator[Step]:
    caches = found.get("caches", {})

    def cache(name: Any) -> Path:
        return out / "caches" / _one_of("cache", name, caches)

    for name, options in caches.items():
        with _said_of(f"[caches.{name}]"):
            rest = _named(name, options)
            command, source = rest.pop("command", "extract"), rest.pop("from", None)
            if command not in ("extract", "plant") or (source and command == "extract"):
                raise ConfigError("no such cache", expected="command = 'plant', or no 'from'")
            places = {} if source is None else {"from_cache": cache(source)}
            yield _step(command, rest, places | {"out": cache(name)}, here)
    for options in found.get("train", ()):
        with _said_of("[[train]]"):
            rest = _named("train", options)
            places = {"cache": cache(rest.pop("cache", None)), "runs": runs}
            yield _step("train", rest, places, here)
    for options in found.get("ablate", ()):
        with _said_of("[[ablate]]"):
            rest = _named("ablate", options)
            _known(rest, {"of", *ABLATE} - MACHINE)
            parse_attention(str(rest.get("of", "")), "of")
            device = {k: v for k, v in here.items() if k in ABLATE}
            yield Step(command="ablate", options=rest, here=device)


def _step(
    command: str, options: Mapping[str, Any], places: Mapping[str, Any], here: Mapping[str, Any]
) -> Step:
    fields = dataclasses.fields(CONFIGS[command])
    names = {config_checks.key_of(one).replace("-", "_"): one.name for one in fields}
    found = {names.get(key, key): value for key, value in options.items()}
    _known(found, set(names.values()) - DECIDED)
    here = {key: value for key, value in here.items() if key in names.values()}
    config = settings.resolve(CONFIGS[command], command, {**found, **here, **places})
    return Step(command=command, options={**found, **places}, here=here, config=config)


def _named(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names of fields, of what has a name that files may have."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"bad name '{name}'", expected="small letters, digits, - and .")
    return {key.replace("-", "_"): value for key, value in options.items()}


def _known(found: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in found:
        if name in MACHINE:
            hint = f"gaam study --set {name.replace('_', '-')}=... says it"
            raise ConfigError(f"'{name}' belongs to the machine, not to a study", hint=hint)
        _one_of("setting", name, known)


def _one_of(kind: str, name: Any, there: Iterable[str]) -> str:
    if name not in there:
        raise plugins.unknown(kind, str(name), sorted(there))
    return str(name)


def _asked(options: Mapping[str, Any]) -> dict[str, Any]:
    """One report."""
    with _said_of(f"[[report]] {options.get('name')}"):
        found = _named(str(options.get("name", "")), options)
        found["every_candidate"] = found.pop("all", False)
        _known(found, REPORT - {"runs", "since", "top"})
        for text in (*found.get("attn", ()), *filter(None, [found.get("baseline")])):
            parse_attention(text)
        for text in found.get("head", ()):
            parse_head(text)
    return {"title": found["name"], **found}


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came out, as JSON values and for people."""

    values: dict[str, Any]
    lines: list[str]
    exit_code: int = 0
    """1 where a check found differences."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return self.values

    def in_words(self) -> str:
        """Lines for people."""
        return "\n".join(self.lines)


def estimate(study: Study) -> Outcome:
    """The commands, and roughly how long each takes as far as that is known; nothing is written."""
    found, lines = [], []
    for step in study.steps:
        about, command = "", step.words(here=True)
        if step.command in ("extract", "train"):
            of: Any = gaam_cache if step.command == "extract" else gaam_decoder
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", GaamWarning)
                    about = f"about {duration(max(1, of.estimate(step.config).seconds))}"
            except GaamError as error:
                about = f"no estimate: {error.message}"
        found.append({"command": command, "estimate": about})
        lines += [command, *[f"  # {about}"] * bool(about)]
    return Outcome(values={"commands": found}, lines=lines)


def carry_out(
    study: Study,
    *,
    check: bool = False,
    record: bool = False,
    say: Callable[[str], None] = lambda text: None,
    progress: Progress | None = None,
) -> Outcome:
    """Run what is missing, make the reports, and record them or compare them with the record.

    Args:
        study: what to run, and where.
        check: compare what comes out with what is recorded.
        record: write it beside the recipe.
        say: called with every command before it is run.
        progress: called with (done, in all, what is going on) of each command.

    Raises:
        NotFoundError: nothing is recorded that could be compared.
        ConfigError: there are runs that the recipe does not ask for.
        CacheError: what is recorded is of other states.
    """
    import pandas

    def rows_of(content: bytes) -> pandas.DataFrame:
        return pandas.read_csv(io.BytesIO(content), dtype=dict.fromkeys([*KEYS, *SAME], str))

    if (rank := find_rank(None)) is not None and rank.total > 1:
        raise ConfigError(
            "a study is run by one process: another would report what is not finished",
            found=f"rank {rank.number} of {rank.total}",
            hint="the commands that --dry-run prints may be run by ranks",
        )
    if check and not (study.folder / ROWS).is_file():
        hint = "gaam study FOLDER --record makes it"
        raise NotFoundError(f"nothing is recorded in '{study.folder}'", expected=ROWS, hint=hint)
    trained = _run(study, say, progress)
    if strangers := sorted({path.name for path in run_folders(study.runs)} - trained):
        raise ConfigError(
            "runs that the study does not ask for: rows of a table depend on one another",
            found=", ".join(strangers[:9]),
            where=str(study.runs.absolute()),
            hint="move them away, or take another --out",
        )
    reports, files = _made(study)
    into = study.out / study.folder.name
    for folder in (into, study.folder) if record else (into,):
        for stale in {path.name for path in folder.glob("*.svg")} - files.keys():
            (folder / stale).unlink()
        for name, content in files.items():
            write_file(folder / name, content)
    lines = [f"{one['title']}: {said}" for one in reports for said in _answers(one)]
    lines.append(f"the page, {ROWS}, {SEEDS} and the pictures are in {into}")
    lines += [f"recorded: {len(files)} files beside {FILE}"] * record
    values, differs = {"folder": str(into), "reports": reports}, []
    if check:
        now = rows_of(files[ROWS])
        differs = compare(rows_of((study.folder / ROWS).read_bytes()), now, study.tolerances)
        lines += [f"differs: {line}" for line in differs]
        told = f"{len(differs)} differences beyond" if differs else "within"
        lines.append(f"check of {len(now)} rows: {told} the tolerances")
        values["differences"] = differs
    return Outcome(values=values, lines=lines, exit_code=int(bool(differs)))


def _run(study: Study, say: Callable[[str], None], progress: Progress | None) -> set[str]:
    """Run every command, each of which makes only what is missing; names of the runs there are."""
    runs: list[RunResult] = []
    ablated = set[str]()
    for step in study.steps:
        path = _to_ablate(step.options["of"], runs) if step.command == "ablate" else Path()
        say(step.words(here=True, run=str(path)))
        if step.command == "extract":
            gaam_cache.extract(step.config, progress=progress)
        elif step.command == "plant":
            gaam_decoder.plant(step.config, progress=progress)
        elif step.command == "train":
            trained = gaam_decoder.train(step.config, progress=progress)
            gaam_decoder.check_failures(trained, step.config.seeds)
            runs += trained
        else:
            options = {k: v for k, v in {**step.options, **step.here}.items() if k != "of"}
            found = gaam_decoder.ablate(path, progress=progress, **options)
            found.check()
            ablated |= {
                Path(run).name for group in found.to_dict()["groups"] for run in group["runs"]
            }
    return {run.path.name for run in runs} | ablated


def _to_ablate(of: str, runs: Iterable[RunResult]) -> Path:
    """The run of a mechanism over all layers, of most seeds."""
    whole = [run for run in runs if not run.recipe.get("layers")]
    spec = one_form(str(parse_attention(of)), {run.attention for run in whole}, "of")
    if not (fits := [run for run in whole if run.attention == spec]):
        raise NotFoundError(f"no run of '{spec}' to ablate")
    return max(fits, key=lambda run: len(run.seeds)).path


def _made(study: Study) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """All reports as JSON values, and every file that comes out, by name."""
    import pandas

    reports, files = [], dict[str, bytes]()
    for asked in study.reports:
        options: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in asked.items()
        }
        name, title = str(options.pop("name")), options.pop("title")
        if "cache" in options:
            options["cache"] = study.out / "caches" / options["cache"]
        found, tables = gaam_decoder.report(study.runs, **options).tables, []
        for number, table in enumerate(found, 1):
            picture = f"{name}-{number}" if len(found) > 1 else name
            for drawn in list(overviews(table))[-1:]:  # differences, or without any accuracies
                for theme, colours in (("light", LIGHT), ("dark", DARK)):
                    svg = svg_file(drawn.draw, colours, alt=drawn.alt)
                    files[f"{picture}-{theme}.svg"] = svg
            tables.append({"picture": picture, **_table(name, table)})
        command = shlex.join(_report_words(study, asked))
        reports.append({"title": title, "command": command, "tables": tables})
    rows = [row for one in reports for table in one["tables"] for row in table["rows"]]
    seeds = gaam_decoder.load_runs(study.runs).to_frame()
    seeds["fingerprint"] = seeds["fingerprint"].str[:12]
    seeds = seeds.loc[~seeds["tuning_seed"], OF_SEED]
    # six digits: of accuracies of up to 100,000 rows nothing is lost
    for file, frame in ((ROWS, pandas.DataFrame(rows)), (SEEDS, seeds)):
        files[file] = frame.to_csv(index=False, float_format="%.6g").encode()
    files[PAGE] = page(study, reports).encode()
    return reports, files


def _table(name: str, table: Table) -> dict[str, Any]:
    """What a reader and a check need of a table."""
    rows = []
    for label, row in zip(table.labels(), table.to_dict()["rows"], strict=True):
        mean, compared = row["accuracy"] or {}, row["comparison"] or {}
        low, high = row["accuracy_ci95_seeds_and_rows"] or (None, None)
        edges = compared.get("ci95_seeds_and_rows") or (None, None)
        about = {"report": name, "cache": table.cache["fingerprint"][:12], "label": label}
        about |= {key: table.cache[key] for key in ("dataset", "encoder")}
        about |= {"tested_on": table.where, "attention": row["attention"], "head": row["head"]}
        about |= {key: row["recipe"].get(key) for key in (*OF_ROW, "lr")}
        about |= {"accuracy": mean.get("mean"), "sd": mean.get("std"), "low": low, "high": high}
        about |= {"macro_f1": (row["macro_f1"] or {}).get("mean")}
        about |= {"seeds": spell_numbers(row["seeds"]), "failed": len(row["failed_seeds"])}
        about |= {"parameters": row["parameters"]["total"], "undertrained": row["undertrained"]}
        about |= {key: compared.get(key) for key in ("baseline", "difference", "p_holm", "verdict")}
        rows.append(about | {"difference_low": edges[0], "difference_high": edges[1]})
    sizes = ", ".join(f"{count:,} {split}" for split, count in table.cache["rows"].items())
    return {
        "title": f"{table.cache['dataset']} ({sizes}) through {table.cache['encoder']}",
        "conclusion": conclusion(table),
        "leads": [s.lead for s in sections(table) if s.name in ("pairs", "importance", "axes")],
        "rows": rows,
    }


def _report_words(study: Study, asked: Mapping[str, Any]) -> Iterator[str]:
    yield from ("gaam", "report", str(study.runs))
    for name, value in asked.items():
        for one in value if isinstance(value, list) else [value]:
            if name in ("layers", "lr", "cache"):
                place = study.out / "caches" / one if name == "cache" else one
                yield from ("--where", f"{name}={place}")
            elif isinstance(one, bool):
                yield from ["--all" if name == "every_candidate" else option_of(name)] * one
            elif name not in ("name", "title", "sort", "tune_seeds"):  # of Python alone
                yield from (option_of(name), str(one))


def _answers(one: Mapping[str, Any]) -> Iterator[str]:
    for table in one["tables"]:
        where = f"{table['title']}: " if len(one["tables"]) > 1 else ""
        yield where + table["conclusion"]


def page(study: Study, reports: Iterable[Mapping[str, Any]]) -> str:
    """The page of a study: question, answer, a table and a picture a report, the commands.

    Args:
        study: the recipe, where whoever reads it runs it.
        reports: what came out of each.
    """
    name, recipe = study.folder.name, study.recipe
    answers = [f"- {one['title']}: {said}" for one in reports for said in _answers(one)]
    parts = [f"# {recipe['title']}", recipe.get("question", ""), "\n".join(answers)]
    parts.append(recipe.get("text", ""))
    for one in reports:
        parts.append(f"## {one['title']}")
        for table in one["tables"]:
            dark, light = (f"{table['picture']}-{theme}.svg" for theme in ("dark", "light"))
            lines = ["| row | accuracy % (95%) | sd | seeds | difference (95%) | verdict |"]
            lines += ["|:--|--:|--:|:--|--:|:--|", *map(_line, table["rows"])]
            parts += [
                f"**{table['title']}**",
                f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
                f'<img alt="{one["title"]}" src="{light}"></picture>',
                "\n".join(lines),
                "\n".join(f"- {lead}" for lead in table["leads"]),
            ]
    commands = [*(step.words() for step in study.steps), *(one["command"] for one in reports)]
    parts += [
        "## Check it",
        f"`gaam study {name} --check` runs these commands, makes the tables again and compares "
        f"them with [{ROWS}]({ROWS}); every seed is in [{SEEDS}]({SEEDS}), the recipe in "
        f"[{FILE}]({FILE}). Intervals are over seeds and test rows; verdicts are corrected (Holm); "
        "† is under-trained.",
        "\n".join(f"    {command}" for command in commands),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _line(row: Mapping[str, Any]) -> str:
    accuracy = difference = "-"
    if row["accuracy"] is not None:
        accuracy = f"{percent(row['accuracy'])} ({span((row['low'], row['high']))})"
    if row["difference"] is not None:
        edges = row["difference_low"], row["difference_high"]
        difference = points(row["difference"])
        difference += f" ({span(edges, signed=True)})" if edges[0] is not None else ""
    cells = [row["label"].replace("|", "\\|") + " †" * bool(row["undertrained"]), accuracy]
    cells += ["-" if row["sd"] is None else f"{100 * row['sd']:.2f}", row["seeds"], difference]
    return f"| {' | '.join([*cells, row['verdict'] or ''])} |"


def compare(before: Any, after: Any, tolerances: Mapping[str, float]) -> list[str]:
    """What of rows differs from those that are recorded, a line each.

    Settings, seeds and counts have to be the very same; accuracies and differences may differ by
    the tolerances. Verdicts are not compared: a p value near 0.05 falls on either side.

    Args:
        before: ``rows.csv`` as it is recorded, a data frame.
        after: the same of now.
        tolerances: hundredths, of ``accuracy`` and ``difference``.

    Raises:
        CacheError: the rows are of other states.
    """
    if missing := {*KEYS, *SAME, *TOLERATED} - set(before):
        raise CacheError(f"no {ROWS} of a study", found=f"without {', '.join(sorted(missing))}")
    if (old := sorted(set(before["cache"]))) != (new := sorted(set(after["cache"]))):
        raise CacheError(
            "the study is of other states than those that are recorded",
            expected=f"caches {', '.join(old)}",
            found=", ".join(new),
            hint="other rows or another encoder give other numbers: without --check they are shown",
        )
    both = before.merge(after, how="outer", on=KEYS, indicator=True, suffixes=("", "_now"))
    found = []
    for _, row in both.iterrows():
        who = " ".join(str(row[key]) for key in KEYS if row[key] == row[key])
        if row["_merge"] != "both":
            gone = row["_merge"] == "left_only"
            found.append(f"{who}: is {'not there' if gone else 'not recorded'}")
            continue
        for column in (*SAME, *TOLERATED):
            was, now = row[column], row[f"{column}_now"]
            same = was == now or (was != was and now != now)
            if column in TOLERATED:
                same |= abs(was - now) <= tolerances[TOLERATED[column]] / 100 + 1e-9
            if not same:
                found.append(f"{who}: {column} {now}, recorded: {was}")
    return found
