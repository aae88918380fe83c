"""Write the pages of the reference that follow from the code.

    python docs/generate.py

A test compares the pages with what this script makes.
"""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import typer.main

import cli
import gaam_cache
import gaam_decoder
from gaam_cache.common import settings
from gaam_decoder.reports.columns import COLUMNS, VERDICTS

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py: change the code, then run it. -->"
DEFAULT = re.compile(r"\s*\[(?:default: (?P<default>[^]]*)|required)[^]]*\]$")
"""The end of an option's help that says its default."""
RANGE = re.compile(r"; [\d<=]*x[\d<=>]*$")
"""The range of a number behind its default."""
CONFIGURATION = """[extract]
dataset = "messages.csv"
max-length = 256
shard-rows = 512

[train]
attn = ["gaam", "laplace:heads=1"]
seeds = "0-31\""""
CHOSEN_COLUMNS = """ decoder       accuracy %  p Holm  would decide
────────────────────────────────────────────────────────
 none + lbfgs        97.5
 gaam:heads=2        97.0   1.000  about 1,200 test rows
 none                96.8"""
EXIT_CODES = {
    0: "done",
    1: "failed",
    2: "wrong usage: an option, a setting or a path",
    3: "data is incomplete or corrupt",
    130: "interrupted; finished shards and seeds are kept",
}


def cell(text: str) -> str:
    """A text as a cell of a Markdown table."""
    words = " ".join(text.split())
    return words.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def code(text: str) -> str:
    """A text as code in a cell of a Markdown table; empty for no text."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def command_line() -> str:
    """The page of the command line: every command with its options."""
    group: Any = typer.main.get_command(cli.app)
    context = typer.Context(group, info_name="gaam")
    lines = [
        "# Command line",
        NOTE,
        "`gaam COMMAND --help` shows the same. `gaam --install-completion` teaches "
        "your shell the commands, their options and the names of mechanisms.",
    ]
    rows = [
        [f"[`gaam {name}`](#gaam-{name})", cell(first_paragraph(command.help))]
        for name, command in group.commands.items()
    ]
    lines.append("\n".join(table(["command", "what it does"], rows)))
    for name, command in group.commands.items():
        lines += _describe_command(name, command, context)
    lines.append("## Exit codes")
    codes = [[str(number), text] for number, text in EXIT_CODES.items()]
    lines.append("\n".join(table(["code", "meaning"], codes)))
    return "\n\n".join(lines) + "\n"


def first_paragraph(text: str) -> str:
    return text.split("\n\n")[0]


def _describe_command(name: str, command: Any, parent: Any) -> list[str]:
    """The heading, the help and the options of a command, in order."""
    context = typer.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## gaam {name}", f"    gaam {name} {usage}"]
    lines += [" ".join(part.split()) for part in command.help.split("\n\n")]

    rows_by_panel: dict[str, list[list[str]]] = {}
    for parameter in command.params:
        record = parameter.get_help_record(context)
        panel = getattr(parameter, "rich_help_panel", None) or ""
        if record is not None:
            rows_by_panel.setdefault(panel, []).append(_option_row(*record))
    for panel, rows in rows_by_panel.items():
        if panel:
            lines.append(f"**{panel}**")
        lines.append("\n".join(table(["option", "meaning", "default"], rows)))
    return lines


def _option_row(names: str, sentence: str) -> list[str]:
    """The cells of an option: its names, its meaning and its default."""
    match = DEFAULT.search(sentence)
    default = (match["default"] or "") if match else ""
    default = RANGE.sub("", default)
    if default.startswith("("):
        shown_default = cell(default.strip("()"))
    else:
        shown_default = code(default)
    return [code(names), cell(DEFAULT.sub("", sentence)), shown_default]


def all_settings() -> str:
    """The page of all settings of the commands that have a configuration."""
    lines = [
        "# Settings",
        NOTE,
        "A setting that is an option has the same name on the command line: "
        "`--max-length 256`. Every other setting is given by `--set KEY=VALUE`, "
        "which also takes the name of an option: `--set epochs=8`. Both are keys of a "
        "configuration file, which `--config FILE` reads:",
        f"```toml\n{CONFIGURATION}\n```",
        "The first of these that names a setting decides it: the command line, "
        "`--config`, `--preset`, the default. `gaam describe --settings` prints this "
        "page.",
    ]
    for command, config in cli.SETTINGS.items():
        rows = [
            [
                code(setting.key),
                "yes" if setting.option else "",
                cell(setting.in_words()),
            ]
            for setting in settings.settings_of(config)
        ]
        lines.append(f"## gaam {command}")
        header = ["setting", "option", "meaning"]
        lines.append("\n".join(table(header, rows)))
    return "\n\n".join(lines) + "\n"


def python() -> str:
    """The page of what Python programs call: a table, then all docstrings."""
    lines = [
        "# Python",
        NOTE,
        "Both packages are typed. Errors are `gaam_cache.GaamError`, with the same "
        "message as on the command line. `make docs` builds these pages, with the "
        "docstrings of all names; `help(gaam_decoder.train)` shows one.",
    ]
    for package in (gaam_cache, gaam_decoder):
        rows = [
            [code(_call(package, name)), _summary(package, name)]
            for name in package.__all__
        ]
        lines.append(f"## {package.__name__}")
        lines.append("\n".join(table(["name", "what it is"], rows)))
        lines += [f"::: {package.__name__}.{name}" for name in package.__all__]
    return "\n\n".join(lines) + "\n"


def _call(package: ModuleType, name: str) -> str:
    """The name of a class, or that of a function with its parameters."""
    member = getattr(package, name)
    if not inspect.isfunction(member):
        return name
    parameters = inspect.signature(member).parameters.values()
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in names:
            names.append("*")
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        names.append(stars + parameter.name)
    return f"{name}({', '.join(names)})"


def _summary(package: ModuleType, name: str) -> str:
    """The first line of a docstring, without the marks of code."""
    docstring = inspect.getdoc(getattr(package, name)) or ""
    return cell(first_paragraph(docstring).replace("``", ""))


def report_columns() -> str:
    """The page of what the columns of a report show."""
    columns = [
        [cell(column.header.format(score="accuracy %")), cell(column.note)]
        for column in COLUMNS
    ]
    verdicts = [[verdict, cell(note)] for verdict, note in VERDICTS.items()]
    lines = [
        "# Columns of a report",
        NOTE,
        "`gaam report --explain` prints what each column and each verdict says. "
        "`--columns` chooses columns, in any order; hyphens may stand for spaces, and "
        "case does not matter:",
        "<!-- needs: finished runs -->\n"
        "```bash\n"
        "gaam report --explain\n"
        "gaam report --columns decoder,accuracy,p-holm,would-decide\n"
        "```",
        f"```text\n{CHOSEN_COLUMNS}\n```",
        "A name may be written without its unit, and with `-` for a space. With "
        "`--score` the column of the accuracy has the name of that score.",
        "\n".join(table(["column", "what it shows"], columns)),
        "## Verdicts",
        "\n".join(table(["verdict", "when a decoder gets it"], verdicts)),
    ]
    return "\n\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "python.md": python,
    "report-columns.md": report_columns,
    "settings.md": all_settings,
}
"""Page of the reference -> the function that makes it."""


if __name__ == "__main__":
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), "utf-8")
