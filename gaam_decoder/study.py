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
import json
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
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
from gaam_decoder.reports.pictures.pictures import overviews
from gaam_decoder.reports.table import Table, check_order
from gaam_decoder.reports.writing.numbers import percent, points, span
from gaam_decoder.reports.writing.page import DARK, LIGHT
from gaam_decoder.reports.writing.section import sections
from gaam_decoder.reports.writing.unit import DEFAULT, margin_of, score_of
from gaam_decoder.runs.filters import one_form
from gaam_decoder.runs.folders import run_folders
from gaam_decoder.specs import parse_attention, parse_head

FILE, ROWS, SEEDS, PAGE = "study.toml", "rows.csv", "seeds.csv", "README.md"
NAME = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*", re.ASCII)
CONFIGS: dict[str, Any] = {
    "extract": gaam_cache.ExtractConfig,
    "plant": gaam_decoder.PlantConfig,
    "train": gaam_decoder.TrainConfig,
}
ABLATE = ("of", "num_layers", "seed")
REPORT = (*inspect.signature(gaam_decoder.report).parameters, "name", "title")
DECIDED = {"out", "runs", "cache", "rank", "since", "top"}
"""By the study itself, or what would leave rows out."""
MACHINE = {
    *("device", "engine", "devices", "address", "gpus_per_worker"),
    *("device_map", "tokens_per_second", "memory_share", "track"),
}
"""Settings of the machine: ``gaam study --set`` says them, and no recipe; they change no number."""
AXES = ("attn", "head", "layers", "pool", "train_rows")
CHOOSING = ("seeds", "tune_seeds", "lr", "weight_decay")
NO_ROW = ("probe", "skip_impossible", *MACHINE)
"""Of a training what makes no other row of a table."""
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
GAAM = (
    *(sys.executable, "-P", "-c"),
    f"import sys; sys.path.insert(0, {str(Path(gaam_cache.__file__).parents[1])!r}); "
    "sys.argv[0] = 'gaam'; from gaam_cache.terminal import entry; entry()",
)
"""``gaam`` of this very installation, whatever else is on the path."""


