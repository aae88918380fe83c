"""A study: public commands in a row, what came out of them, and whether it comes out again.

``study.toml`` has ``title``, ``question``, ``text``; ``[caches.NAME]`` with options of ``extract``
or, with ``command``, of ``plant`` (``from`` names another cache); ``[[train]]`` and ``[[report]]``
with theirs; and ``[check]`` with tolerances in hundredths.
"""

import dataclasses
import inspect
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins, settings
from gaam_cache.common.errors import CacheError, ConfigError, GaamError, NotFoundError
from gaam_cache.common.markdown import plain
from gaam_cache.common.messages import duration
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.settings import data_path
from gaam_cache.store.files import write_file
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.columns import OF_STUDY, sheet
from gaam_decoder.reports.drawing import overviews, svg_files
from gaam_decoder.reports.formats._templates import rendered
from gaam_decoder.reports.formats.csv import flat
from gaam_decoder.reports.formats.markdown import pipe
from gaam_decoder.reports.notes import conclusion
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.result import RunResult

FILE, ROWS, SEEDS, PAGE = "study.toml", "rows.csv", "seeds.csv", "README.md"
NAME = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*", re.ASCII)
COMMANDS: dict[str, tuple[Any, Any]] = {
    "extract": (gaam_cache.ExtractConfig, gaam_cache.extract),
    "plant": (gaam_decoder.PlantConfig, gaam_decoder.plant),
    "train": (gaam_decoder.TrainConfig, gaam_decoder.train),
}
TABLES = {"title", "question", "text", "caches", "train", "report", "check"}
MACHINE = {
    "device",
    "engine",
    "devices",
    "address",
    "gpus_per_worker",
    "device_map",
    "track",
}
MACHINE |= {"tokens_per_second", "memory_share"}
"""Settings of the machine: ``gaam study --set`` says them, and no recipe; they change no number."""
DECIDED = {"out", "runs", "rank", "since", "top", *MACHINE}
"""By the study itself, by the machine, or what would leave rows out."""
REPORT = {
    *inspect.signature(gaam_decoder.report).parameters,
    "name",
    "title",
    "all",
} - DECIDED
TOLERANCES = {"accuracy": 0.3, "difference": 0.3}
"""Hundredths by which a mean accuracy, or a difference, may come out otherwise elsewhere."""
SETTINGS = ("select", "pool", "layers", "train_rows", "shots", "epochs", "dtype")
KEYS = ["report", "cache", "tested_on", "attention", "head", *SETTINGS]
"""What makes two rows two; what validation chose does not."""
SAME = ("baseline", "seeds", "failed", "parameters")
TOLERATED = dict.fromkeys(("accuracy", "sd", "low", "high", "macro_f1"), "accuracy")
TOLERATED["difference"] = "difference"
"""Intervals of differences are not among them: p values near 0.05 decide how wide they are."""
COLUMNS = {
    pair.partition("=")[0]: pair.rpartition("=")[2]
    for pair in f"""
dataset encoder attention head {" ".join(f"{name}=recipe_{name}" for name in (*SETTINGS, "lr"))}
accuracy=accuracy_mean sd=accuracy_std macro_f1=macro_f1_mean seeds failed undertrained
low=accuracy_ci95_seeds_and_rows_low high=accuracy_ci95_seeds_and_rows_high
parameters=parameters_total baseline difference p_holm verdict
difference_low=ci95_corrected_low difference_high=ci95_corrected_high""".split()
}
"""Columns of ``rows.csv`` behind the first, and what ``gaam report --format csv`` calls them."""
OF_SEED = [
    "fingerprint",
    "attention",
    "head",
    "select",
    "pool",
    "layers",
    "lr",
    "train_rows",
]
OF_SEED += ["shots", "fold", "seed", "failed", "epoch", "accuracy", "macro_f1"]


@dataclass(frozen=True, slots=True)
class Step:
    """One command."""

    command: str
    options: Mapping[str, Any]  # with folders, and what is of this machine
    config: Any  # what the command makes of all of them

    def words(self) -> str:
        """The command as a shell takes it."""
        given = dict(self.options)
        first = [str(given.pop("out"))] if self.command == "plant" else []
        every = dataclasses.fields(COMMANDS[self.command][0])
        fields = {
            name: f
            for f in every
            for name in (f.name, settings.key_of(f).replace("-", "_"))
        }
        spelled = (
            settings.command_words(fields[name], value) for name, value in given.items()
        )
        return shlex.join(
            ["gaam", self.command, *first, *(w for words in spelled for w in words)]
        )


@dataclass(frozen=True, slots=True)
class Study:
    """A recipe that was read and checked, and where it is run: ``out`` is of all studies."""

    folder: Path
    recipe: Mapping[str, Any]  # as the file has it
    steps: tuple[Step, ...]
    out: Path


