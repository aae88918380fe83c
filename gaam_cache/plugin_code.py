"""By what code a plug-in computes: a digest that tells two versions of it apart."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

from gaam_cache import plugins
from gaam_cache.store.digest import digest_of


@functools.cache
def code(package: str, name: str, *, kind: str) -> str:
    """Eight digits that change with the code of a plug-in's module, though not with its words.

    Comments and docstrings do not count. Where it is not ours, they change with the code of its
    whole package, and stand after the distribution and its version, as ``plugins.origin`` has them.
    """
    home = plugins.load(package, name, kind=kind).__module__
    where = plugins.origin(package, name)
    digest = digest_of(*(_code(file).encode() for file in _sources(home, whole=where is not None)))
    return f"{where} {digest[:8]}" if where else digest[:8]


def _sources(module: str, *, whole: bool) -> list[Path]:
    """The files of a module, or of the package that it lies in."""
    top = sys.modules.get(module.partition(".")[0])
    if whole and (folders := getattr(top, "__path__", None)):
        return sorted(file for folder in folders for file in Path(folder).rglob("*.py"))
    file = getattr(sys.modules.get(module), "__file__", None)
    return [Path(file)] if file and file.endswith(".py") else []


def _code(file: Path) -> str:
    """What a file does, in one spelling."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""  # it is not imported either
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):  # without docstrings
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_text(line: ast.AST) -> bool:
    if not isinstance(line, ast.Expr) or not isinstance(line.value, ast.Constant):
        return False
    return isinstance(line.value.value, str)