class StepError(GaamError, RuntimeError):
    """A command of a study ended otherwise than well; it has said why."""

    def __init__(self, command: str, code: int) -> None:
        super().__init__(
            "a step of the study has failed",
            found=f"exit code {code} of: {command}",
            hint="what is finished is kept: run the same again when that is mended",
        )
        self.exit_code = code if code in (1, 2, 3) else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command; ``makes`` or ``reads`` name a cache of the study."""

    command: str
    options: Mapping[str, Any]
    """By the names of fields."""
    config: Any = None
    """What the command makes of them, but for what the study decides; None of an ablation."""
    makes: str | None = None
    reads: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """A recipe that was read and checked, and where it is run."""

    folder: Path
    recipe: Mapping[str, Any]
    """As the file has it."""
    steps: tuple[Step, ...]
    reports: tuple[dict[str, Any], ...]
    tolerances: Mapping[str, float]
    out: Path = Path("studies")
    """Folder of all studies: caches are shared, runs are of each."""
    dataset: str | None = None
    """Instead of the data set of every extraction."""
    machine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> Path:
        """Folder of its runs."""
        return self.out / self.folder.name / "runs"

    def cache(self, name: str | None) -> Path:
        """Folder of a cache."""
        return self.out / "caches" / str(name)

    def given(self, step: Step) -> dict[str, Any]:
        """All that a step is told, by the names of fields."""
        known = {one.name for one in dataclasses.fields(CONFIGS[step.command])}
        found = {**step.options, **{k: v for k, v in self.machine.items() if k in known}}
        if step.command == "train":
            return found | {"cache": self.cache(step.reads), "runs": self.runs}
        if step.command == "extract" and self.dataset is not None:
            found["dataset"] = self.dataset
        if step.reads:
            found["from_cache"] = self.cache(step.reads)
        return found | {"out": self.cache(step.makes)}

    def words(self, step: Step, run: str = "RUN") -> list[str]:
        """The command as the command line has it; ``run`` is what an ablation is of."""
        if step.command == "ablate":
            options = {k: v for k, v in step.options.items() if k != "of"}
            options |= {k: v for k, v in self.machine.items() if k == "device"}
            named = [(option_of(k), str(v)) for k, v in options.items()]
            return [step.command, run, *(word for pair in named for word in pair)]
        options, config = self.given(step), CONFIGS[step.command]
        first = [str(options.pop("out"))] if step.command == "plant" else []
        fields = {one.name: one for one in dataclasses.fields(config)}
        spelled = (config_checks.words(fields[name], value) for name, value in options.items())
        return [step.command, *first, *(word for words in spelled for word in words)]

    def commands(self) -> list[str]:
        """All commands but those of reports, as a shell takes them."""
        return [shlex.join(["gaam", *self.words(step)]) for step in self.steps]


def read_study(what: str | Path, **place: Any) -> Study:
    """Read a study and check every option of it, so that nothing is found wrong after hours.

    Args:
        what: its folder, or the name of one in ``data/studies``.
        place: ``out``, ``dataset`` and ``machine`` of the study.

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
    with _said_of(str(folder / FILE)):
        found = tomllib.loads((folder / FILE).read_text("utf-8"))
        steps, reports = tuple(_steps(found)), tuple(map(_asked, found.get("report", ())))
        _known(found, ("title", "question", "text", "caches", "train", "ablate", "report", "check"))
        _known(check := found.get("check", {}), TOLERANCES)
        _check_chosen_once(steps)
        names = [one["name"] for one in reports]
        if not steps or not names or len(set(names)) < len(names) or not found.get("title"):
            raise ConfigError("no study", expected="a title, a cache, reports of different names")
        if bad := [k for k, v in check.items() if not (isinstance(v, (int, float)) and v >= 0)]:
            raise ConfigError(f"'{bad[0]}' of [check]", expected="hundredths, 0 or more")
        tolerances = TOLERANCES | check
        _check_baselines(steps, reports)
    return Study(
        folder=folder, recipe=found, steps=steps, reports=reports, tolerances=tolerances, **place
    )


