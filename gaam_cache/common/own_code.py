"""A hash of all the code that a person's own class computes with.

A class of a file computes with this file, and with the modules of this person that it
imports. A class of a notebook computes with its cell. Modules of Python, of installed
packages and of gaam are not a person's own.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dis
import functools
import hashlib
import importlib.util
import inspect
import linecache
import os
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from gaam_cache.common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

GAAM = frozenset({"gaam_cache", "gaam_decoder"})
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages."""
STANDARD_LIBRARY = Path(os.__file__).parent
READS = frozenset({"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"})
"""Instructions of Python that may read a global."""
PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes)
"""Types of globals whose value is recorded."""
Modules = dict[str, Path]
"""Modules of a person: name -> file."""

_seen_modules: dict[str, tuple[object, str]] = {}
"""Name of a module -> how it was imported, and the hash of its file at first sight.

Python makes another ``ModuleSpec`` when it imports or reloads a module again.
"""


class RemembersCode:
    """A base of classes that a person may extend; such a class knows its code.

    A file may change after it was imported: then other code runs than it holds.
    """

    code_when_imported: Mapping[Path, str] = {}
    """Hash of each file of the person that the class is made from."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Note the code when Python makes the class."""
        super().__init_subclass__(**options)
        cls.code_when_imported = {}
        # code that cannot be read is told when the class is used
        with contextlib.suppress(ConfigError, OSError, SyntaxError, ValueError):
            cls.code_when_imported = {
                path: _hash_when_imported(name, path)
                for name, path in _modules_of(cls).items()
            }


def hash_of_class(cls: type, kind: str) -> str:
    """A hash of the code that a class of a person's own computes with.

    Args:
        cls: the class, of a file or of a cell of a notebook.
        kind: what people call such a plug-in, for messages.

    Raises:
        ConfigError: the code is not known, or has changed after it was imported.
    """
    for base in cls.__mro__:
        noted = vars(base).get("code_when_imported", {})
        for path, hash_when_imported in noted.items():
            if _hash_of_file(path) != hash_when_imported:
                raise _changed_file_error(path)

    source = source_file(cls)
    modules = _modules_of(cls)
    if source.is_file():
        parts = [canonical_code(source.read_bytes())]
        modules.pop(cls.__module__, None)
    else:
        cell = _Cell(cls, kind)
        parts = [canonical_code(cell.text.encode()), *cell.values()]
    # the names of modules do not depend on a folder
    for name, path in sorted(modules.items()):
        parts.append(f"# {name}\n{_code_of_file(path)}")
    return short_hash("\n".join(parts))


def _changed_file_error(path: Path) -> ConfigError:
    return ConfigError(
        f"'{path.name}' changed after it was imported",
        expected="the code that Python imported, which is the code that runs",
        found="other code in the file",
        where=str(path),
        hint="restart Python; or importlib.reload this module, then that of your class",
    )


def short_hash(text: str) -> str:
    """The first 32 bits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@functools.cache
def canonical_code(text: bytes) -> str:
    """Python code in one spelling, without comments and docstrings.

    Files that differ in layout and comments alone have the same result, and so the same
    hash.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        # the body of a lambda is an expression, not a list of statements
        if isinstance(body, list):
            statements = [
                statement for statement in body if not _is_string_alone(statement)
            ]
            node.body = statements  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_string_alone(statement: ast.AST) -> bool:
    """Whether a statement is nothing but a string, such as a docstring."""
    if not isinstance(statement, ast.Expr):
        return False
    return isinstance(getattr(statement.value, "value", None), str)


def source_file(cls: type) -> Path:
    """The file that defines a class; of one typed into a session ``Path()``."""
    try:
        return Path(inspect.getsourcefile(cls) or "")
    # Python knows no file of a class of a notebook
    except (OSError, TypeError):
        return Path()


def _code_of_file(path: Path) -> str:
    """The canonical code of a file; of one that is no code of Python a hash."""
    try:
        content = path.read_bytes()
    # a file that is gone has no code
    except OSError:
        return ""
    try:
        return canonical_code(content)
    except (SyntaxError, ValueError):
        return hashlib.sha256(content).hexdigest()


def _hash_of_file(path: Path) -> str:
    return short_hash(_code_of_file(path))


def _hash_when_imported(name: str, path: Path) -> str:
    """The hash of the file of a module when gaam saw it first after its import."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    # a script has no spec, and a module that is imported later has no code yet
    if spec is None:
        return _hash_of_file(path)
    if name not in _seen_modules or _seen_modules[name][0] is not spec:
        _seen_modules[name] = (spec, _hash_of_file(path))
    return _seen_modules[name][1]


def _modules_of(cls: type) -> Modules:
    """The modules of a person that a class computes with; its own is among them."""
    module = sys.modules.get(cls.__module__)
    path = _file_of(module)
    if _is_own(cls.__module__, path):
        return _with_imports({cls.__module__: path})
    if source_file(cls).is_file():
        return {}
    return _with_imports(_Cell(cls).modules())


def _file_of(module: ModuleType | None) -> Path:
    return Path(getattr(module, "__file__", None) or "")


def _is_own(name: str, path: Path) -> bool:
    """Whether a module is a person's own."""
    if name.partition(".")[0] in GAAM or not INSTALLED.isdisjoint(path.parts):
        return False
    return path.is_file() and not path.is_relative_to(STANDARD_LIBRARY)


def _with_imports(modules: Modules) -> Modules:
    """Some modules, and all of the same person that they import, directly or not."""
    found: Modules = {}
    waiting = list(modules.items())
    while waiting:
        name, path = waiting.pop()
        if name not in found:
            found[name] = path
            waiting += _imports_of_file(name, path)
    return found