def read_study(
    what: str | Path,
    *,
    out: Path = Path("studies"),
    dataset: str | None = None,
    machine: Mapping[str, Any] | None = None,
) -> Study:
    """Read a study and check its settings, so that little is found wrong after hours.

    ``what`` is its folder, or the name of one in ``data/studies``; ``out`` the folder of all
    studies; ``dataset`` replaces that of every extraction; ``machine`` has settings of ``MACHINE``.
    """
    ours = {
        path.parent.name: path.parent
        for path in (data_path() / "studies").glob(f"*/{FILE}")
    }
    folder = Path(what).resolve()
    if not (folder / FILE).is_file():
        if str(what) not in ours:
            raise plugins.unknown(
                "study", str(what), sorted(ours), where=f"no {FILE} in {folder}"
            )
        folder = ours[str(what)]
    here = {**(machine or {}), **({"dataset": dataset} if dataset else {})}
    try:
        found = tomllib.loads((folder / FILE).read_text("utf-8"))
        _check("setting", found, TABLES)
        _check("tolerance", found.get("check", {}), TOLERANCES)
        steps = tuple(_steps(found, out, out / folder.name / "runs", here))
        for report in found.get("report", ()):
            _check("setting", _named(report["name"], report), REPORT)
        names = [report["name"] for report in found.get("report", ())]
        if not (steps and found.get("title")) or len({*names}) < len(names):
            raise ConfigError(
                "a study has a title, a cache, and reports of different names"
            )
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        where = str(folder / FILE)
        raise ConfigError(
            "no recipe of a study", found=str(error), where=where
        ) from error
    return Study(folder, found, steps, absolute_path(out))


def _steps(
    found: Mapping[str, Any], out: Path, runs: Path, here: Mapping[str, Any]
) -> Iterator[Step]:
    caches = found.get("caches", {})
    every = [(of.get("command", "extract"), name, of) for name, of in caches.items()]
    every += [("train", "train", of) for of in found.get("train", ())]
    for command, name, of in every:
        options = _named(name, of)
        options.pop("command", None)
        _check("command", [command], COMMANDS)
        places = {"cache": options.pop("cache", None)} if command == "train" else {}
        places |= {"from_cache": options.pop("from")} if "from" in options else {}
        _check("cache", places.values(), caches)
        places |= {} if command == "train" else {"out": name}
        places = {key: out / "caches" / of for key, of in places.items()}
        if foreign := sorted((DECIDED | {"cache"}) & {*options}):
            hint = "gaam study --set says what is of the machine"
            raise ConfigError(f"no setting of a study: {', '.join(foreign)}", hint=hint)
        places |= {"runs": runs} if command == "train" else {}
        cls = COMMANDS[command][0]
        mine = {k: v for k, v in here.items() if k in cls.__dataclass_fields__}
        config = settings.resolve(cls, command, {**options, **mine, **places})
        yield Step(command, {**options, **mine, **places}, config)


def _named(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names of arguments, of what has a name that files may have."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"bad name '{name}'", expected="small letters, digits, - and ."
        )
    return {key.replace("-", "_"): value for key, value in options.items()}