def _check_baselines(steps: Iterable[Step], reports: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a baseline that nothing trains, by its name: heads may be chosen by the encoder."""
    trains = [step for step in steps if step.command == "train"]
    for one in reports:
        of = [step for step in trains if one.get("cache") in (None, step.reads)]
        there = {"none", *(text.partition(":")[0] for step in of for text in step.config.attn)}
        name = str(one.get("baseline", "none")).partition(":")[0]
        if name not in there:
            where = f"[[report]] {one['name']}"
            raise plugins.unknown("baseline", name, sorted(there), where=where)


def _check_chosen_once(steps: Iterable[Step]) -> None:
    """Refuse two trainings of one row whose rates are chosen by other seeds or from other rates.

    In a report of both seeds that have chosen would report.
    """
    trains = [step for step in steps if step.command == "train"]
    for first, second in combinations(trains, 2):
        one, other = first.config, second.config
        same = all(getattr(one, name) == getattr(other, name) for name in CHOOSING)
        tuned = one.tune_seeds is not None or other.tune_seeds is not None
        overlap = all(set(getattr(one, name)) & set(getattr(other, name)) for name in AXES)
        if first.reads != second.reads or same or not tuned or not overlap:
            continue
        rest = {field.name for field in dataclasses.fields(one)} - {*AXES, *CHOOSING, *NO_ROW}
        if all(getattr(one, name) == getattr(other, name) for name in rest):
            both = ", ".join(sorted({*one.attn} & {*other.attn}))
            raise ConfigError(
                f"two [[train]] of the same rows of {both}",
                expected="the same seeds, tune-seeds and rates in both",
            )


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


def _steps(found: Mapping[str, Any]) -> Iterator[Step]:
    for name in ("train", "ablate", "report"):
        if not isinstance(found.get(name, []), list):
            raise ConfigError(f"[{name}] is no list", expected=f"[[{name}]]")
    caches = list(found.get("caches", {}))
    for name, options in found.get("caches", {}).items():
        with _said_of(f"[caches.{name}]"):
            if not NAME.fullmatch(name):
                raise ConfigError("bad name of a cache", expected="small letters, digits, - and .")
            rest = dict(options)
            command, source = rest.pop("command", "extract"), rest.pop("from", None)
            if command not in ("extract", "plant") or (source and command == "extract"):
                raise ConfigError("no such cache", expected="command = 'plant', or no 'from'")
            if source is not None:
                _chosen(source, caches)
            yield Step(**_asked_of(command, rest), makes=name, reads=source)
    for options in found.get("train", ()):
        with _said_of("[[train]]"):
            rest = dict(options)
            cache = _chosen(rest.pop("cache", None), caches)
            yield Step(**_asked_of("train", rest), reads=cache)
    for options in found.get("ablate", ()):
        with _said_of("[[ablate]]"):
            rest = {name.replace("-", "_"): value for name, value in options.items()}
            _known(rest, ABLATE)
            parse_attention(str(rest.get("of", "")), "of")
            yield Step(command="ablate", options=rest)
    for options in found.get("report", ()):
        if "cache" in options:
            _chosen(options["cache"], caches)


def _known(found: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in found:
        if name in MACHINE:
            hint = f"gaam study --set {name.replace('_', '-')}=... says it"
            raise ConfigError(f"'{name}' belongs to the machine, not to a study", hint=hint)
        if name not in known:
            raise plugins.unknown("setting", name, sorted(known))


def _chosen(name: Any, caches: list[str]) -> str:
    if name not in caches:
        raise plugins.unknown("cache", str(name), caches)
    return str(name)


def _asked_of(command: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The command, its options by the names of fields, and what it makes of them."""
    names = {config_checks.key_of(one): one.name for one in dataclasses.fields(CONFIGS[command])}
    found = {names.get(key, key.replace("-", "_")): value for key, value in options.items()}
    _known(found, set(names.values()) - DECIDED)
    config = settings.resolve(CONFIGS[command], command, found)
    return {"command": command, "options": found, "config": config}


def _asked(options: Mapping[str, Any]) -> dict[str, Any]:
    """One report, checked by the functions that ``gaam report`` itself uses."""
    found = {key.replace("-", "_"): value for key, value in options.items()}
    found["every_candidate"] = found.pop("all", False)
    with _said_of(f"[[report]] {found.get('name')}"):
        _known(found, {*REPORT, "cache"} - {"runs", "since", "top"})
        if not NAME.fullmatch(str(found.get("name", ""))):
            raise ConfigError("bad name of a report", expected="small letters, digits, - and .")
        for text in (*found.get("attn", ()), *filter(None, [found.get("baseline")])):
            parse_attention(text)
        for text in found.get("head", ()):
            parse_head(text)
        margin_of(found.get("margin"), score_of(found.get("score", DEFAULT)))
        check_order(found.get("sort"), None)
    return {"title": found["name"], **found}


@dataclass(frozen=True, slots=True)
class Commands:
    """What ``gaam study --dry-run`` prints: commands, each with what is known of its time."""

    commands: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"commands": [{"command": one, "estimate": about} for one, about in self.commands]}

    def in_words(self) -> str:
        """A line a command, and one for its time."""
        return "\n".join(one + f"\n  # {about}" * bool(about) for one, about in self.commands)