def _imports_of_file(name: str, path: Path) -> Iterator[tuple[str, Path]]:
    """Names and files of a person's modules that the statements of a file import."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module_name = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(module_name, package)
            # what follows may be a module, too
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for imported_name in names:
            yield from _own_modules_above(imported_name)


def _own_modules_above(name: str) -> Iterator[tuple[str, Path]]:
    """A module of a person and the packages that it is in; none for other names."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        module_name = ".".join(parts[:end])
        path = _file_of(sys.modules.get(module_name))
        if module_name not in sys.modules:
            # a function may import its module later
            with contextlib.suppress(ImportError, ValueError, AttributeError):
                spec = importlib.util.find_spec(module_name)
                path = Path((spec and spec.origin) or "")
        if _is_own(module_name, path):
            yield module_name, path
        # a folder without __init__.py has no file, but modules
        elif path != Path():
            return


class _Cell:
    """The cell of a notebook that defines a class.

    What the class reads stands in this cell, is imported, or is a plain value. Other
    cells may change without a trace, so that what they define is refused.
    """

    def __init__(self, cls: type, kind: str = "class") -> None:
        self._class_name = cls.__name__
        self.text = ""
        for member in vars(cls).values():
            # a static method or a property holds its function; a decorator wraps it
            function = getattr(member, "__func__", getattr(member, "fget", member))
            function = inspect.unwrap(function)
            code = getattr(function, "__code__", None)
            # a function of a file is not from the cell
            if code is None or Path(code.co_filename).is_file():
                continue
            # Python keeps the text of a cell under the name of the code of each method
            self.text = "".join(linecache.getlines(code.co_filename))
            self._globals = function.__globals__
            if self.text:
                return
        raise ConfigError(
            f"the code of the {kind} '{cls.__name__}' is not known, and runs record it",
            expected="a class of a file or of a notebook",
            found="a class without a method of its own, or one typed into a session",
            hint=f"write it into a file, and import it or say FILE.py:{cls.__name__}",
        )

    def values(self) -> list[str]:
        """``NAME = VALUE`` for all that the class reads from outside of the cell."""
        lines = []
        for name, value in self._values_from_outside().items():
            text = repr(value)
            module = _module_of(value)
            if module is not None:
                text = f"{module.__name__} {getattr(value, '__qualname__', '')}"
            lines.append(f"{name} = {text}")
        return lines

    def modules(self) -> Modules:
        """The modules of the person that the class reads."""
        modules: Modules = {}
        for name, value in self._values_from_outside().items():
            module = _module_of(value)
            if module is not None:
                if _is_own(module.__name__, _file_of(module)):
                    modules[module.__name__] = _file_of(module)
            elif not isinstance(value, PLAIN_TYPES):
                raise ConfigError(
                    f"your class reads '{name}' of another cell, which runs cannot "
                    "record",
                    expected="imported names, numbers or texts",
                    found=f"{type(value).__module__}.{type(value).__qualname__}",
                    hint=f"define '{name}' in the cell of '{self._class_name}', or "
                    "write both into a file",
                )
        return modules

    def _values_from_outside(self) -> dict[str, Any]:
        """Global -> value, for those that the class reads and the cell lacks."""
        names = _names_from_outside(self.text, self._class_name)
        return {
            name: self._globals[name]
            for name in sorted(names)
            if name in self._globals and not name.startswith("__")
        }


def _module_of(value: object) -> ModuleType | None:
    """The module that a value is, or that defines it; None for values of a session."""
    if isinstance(value, ModuleType):
        return value
    # an object, and its methods, have the module of its class
    owner = getattr(value, "__self__", None)
    is_of_object = owner is not None and not isinstance(owner, type | ModuleType)
    if is_of_object or not hasattr(value, "__qualname__"):
        return None
    module = sys.modules.get(getattr(value, "__module__", None) or "builtins")
    is_imported = module is not None and module.__name__ != "__main__"
    return module if is_imported else None


def _names_from_outside(text: str, class_name: str) -> set[str]:
    """Names that a class reads, directly or not, and that its cell does not define."""
    statements_by_name: dict[str, list[ast.stmt]] = {}
    for statement in ast.parse(text).body:
        for name in _names(statement, frozenset({"STORE_NAME"}), nested=False):
            statements_by_name.setdefault(name, []).append(statement)

    outside: set[str] = set()
    known: set[str] = set()
    waiting = [class_name]
    while waiting:
        name = waiting.pop()
        if name in known or hasattr(builtins, name):
            continue
        known.add(name)
        if name not in statements_by_name:
            outside.add(name)
        for statement in statements_by_name.get(name, ()):
            # names of a class body are its own
            own_names = _names(statement, frozenset({"STORE_NAME"}), nested=True)
            waiting += _names(statement, READS, nested=True) - own_names | (
                _names(statement, READS, nested=False)
            )
    return outside


def _names(statement: ast.stmt, operations: Iterable[str], *, nested: bool) -> set[str]:
    """Names in the instructions of a statement, or of the functions and classes in it.

    Args:
        statement: of a cell, which may wait for others (``await``).
        operations: names of instructions, such as ``LOAD_GLOBAL``.
        nested: whether those of functions and classes count, not those around them.
    """
    tree = ast.Module([statement], type_ignores=[])
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(tree, "cell", "exec", flags=flags, dont_inherit=True)
    codes = [code]
    if nested:
        codes = list(_codes_inside(code))
    return {
        instruction.argval
        for code in codes
        for instruction in dis.get_instructions(code)
        if instruction.opname in operations
    }


def _codes_inside(code: CodeType) -> Iterator[CodeType]:
    """The code of all functions and classes in some code."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_inside(constant)
