"""Who may import whom, and what a command loads."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import GOLDEN

ROOT = Path(__file__).parents[2]
PACKAGES = ("gaam_cache", "gaam_decoder")
READ_BY_DECODERS = {"common", "config", "store", "targets", "workers"}
"""Rooms of the cache that decoders read."""
ASKED_BY_DECODERS = {
    "use": {"extraction", "hub", "sources"},
    "analysis": {"importing"},
    "study.py": {"extraction"},
}
"""Rooms of decoders that ask the cache to do something, and which rooms do it."""


def imports(path: Path) -> set[str]:
    """Dotted names that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                node.module,
                *(f"{node.module}.{alias.name}" for alias in node.names),
            }
    return found


def files(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found
    return found


def test_the_decoder_imports_only_the_read_side_of_the_cache() -> None:
    for path in files("gaam_decoder"):
        for name in imports(path):
            parts = name.split(".")
            assert parts[0] not in {"transformers", "datasets", "cli"}, path
            if parts[0] == "gaam_cache" and len(parts) > 1:
                allowed = set(READ_BY_DECODERS)
                for room, asked in ASKED_BY_DECODERS.items():
                    if room in path.parts:
                        allowed |= asked
                assert parts[1] in {*allowed, "open_cache"}, f"{path} imports {name}"


def test_the_cache_never_imports_the_decoder() -> None:
    for path in files("gaam_cache"):
        assert not {
            n for n in imports(path) if n.split(".")[0] in {"gaam_decoder", "cli"}
        }, path


@pytest.mark.parametrize("folder", ["attention", "heads"])
def test_mechanisms_and_heads_know_neither_training_nor_reports(folder: str) -> None:
    banned = {"training", "runs", "analysis", "reports", "stats"}
    for path in files(f"gaam_decoder/{folder}"):
        for name in imports(path):
            assert not (
                name.startswith("gaam_decoder.") and name.split(".")[1] in banned
            ), path


def test_reports_read_run_results_alone() -> None:
    for path in files("gaam_decoder/reports"):
        ours = {
            n
            for n in imports(path)
            if n.split(".")[0] in {"gaam_decoder", "gaam_cache"}
        }
        modules = {n.split(".")[1] for n in ours if n.count(".")}
        of_runs = {"runs", "stats", "reports", "analysis"}
        shared = {"common", "config", "number_lists", "specs", "store", "tasks"}
        assert modules <= of_runs | shared, path


def arrows() -> dict[str, set[str]]:
    """What every module of both packages imports of them when it runs, by dotted name."""
    modules = {}
    for path in [*files("gaam_cache"), *files("gaam_decoder")]:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        modules[name.removesuffix(".__init__")] = path
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):  # what only a type checker reads is no arrow
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        written = {
            f"{node.module}.{alias.name}" for node in nodes for alias in node.names
        }
        written |= {str(node.module) for node in nodes}
        written |= {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        found[name] = (written & modules.keys()) - {name, *PACKAGES}
    return found


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Sets of names each of which leads to each other."""
    reached = {}
    for name in arrows:
        seen, todo = set(), [name]
        while todo:
            for following in arrows.get(todo.pop(), ()):
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        reached[name] = seen
    found = [
        {b for b in reached[a] if a in reached.get(b, ())}
        for a in arrows
        if a in reached[a]
    ]
    return [circle for place, circle in enumerate(found) if circle not in found[:place]]


def test_no_module_imports_in_a_circle() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [{"b", "c"}]
    found = arrows()
    assert len(found) > 150
    assert not circles(found)


def test_nothing_unsafe_is_used() -> None:
    banned = {"pickle", "dill", "joblib", "cloudpickle"}
    for path in [ROOT / "cli.py", *files("gaam_cache"), *files("gaam_decoder")]:
        assert not imports(path) & banned, path
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
                assert ast.literal_eval(node.value) is False, path
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load":
                pytest.fail(f"{path} uses torch.load")


WALK = """
import os, sys
from gaam_cache.common.terminal import entry
for words in sys.argv[1:]:
    sys.argv = ["gaam", *words.split()]
    if words.endswith("?"):
        os.environ |= {"COMP_WORDS": f"gaam {words[:-1]}", "COMP_CWORD": str(len(words.split()))}
        os.environ["_GAAM_COMPLETE"] = "complete_bash"
    try:
        entry()
    except SystemExit as stop:
        assert not stop.code, words
    assert not set(BANNED) & set(sys.modules), words
"""
"""Commands in one process; a shell completes the words of those that end with a question mark."""
LOUD = "[gaam.attention]\nloud = loud_gate:A\n[gaam.formats]\nloud = loud_gate:F\n"
"""What another package offers, that cannot be imported."""
KINDS: dict[str, tuple[set[str], str]] = {
    "help": (
        {"torch", "transformers", "datasets", "h5py", "numpy", "scipy", "rich"},
        "--help; extract --help; train --help; ablate --help; report --help; inspect --help; "
        "verify --help; ex?; train --tr?; train --attn la?; train --preset pa?; study pla?; "
        "report --format la?",
    ),
    "look": (
        {"torch", "transformers", "datasets", "huggingface_hub"},
        "runs {old}; inspect {old}; verify {old}; verify {cache}",
    ),
    "train": (
        {"transformers", "datasets", "huggingface_hub"},
        "train --cache {cache} --runs {new} --seeds 1 --lr 1 --epochs 2; report {new}; "
        "inspect {new}",
    ),
}
"""What commands must not import, and the commands."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_imports_no_more_than_it_needs(
    kind: str, tiny_cache: Path, tmp_path: Path
) -> None:
    """Nor what other packages offer, which it only lists."""
    about = tmp_path / "loud-3.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 3\n")
    (about / "entry_points.txt").write_text(LOUD)
    banned, words = KINDS[kind]
    words = words.format(
        old=GOLDEN / "v0.1.0" / "runs", cache=tiny_cache, new=tmp_path / "runs"
    )
    shown = subprocess.run(
        [sys.executable, "-c", f"BANNED = {banned}\n{WALK}", *words.split("; ")],
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}, cwd=tmp_path,
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert ("loud" in shown.stdout) == (kind == "help")