def estimate(study: Study) -> Commands:
    """The commands, and roughly how long each takes as far as that is known; nothing is written."""
    found = []
    for step, command in zip(study.steps, study.commands(), strict=True):
        about = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GaamWarning)
                if step.command in ("extract", "train"):
                    of: Any = gaam_cache if step.command == "extract" else gaam_decoder
                    config = settings.resolve(
                        CONFIGS[step.command], step.command, study.given(step)
                    )
                    about = f"about {duration(max(1, of.estimate(config).seconds))}"
        except GaamError as error:
            about = f"no estimate: {error.message}"
        found.append((command, about))
    return Commands(tuple(found))


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came out, where it is, and what a check found."""

    folder: Path
    reports: list[dict[str, Any]]
    written: int = 0
    """Files beside the recipe."""
    differences: list[str] | None = None
    """Beyond the tolerances; None where nothing was checked."""

    @property
    def exit_code(self) -> int:
        """1 where a check found differences."""
        return int(bool(self.differences))

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        values = {"folder": str(self.folder), "reports": self.reports}
        return values | ({} if self.differences is None else {"differences": self.differences})

    def in_words(self) -> str:
        """For people: what every report concludes, and where it stands whole."""
        lines = [f"{one['title']}: {said}" for one in self.reports for said in _answers(one)]
        lines.append(f"the page, {ROWS}, {SEEDS} and the pictures are in {self.folder}")
        lines += [f"recorded: {self.written} files beside {FILE}"] if self.written else []
        if self.differences is not None:
            count = sum(len(table["rows"]) for one in self.reports for table in one["tables"])
            lines += [f"differs: {line}" for line in self.differences]
            told = f"{len(self.differences)} differences beyond" if self.differences else "within"
            lines.append(f"check of {count} rows: {told} the tolerances")
        return "\n".join(lines)


def carry_out(study: Study, *, check: bool, record: bool, quiet: bool, say: Any) -> Outcome:
    """Run what is missing, make the reports, and record them or compare them with the record.

    Raises:
        NotFoundError: nothing is recorded that could be compared.
        ConfigError: there are runs that the recipe does not ask for.
        StepError: a command failed.
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
    trained = _run(study, quiet=quiet, say=say)
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
    differences = None
    if check:
        before = rows_of((study.folder / ROWS).read_bytes())
        differences = compare(before, rows_of(files[ROWS]), study.tolerances)
    written = len(files) if record else 0
    return Outcome(folder=into, reports=reports, written=written, differences=differences)


def _run(study: Study, *, quiet: bool, say: Any) -> set[str]:
    """Run every command, each of which makes only what is missing; names of the runs there are."""
    trained: dict[str, dict[str, Any]] = {}
    for step in study.steps:
        run = _ablated(study, step.options["of"], trained) if step.command == "ablate" else ""
        words = study.words(step, run)
        command = shlex.join(["gaam", *words])
        if not quiet:
            say(command)
        argv = [*GAAM, *words, "--json", *["--quiet"] * quiet]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            try:
                text, _ = process.communicate()
            except BaseException:
                process.terminate()  # it keeps what is finished
                process.wait()
                raise
        if process.returncode:
            raise StepError(command, process.returncode)
        found = json.loads(text)
        if step.command == "train":
            trained |= {Path(one["path"]).name: one for one in found}
        elif step.command == "ablate":
            trained |= {Path(run).name: {} for group in found["groups"] for run in group["runs"]}
    return set(trained)


def _ablated(study: Study, of: str, trained: Mapping[str, Any]) -> str:
    """The run of a mechanism that is to be ablated: over all layers, of most seeds."""
    whole = {k: run for k, run in trained.items() if run and not run["recipe"].get("layers")}
    spec = one_form(str(parse_attention(of)), {run["attention"] for run in whole.values()}, "of")
    seeds = {k: len(run["seeds"]) for k, run in whole.items() if run["attention"] == spec}
    if not seeds:
        raise NotFoundError(f"no run of '{spec}' to ablate", where=str(study.runs))
    return str(study.runs / max(seeds, key=seeds.__getitem__))


def _made(study: Study) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """All reports as JSON values, and every file that comes out, by name."""
    import pandas

    from gaam_decoder.reports.figures.output import svg_file

    reports, files = [], dict[str, bytes]()
    for asked in study.reports:
        options: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in asked.items()
        }
        name, title = options.pop("name"), options.pop("title")
        if "cache" in options:
            options["cache"] = study.cache(options["cache"])
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
    public = dataclasses.replace(study, machine={}, dataset=None)
    files[PAGE] = page(public, reports).encode()
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
                yield from ("--where", f"{name}={study.cache(one) if name == 'cache' else one}")
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
    commands = [*study.commands(), *(one["command"] for one in reports)]
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
            if not same and column in TOLERATED and was == was and now == now:
                same = abs(was - now) <= tolerances[TOLERATED[column]] / 100 + 1e-9
            if not same:
                found.append(f"{who}: {column} {now}, recorded: {was}")
    return found
