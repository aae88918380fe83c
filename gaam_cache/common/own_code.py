"""A hash of all the code that a person's own class computes with.

A class of a file computes with this file, and with the modules of this person that it
imports. A class of a notebook computes with its cell. Modules of Python, of installed
packages and of gaam are not a person's own.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import hashlib
import importlib.util
import inspect
import linecache
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

from gaam_cache.common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GAAM = frozenset({"gaam_cache", "gaam_decoder"})
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages."""
STANDARD_LIBRARY = Path(os.__file__).parent
LOOKUPS_OF_BODY = frozenset({"LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
"""Instructions of a class body that read its names, and else globals."""
PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes)
"""Types whose values are recorded."""
Modules = dict[str, Path]
"""Modules of a person: name -> file."""

_seen_modules: dict[str, tuple[object, str]] = {}
"""Name of a module -> its ``__spec__``, and the hash of its file at first sight."""


class RemembersCode:
    """A base of classes that a person may extend; such a class knows its code.

    If a file changes after it was imported, the code that runs is not that of the file.
    """

    code_when_imported: Mapping[Path, str] = {}
    """Hash of each file of the person that the class is made from."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Note the code when Python makes the class."""
        super().__init_subclass__(**options)
        cls.code_when_imported = {}
        # ``hash_of_class`` raises the error about code that cannot be read
        with contextlib.suppress(ConfigError, OSError, SyntaxError, ValueError):
            cell = None if source_file(cls).is_file() else _Cell(cls)
            cls.code_when_imported = {
                path: _hash_when_imported(name, path)
                for name, path in _modules_of(cls, cell).items()
            }


def hash_of_class(cls: type, kind: str, given_file: Path | None = None) -> str:
    """A hash of the code that a class of a person's own computes with.

    Args:
        cls: the class, of a file or of a cell of a notebook.
        kind: what people call such a plug-in, for messages.
        given_file: the file that the person named, which may import the class.

    Raises:
        ConfigError: the code is not known, or has changed after it was imported.
    """
    for base in cls.__mro__:
        noted = vars(base).get("code_when_imported", {})
        for path, hash_when_imported in noted.items():
            if _hash_of_file(path) != hash_when_imported:
                raise _changed_file_error(path)

    source = source_file(cls)
    # Python takes its own module for that of a class made by ``type(...)``
    if _is_of_python(source):
        raise _unknown_code_error(cls, kind)
    if source.is_file():
        modules = _modules_of(cls)
        parts = [_code_of_file(source)]
        # the file of the class comes first, under no name
        modules.pop(cls.__module__, None)
    else:
        cell = _Cell(cls, kind)
        modules = _modules_of(cls, cell)
        parts = [canonical_code(cell.text.encode()), *cell.values()]
    if given_file is not None and given_file.resolve() != source.resolve():
        modules |= _with_imports({given_file.stem: given_file})
    # modules have their names, not their paths: a folder may be moved
    for name, path in sorted(modules.items()):
        parts.append(f"# {name}\n{_code_of_file(path)}")
    parts += _values_of(cls)
    return short_hash("\n".join(parts))


def _values_of(cls: type) -> list[str]:
    """``NAME = VALUE`` for the plain values that a class computes with, sorted.

    A loop, a function around the class or a later statement may have set them, so that
    the text of the class does not say them. The class and its own bases hold them, and
    they and the person's functions that they call read them: as globals, as defaults
    of arguments, or from a function around them.

    Raises:
        ConfigError: a function reads another value of a function around it.
    """
    lines: set[str] = set()
    waiting: list[object] = []
    for base in cls.__mro__:
        if not _is_own_module(base.__module__):
            continue
        waiting += _functions_of(base)
        for name, value in vars(base).items():
            # a static method holds its function
            text = _text_of_value(getattr(value, "__func__", value))
            if text is not None and not name.startswith("__"):
                lines.add(f"{base.__name__}.{name} = {text}")

    visited: list[FunctionType] = []
    while waiting:
        function = waiting.pop()
        if not _is_own_function(function) or function in visited:
            continue
        visited.append(function)
        around = _variables_around(function)
        for name, value in (_values_read(function) | around).items():
            text = _text_of_value(value)
            if text is not None:
                lines.add(f"{name} = {text}")
            elif name in around:
                raise _unrecorded_value_error(name.split()[1], value)
            waiting.append(value)
    return sorted(lines)


def _unrecorded_value_error(name: str, value: object) -> ConfigError:
    return ConfigError(
        f"your class reads '{name}' of a function around it, which runs cannot record",
        expected="a number, a text, an array, a tuple of such, or a function",
        found=_type_in_words(value),
        hint="give it as an option, or define it outside of the function",
    )


def _text_of_value(value: Any) -> str | None:
    """A text that differs for different values; None for an object, a list or a dict.

    Those may change while they are used. A function or a class has its name.
    """
    if isinstance(value, PLAIN_TYPES):
        return repr(value)
    if isinstance(value, FunctionType | BuiltinFunctionType | type):
        return value.__qualname__
    if type(value) is tuple:
        texts = [_text_of_value(part) for part in value]
        return f"({', '.join(map(str, texts))})" if None not in texts else None
    # a number, an array or a tensor
    if type(value).__module__ in ("numpy", "torch") and hasattr(value, "tolist"):
        return f"{value.dtype} {short_hash(repr(value.tolist()))}"
    return None


def _values_read(function: FunctionType) -> dict[str, object]:
    """Name -> value of the globals that a function reads, and of its defaults."""
    names = _globals_read(function.__code__)
    for code in _codes_inside(function.__code__):
        names |= _globals_read(code)
    values = {
        name: function.__globals__[name] for name in names & function.__globals__.keys()
    }
    with contextlib.suppress(ValueError, TypeError):
        for argument in inspect.signature(function).parameters.values():
            if argument.default is not argument.empty:
                name = f"{function.__qualname__}({argument.name})"
                values[name] = argument.default
    return values


def _is_own_function(value: object) -> TypeGuard[FunctionType]:
    """Whether a value is a function of the person."""
    return isinstance(value, FunctionType) and _is_own_module(value.__module__)


def _variables_around(function: FunctionType) -> dict[str, object]:
    """Name -> value of the variables that a function reads of those around it.

    The name begins with that of the function, unlike those of globals.
    """
    values: dict[str, object] = {}
    names = function.__code__.co_freevars
    for name, variable in zip(names, function.__closure__ or (), strict=True):
        # a variable may have no value yet
        with contextlib.suppress(ValueError):
            values[f"{function.__name__} {name}"] = variable.cell_contents
    # a method that calls super() holds its class
    values.pop(f"{function.__name__} __class__", None)
    return values


def _type_in_words(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _unknown_code_error(cls: type, kind: str) -> ConfigError:
    return ConfigError(
        f"the code of the {kind} '{cls.__name__}' is not known, and runs record it",
        expected="a class of a file or of a notebook",
        found="a class without a method of its own, or one typed into a session",
        hint=f"write it into a file, and import it or say FILE.py:{cls.__name__}",
    )


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
    """The file that defines a class; ``Path()`` if it was typed into a session."""
    try:
        return Path(inspect.getsourcefile(cls) or "")
    # Python knows no file of a class of a notebook
    except (OSError, TypeError):
        return Path()


def _code_of_file(path: Path) -> str:
    """The canonical code of a file; for invalid Python a hash of its bytes."""
    try:
        content = path.read_bytes()
    # a file that is gone has no code
    except OSError:
        return ""
    try:
        return canonical_code(content)
    except (SyntaxError, ValueError, RecursionError):
        return hashlib.sha256(content).hexdigest()


def _hash_of_file(path: Path) -> str:
    return short_hash(_code_of_file(path))


def _hash_when_imported(name: str, path: Path) -> str:
    """The hash of a module's file when gaam first saw it after its import."""
    # Python makes another spec when it imports or reloads a module again
    spec = getattr(sys.modules.get(name), "__spec__", None)
    # a script has no spec, and another module may not be imported yet
    if spec is None:
        return _hash_of_file(path)
    if name not in _seen_modules or _seen_modules[name][0] is not spec:
        _seen_modules[name] = (spec, _hash_of_file(path))
    return _seen_modules[name][1]


def _modules_of(cls: type, cell: _Cell | None = None) -> Modules:
    """The modules of a person that a class computes with.

    Among them are its own module, those of its bases, and the packages around them.
    ``cell`` is that of a class of a session.
    """
    modules: Modules = {}
    for base in cls.__mro__:
        modules |= dict(_own_modules_of_path(base.__module__))
    if cell is not None:
        modules |= cell.modules()
    return _with_imports(modules)


def _file_of(module: ModuleType | None) -> Path:
    return Path(getattr(module, "__file__", None) or "")


def _is_own(name: str, path: Path) -> bool:
    """Whether a module is a person's own."""
    if name.partition(".")[0] in GAAM or not INSTALLED.isdisjoint(path.parts):
        return False
    return path.is_file() and not _is_of_python(path)


def _is_own_module(name: str) -> bool:
    """Whether a module by name is a person's own; a session without a file is, too."""
    module = sys.modules.get(name)
    if module is None or name == "__main__":
        return True
    return _is_own(name, _file_of(module))


def _is_of_python(path: Path) -> bool:
    """Whether a file is of the standard library."""
    is_installed = not INSTALLED.isdisjoint(path.parts)
    return path.is_relative_to(STANDARD_LIBRARY) and not is_installed


def _with_imports(modules: Modules) -> Modules:
    """Some modules, and all of a person's own that they import, directly or not."""
    path_by_name: Modules = {}
    waiting = list(modules.items())
    while waiting:
        name, path = waiting.pop()
        if name not in path_by_name:
            path_by_name[name] = path
            waiting += _imports_of_module(name, path)
    return path_by_name


def files_of_module(module: ModuleType) -> list[Path]:
    """The file of a module, and those of a person's modules that it imports."""
    name, path = module.__name__, _file_of(module)
    modules = _with_imports({name: path})
    modules.pop(name)
    return [path, *(modules[name] for name in sorted(modules))]


def _imports_of_module(name: str, path: Path) -> list[tuple[str, Path]]:
    """Names and files of a person's own modules that the file of a module imports."""
    try:
        text = path.read_bytes()
    except OSError:
        return []
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    spec = getattr(sys.modules.get(name), "__spec__", None)
    imports = list(_imports_in(text, getattr(spec, "parent", None) or package))
    # a file in a package does not import its neighbours by their names alone
    if "." not in name and path.name != "__init__.py":
        _check_neighbours(path, imports)
    return imports


def _check_neighbours(path: Path, imports: list[tuple[str, Path]]) -> None:
    """Refuse a module of another folder in place of the one beside a file.

    Python imports one module of a name: two files in different folders that each
    ``import helper`` would share the first one's.
    """
    if str(path.parent) not in sys.path:
        return
    for name, imported_path in imports:
        neighbour = path.parent / f"{name}.py"
        # Python prefers a package to a file of the same name beside it
        package = path.parent / name / "__init__.py"
        if neighbour.is_file() and not (
            package.is_file() or neighbour.samefile(imported_path)
        ):
            raise ConfigError(
                f"'{path.name}' imports the module '{name}' of another folder",
                expected=str(neighbour),
                found=str(imported_path),
                where=str(path),
                hint="rename one of the two modules, or use each in its own process",
            )


def _imports_in(text: bytes | str, package: str) -> Iterator[tuple[str, Path]]:
    """Names and files of a person's own modules that statements import.

    Args:
        text: of a file or a cell, with functions that may import, too.
        package: the package of the file, for ``from . import``.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            # a statement that fails may stand in ``try``
            with contextlib.suppress(ImportError):
                base = importlib.util.resolve_name(base, package)
                # what is imported may be a module, too
                names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for imported_name in names:
            yield from _own_modules_of_path(imported_name)


def _own_modules_of_path(dotted_name: str) -> Iterator[tuple[str, Path]]:
    """The packages and the module of ``package.module``, if they are a person's own.

    ``module`` may be another name, such as that of a function: it is left out.
    """
    parts = dotted_name.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        path, _folders = _locate(name)
        if _is_own(name, path):
            yield name, path
        # a folder without __init__.py has no file; what is in it may be own
        elif path != Path():
            return


def _locate(name: str) -> tuple[Path, list[str]]:
    """The file of a module, and the folders of a package; nothing is executed.

    Both are empty if there is no such module.
    """
    module = sys.modules.get(name)
    if module is not None:
        return _file_of(module), list(getattr(module, "__path__", None) or ())
    parent = name.rpartition(".")[0]
    folders = None
    if parent:
        _path, folders = _locate(parent)
        if not folders:
            return Path(), []
    spec = PathFinder.find_spec(name, folders)
    if spec is None:
        return Path(), []
    return Path(spec.origin or ""), list(spec.submodule_search_locations or ())


class _Cell:
    """The cell of a notebook that defines a class.

    What the class reads stands in this cell, is imported, or is a plain value. Other
    cells may change without a trace, so that what they define is refused.
    """

    def __init__(self, cls: type, kind: str = "class") -> None:
        method = _method_of_cell(cls)
        if method is None:
            raise _unknown_code_error(cls, kind)
        self._class_name = cls.__name__
        self._globals = method.__globals__
        self._name = method.__code__.co_filename
        self.text = _text_of_cell(method)

    def values(self) -> list[str]:
        """``NAME = VALUE`` for all that the class reads from outside of the cell."""
        lines = []
        for name, value in self._values_from_outside.items():
            text = repr(value)
            module = _module_of(value)
            if module is not None:
                text = f"{module.__name__} {getattr(value, '__qualname__', '')}"
            lines.append(f"{name} = {text}")
        return lines

    def modules(self) -> Modules:
        """The modules of the person that the cell imports, or the class reads."""
        modules = dict(_imports_in(self.text, package=""))
        for name, value in self._values_from_outside.items():
            module = _module_of(value)
            if module is not None:
                if _is_own(module.__name__, _file_of(module)):
                    modules[module.__name__] = _file_of(module)
            elif not isinstance(value, PLAIN_TYPES):
                raise ConfigError(
                    f"your class reads '{name}' of another cell, which runs cannot "
                    "record",
                    expected="imported names, numbers or texts",
                    found=_type_in_words(value),
                    hint=f"define '{name}' in the cell of '{self._class_name}', or "
                    "write both into a file",
                )
        return modules

    @functools.cached_property
    def _values_from_outside(self) -> dict[str, Any]:
        """Global -> value, for those that the class reads and the cell lacks."""
        read, outside = _names_read(self.text, self._class_name)
        values = {}
        for name in sorted(read & self._globals.keys()):
            value = self._globals[name]
            # another cell may have defined a function of this cell again
            code = getattr(value, "__code__", None)
            is_replaced = code is not None and code.co_filename != self._name
            if (name in outside or is_replaced) and not name.startswith("__"):
                values[name] = value
        return values


def _functions_of(cls: type) -> Iterator[FunctionType]:
    """The functions that a class defines."""
    for member in vars(cls).values():
        function = member
        # a static method, a property or a cached one holds its function
        for attribute in ("__func__", "fget", "func"):
            function = getattr(function, attribute, function)
        # a decorator wraps it
        function = inspect.unwrap(function)
        if isinstance(function, FunctionType):
            yield function


def _method_of_cell(cls: type) -> FunctionType | None:
    """A method of a class from the cell that defines the class; None: there is none."""
    for function in _functions_of(cls):
        # a decorator of another cell may return a function of that cell
        if f"class {cls.__name__}" in _text_of_cell(function):
            return function
    return None


def _text_of_cell(function: FunctionType) -> str:
    """The text of the cell of a function; empty for one of a file."""
    # Python keeps the text of a cell under the name of the code of each function
    name = function.__code__.co_filename
    return "" if Path(name).is_file() else "".join(linecache.getlines(name))


def _module_of(value: object) -> ModuleType | None:
    """The module of a global: itself, or that of an imported class or function.

    None for an object, a method of an object, and what a session defines.
    """
    if isinstance(value, ModuleType):
        return value
    owner = getattr(value, "__self__", None)
    is_of_object = owner is not None and not isinstance(owner, type | ModuleType)
    # an object has no such name, but the module of its class
    if is_of_object or not hasattr(value, "__qualname__"):
        return None
    name = getattr(value, "__module__", None) or "builtins"
    return None if name == "__main__" else sys.modules.get(name)


def _names_read(text: str, class_name: str) -> tuple[set[str], set[str]]:
    """Names that a class reads, directly or not; and those that its cell lacks."""
    statements_by_name: dict[str, list[_Statement]] = {}
    for node in ast.parse(text).body:
        statement = _Statement(node)
        for name in statement.defined:
            statements_by_name.setdefault(name, []).append(statement)

    names_seen: set[str] = set()
    outside: set[str] = set()
    waiting = {class_name}
    # a function of the cell may define the class
    if class_name not in statements_by_name:
        waiting = {*statements_by_name}
    while waiting:
        name = waiting.pop()
        names_seen.add(name)
        statements = statements_by_name.get(name, [])
        if not statements:
            outside.add(name)
        for statement in statements:
            # X = X + 1 reads what another cell may define
            outside |= statement.read_at_once & statement.defined
            waiting |= (statement.read_at_once | statement.read_inside) - names_seen
    return names_seen, outside


class _Statement:
    """The names of a statement of a cell: which it defines, and which it reads."""

    def __init__(self, node: ast.stmt) -> None:
        tree = ast.Module([node], type_ignores=[])
        # a statement of a notebook may wait for others
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(tree, "cell", "exec", flags=flags, dont_inherit=True)
        self.defined = {
            instruction.argval
            for instruction in dis.get_instructions(code)
            if instruction.opname == "STORE_NAME"
        }
        self.read_at_once = _globals_read(code)
        self.read_inside: set[str] = set()
        """Names that its functions and classes read."""
        for inner_code in _codes_inside(code):
            self.read_inside |= _globals_read(inner_code)


def _globals_read(code: CodeType) -> set[str]:
    """Globals that some code reads; the functions in it do not count.

    A name of a class body is a global where it is read before the body stores it.
    """
    read: set[str] = set()
    stored: set[str] = set()
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        is_looked_up = instruction.opname in LOOKUPS_OF_BODY and name not in stored
        if instruction.opname == "STORE_NAME":
            stored.add(name)
        elif instruction.opname == "LOAD_GLOBAL" or is_looked_up:
            read.add(name)
    return read


def _codes_inside(code: CodeType) -> Iterator[CodeType]:
    """The code of all functions and classes in some code."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_inside(constant)