def _check(kind: str, found: Iterable[Any], known: Iterable[str]) -> None:
    for name in found:
        if name not in known:
            raise plugins.unknown(kind, str(name), sorted(known))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out, as JSON values and for people."""

    values: dict[str, Any]
    lines: list[str]
    exit_code: int = 0  # 1 where a check found differences

    def to_dict(self) -> dict[str, Any]:
        return self.values

    def in_words(self) -> str:
        return "\n".join(self.lines)


def estimate(study: Study) -> Outcome:
    """The commands, and roughly how long each takes as far as that is known; nothing is written."""
    of: dict[str, Any] = {
        "extract": gaam_cache.estimate,
        "train": gaam_decoder.estimate,
    }
    found, lines = [], []
    for step in study.steps:
        about = "not estimated"
        try:
            if command := of.get(step.command):
                about = f"about {duration(max(1, command(step.config).seconds))}"
        except GaamError as error:
            about = f"no estimate: {error.message}"
        found.append({"command": step.words(), "estimate": about})
        lines += [step.words(), f"  # {about}"]
    return Outcome({"commands": found}, lines)


def carry_out(
    study: Study,
    *,
    check: bool = False,
    record: bool = False,
    say: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Outcome:
    """Run what is missing, report what the recipe asks for, record that or compare it."""
    import pandas

    if check and not (study.folder / ROWS).is_file():
        hint = "gaam study FOLDER --record makes it"
        raise NotFoundError(
            f"nothing is recorded in '{study.folder}'", expected=ROWS, hint=hint
        )
    trained: list[RunResult] = []
    for step in study.steps:
        say(step.words())
        made = COMMANDS[step.command][1](step.config, progress=progress)
        if step.command == "train":
            gaam_decoder.check_failures(made, step.config.seeds)
            trained += made
    into = study.out / study.folder.name
    runs, names = (
        gaam_decoder.load_runs(into / "runs"),
        {run.path.name for run in trained},
    )
    runs[:] = [run for run in runs if run.path.name in names]
    values, files = _made(study, runs)
    for folder in (into, study.folder) if record else (into,):
        for name, content in files.items():
            write_file(folder / name, content)
    lines = [*values["answers"], f"{len(files)} files are in {shown_path(into)}"]
    if check:
        text = dict.fromkeys([*KEYS, *SAME], str)
        was, now = (
            pandas.read_csv(of / ROWS, dtype=text) for of in (study.folder, into)
        )
        values["differences"] = compare(
            was, now, TOLERANCES | study.recipe.get("check", {})
        )
        lines += [f"differs: {line}" for line in values["differences"]]
        lines.append(f"of {len(now)} rows {len(values['differences'])} values differ")
    exit_code = int(bool(values.get("differences")))
    return Outcome({"folder": str(into), **values}, lines, exit_code)


def _made(study: Study, runs: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    """All reports as JSON values, and every file that comes out, by name."""
    import pandas

    files, answers, rows, about = dict[str, bytes](), [], list[Any](), dict[int, Any]()
    tables: list[Table] = []
    for asked in study.recipe.get("report", ()):
        options = _named(asked["name"], asked)
        options |= {"every_candidate": options.pop("all", False)}
        called, titled = options.pop("name"), options.pop("title", asked["name"])
        if "cache" in options:
            options["cache"] = study.out / "caches" / options["cache"]
        found = gaam_decoder.report(runs, **options).tables
        tables += found
        for number, table in enumerate(found, 1):
            name, title = called, titled
            if len(found) > 1:
                name, title = f"{name}-{number}", f"{title}, {table.cache['encoder']}"
                title += f", {table.apart}" if table.apart else ""
            answers.append(f"{title}: {conclusion(table, advice=False)}")
            for drawn in list(overviews(table))[
                -1:
            ]:  # differences, or without any accuracies
                files |= svg_files(name, drawn)
            about[id(table)] = {
                "heading": title,
                "picture": name,
                "sheet": sheet(table, OF_STUDY),
            }
            about[id(table)] |= {
                "told": ("importance", *["pairs"] * ("pairs" in asked))
            }
            of = {"report": called, "cache": table.cache["fingerprint"][:12]}
            for of_row, row in zip(table.shown, table.to_dict()["rows"], strict=True):
                told = flat(row) | table.cache | {"seeds": spell_numbers(row["seeds"])}
                told["failed"] = told["failed_seeds"]
                one = of | {"tested_on": table.where, "label": of_row.label}
                rows.append(one | {k: told.get(v) for k, v in COLUMNS.items()})
    seeds = (frame := runs.to_frame()).loc[~frame["tuning_seed"], OF_SEED]
    seeds["fingerprint"] = seeds["fingerprint"].str[:12]
    # six digits: of accuracies of up to 100,000 rows nothing is lost
    for file, frame in ((ROWS, pandas.DataFrame(rows)), (SEEDS, seeds)):
        files[file] = frame.to_csv(index=False, float_format="%.6g").encode()
    words = {"question": "", "text": "", **study.recipe, "answers": answers}
    words["name"] = study.folder.name
    page = rendered("study.md", tables, plain, lambda t: about[id(t)], words, pipe=pipe)
    files[PAGE] = re.sub(r"\n{3,}", "\n\n", page).encode()
    return {"answers": answers, "rows": rows}, files


def compare(before: Any, after: Any, tolerances: Mapping[str, float]) -> list[str]:
    """What of rows differs from those that are recorded, a line each.

    Settings, seeds and counts have to be the very same; accuracies and differences may differ by
    the tolerances, in hundredths. Verdicts are not compared: a p near 0.05 falls on either side.
    """
    if (old := {*before["cache"]}) != (new := {*after["cache"]}):
        told = {
            "expected": f"caches {', '.join(sorted(old))}",
            "found": ", ".join(sorted(new)),
        }
        raise CacheError(
            "the study is of other states than those that are recorded", **told
        )
    both = before.merge(
        after, how="outer", on=KEYS, indicator=True, suffixes=("", "_now")
    )
    who = both[KEYS].apply(
        lambda row: " ".join(str(value) for value in row.dropna()), axis=1
    )
    found = [f"{one}: is not there" for one in who[both["_merge"] == "left_only"]]
    found += [f"{one}: is not recorded" for one in who[both["_merge"] == "right_only"]]
    for column in (*SAME, *TOLERATED):
        was, now = both[column], both[f"{column}_now"]
        same = (was == now) | (was.isna() & now.isna()) | (both["_merge"] != "both")
        if column in TOLERATED:
            same |= (was - now).abs() <= tolerances[TOLERATED[column]] / 100 + 1e-9
        found += [
            f"{who[at]}: {column} {now[at]}, recorded: {was[at]}"
            for at in both.index[~same]
        ]
    return found
