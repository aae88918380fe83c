"""Every block of the pages runs, in the order of its page, on small stand-ins.

A page is read as it is written: a bash block is run, a python block is executed in the
namespace of its page, and a block below a line such as "`sech.py`:" is written into
that file. A block below ``<!-- needs: GPU -->`` does not run here; its commands have to
exist all the same. Exit codes count, outputs are not compared.
"""

from __future__ import annotations

import linecache
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gaam_cache.common import plugins, settings
from gaam_cache.config import ExtractConfig
from gaam_decoder.config import TrainConfig
from tests.cli.test_readme import HEADING, LINK, anchor_of, parse
from tests.conftest import Outcome
from tests.docs import prepared

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
NEEDS = re.compile(r"<!-- needs: (.+?) -->\s*$")
FILE_NAME = re.compile(r"^ *`([\w.-]+\.\w+)`[^\n`]*:\s*\Z", re.MULTILINE)
RUN = re.compile(r"(?P<start>[\w./-]+/[\w-]+)-[0-9a-f]{8}-s\d[\d-]*")
"""The folder of a run: nobody knows its digits before it is there."""
SHELL_SIGNS = re.compile(r"[|<>;&$`*]")
FETCHES = re.compile(r"\b(pip|make|docker|git|hf|sbatch|curl|uvicorn)\b")


@dataclass(frozen=True)
class Block:
    """A block of code on a page.

    Attributes:
        code: its text.
        language: bash, python, toml or another.
        line: number of its first line in the page.
        needs: what this machine lacks for it; empty if it runs here.
        file: name of the file that its text is written into; empty for none.
    """

    code: str
    language: str
    line: int
    needs: str
    file: str


def read_blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for match in BLOCK.finditer(text):
        before = text[: match.start()]
        needs = NEEDS.search(before)
        file = FILE_NAME.search(NEEDS.sub("", before))
        yield Block(
            code=textwrap.dedent(match["code"]),
            language=match["language"],
            line=before.count("\n") + 2,
            needs=needs[1] if needs else "",
            file=file[1] if file else "",
        )


def statements(code: str) -> list[str]:
    """The commands of a bash block, without comments."""
    if "<<" in code:
        return [code]
    lines = code.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def gaam_words(statement: str) -> list[str]:
    """The words after gaam; none where the shell itself has to run the statement."""
    if SHELL_SIGNS.search(re.sub(r"'[^']*'|\"[^\"$`]*\"|\s#.*", "", statement)):
        return []
    words = shlex.split(statement, comments=True)
    return words[1:] if words[:1] == ["gaam"] else []


def with_true_names(text: str) -> str:
    """The text with the folders of runs as they are called here."""

    def newest(match: re.Match[str]) -> str:
        start = Path(match["start"])
        pattern = start.name.replace("-linear", "*-linear") + "*-s*"
        runs = sorted(start.parent.glob(pattern), key=os.path.getmtime)
        return str(runs[-1]) if runs else match[0]

    return RUN.sub(newest, text)


Run = Callable[[Block], None]


@pytest.fixture
def run_bash(gaam: Callable[..., Outcome], tmp_path: Path) -> Run:
    """A function that runs the commands of a block, those of gaam in this process."""
    programs = tmp_path / ".programs"
    programs.mkdir()
    script = programs / "gaam"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "cli.py"} "$@"\n')
    script.chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }

    def run(block: Block) -> None:
        for statement in map(with_true_names, statements(block.code)):
            words = gaam_words(statement)
            if words:
                outcome = gaam(*words)
                assert outcome.code == 0, f"{statement}\n{outcome.err}"
                continue
            assert not FETCHES.search(statement), f"'needs' is missing: {statement}"
            command = ["bash", "-euc", statement]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, f"{statement}\n{done.stderr}"

    return run


@pytest.fixture
def run_python(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that executes blocks in one namespace, as the cells of a notebook."""
    page = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)

    def run(block: Block) -> None:
        code = with_true_names(block.code)
        name = f"<block of line {block.line}>"
        # the source of a class is hashed when it is trained
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        exec(compile(code, name, "exec"), page.__dict__)

    return run


def check_configuration(block: Block, file: Path) -> None:
    """Read a configuration as --config does; of other files only the form is checked."""
    sections = tomllib.loads(block.code).keys()
    file.write_text(block.code, "utf-8")
    for name, config in (("extract", ExtractConfig), ("train", TrainConfig)):
        if name in sections and sections <= {"extract", "train"}:
            settings.resolve(config, name, {}, config_file=file)


def check_only(block: Block) -> None:
    """Look at a block that cannot run here."""
    if block.language == "python":
        compile(block.code, "page", "exec")
    elif block.language == "bash":
        for statement in statements(block.code):
            if words := gaam_words(statement):
                parse(words)


@pytest.fixture(scope="session")
def tiny_encoders(tmp_path_factory: pytest.TempPathFactory) -> prepared.TinyEncoders:
    return prepared.build_encoders(tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_or_say_what_they_need(
    page: Path,
    run_bash: Run,
    run_python: Run,
    tiny_encoders: prepared.TinyEncoders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # each page has its own session, and may call a class as another page does
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    text = page.read_text("utf-8")
    for word, write in prepared.WRITERS.items():
        if word in text:
            write(tmp_path)
    prepared.use_tiny_encoders(monkeypatch, tiny_encoders)
    prepared.use_short_trainings(monkeypatch)
    for block in read_blocks(page):
        if block.needs:
            check_only(block)
        elif block.file:
            (tmp_path / block.file).write_text(block.code, "utf-8")
        elif block.language == "bash":
            run_bash(block)
        elif block.language == "python":
            run_python(block)
        elif block.language == "toml":
            check_configuration(block, tmp_path / "page.toml")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_linked_files_and_headings_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    for link in LINK.findall(BLOCK.sub("", text)):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            headings = HEADING.findall(target.read_text("utf-8"))
            assert anchor in {anchor_of(heading) for heading in headings}, link
