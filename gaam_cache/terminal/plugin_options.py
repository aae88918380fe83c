"""What options a plug-in has, read off its source: to import it would take a second.

``gaam_decoder.specs.plugin_options`` is what holds; this is for what is offered while one types.
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path


def read(package: str, name: str) -> dict[str, list[str]]:
    """Options of one of our plug-ins, each with the words that it may be; none for a number.

    Args:
        package: dotted name of the folder.
        name: of the plug-in. Of another distribution's nothing is known.
    """
    module = _Module(f"{package}.{name.replace('-', '_')}")
    public = [one for one in module.classes if not one.startswith("_")]
    return module.options(public[0]) if public else {}


class _Module:
    """The source of a module of ours, and where the names in it come from."""

    def __init__(self, name: str) -> None:
        top, *rest = name.split(".")
        spec = importlib.util.find_spec(top)
        folders = (spec and spec.submodule_search_locations) or []
        files = [Path(folder, *rest).with_suffix(".py") for folder in folders]
        texts = [file.read_text("utf-8") for file in files if file.is_file()]
        body = ast.parse(texts[0]).body if texts else []
        self.classes = {one.name: one for one in body if isinstance(one, ast.ClassDef)}
        self.values = {
            target.id: one.value
            for one in body
            if isinstance(one, ast.Assign)
            for target in one.targets
            if isinstance(target, ast.Name)
        }
        self.origins = {
            alias.name: one.module
            for one in body
            if isinstance(one, ast.ImportFrom) and one.module and one.module.startswith(f"{top}.")
            for alias in one.names
        }

    def options(self, name: str) -> dict[str, list[str]]:
        """The keyword-only arguments of the constructor of a class, or of the first base's."""
        if name not in self.classes:
            origin = self.origins.get(name)
            return _Module(origin).options(name) if origin else {}
        for one in self.classes[name].body:
            if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                return {arg.arg: self.words(arg.annotation) for arg in one.args.kwonlyargs}
        for base in self.classes[name].bases:
            if isinstance(base, ast.Name) and (found := self.options(base.id)):
                return found
        return {}

    def words(self, annotation: ast.expr | None) -> list[str]:
        """The words that an annotation allows: those of a Literal, or true and false."""
        if isinstance(annotation, ast.Subscript):
            constants = [one for one in ast.walk(annotation) if isinstance(one, ast.Constant)]
            return [one.value for one in constants if isinstance(one.value, str)]
        if not isinstance(annotation, ast.Name):
            return []
        if annotation.id == "bool":
            return ["true", "false"]
        if annotation.id in self.values:
            return self.words(self.values[annotation.id])
        origin = self.origins.get(annotation.id)
        return _Module(origin).words(annotation) if origin else []
