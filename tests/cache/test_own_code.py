"""The hash of a person's own class changes with what the class computes, or never."""

from __future__ import annotations

import importlib
import linecache
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.own_code import canonical_code, short_hash

PACKAGE = "gaam_decoder.losses"
LOSS = """
import coef
from coef import SCALE
from gaam_decoder.losses import Loss

class Own(Loss):
    \"\"\"A loss.\"\"\"

    weights = (1.0, 2.0)

    def __call__(self, logits_BC, label_B):
        # the mean
        return coef.shape(logits_BC.mean()) * SCALE
"""
COEF = """
from folder import deep
SCALE = 1.0

def shape(value):
    return value * deep.POWER
"""


@pytest.fixture(autouse=True)
def no_registered_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})


def forget_modules(folder: Path) -> None:
    """As in another process."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(folder):
            del sys.modules[name]
    # a folder without __init__.py has no file
    sys.modules.pop("folder", None)
    importlib.invalidate_caches()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with a loss, a module beside it, and one in a folder below."""
    # Python may take an edit of the same second for the same file
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    own = tmp_path / "own"
    (own / "folder").mkdir(parents=True)
    (own / "own_loss.py").write_text(LOSS)
    (own / "coef.py").write_text(COEF)
    (own / "folder/deep.py").write_text("POWER = 2\n")
    monkeypatch.syspath_prepend(own)
    yield own
    forget_modules(tmp_path)


def hash_of(given: str | type) -> str:
    name, _ = plugins.register_class(PACKAGE, given, kind="loss")
    return plugins.code_hash(PACKAGE, name, kind="loss")


def edit(file: Path, old: str, new: str) -> None:
    code = file.read_text()
    assert old in code
    file.write_text(code.replace(old, new))


class Edit(NamedTuple):
    """A change of a file, and whether other code results."""

    file: str
    old: str
    new: str
    is_other_code: bool = True


EDITS = {
    "a method": Edit("own_loss.py", ".mean()", ".sum()"),
    "an attribute": Edit("own_loss.py", "(1.0, 2.0)", "(1.0, 3.0)"),
    "a value of a module": Edit("coef.py", "SCALE = 1.0", "SCALE = 2.0"),
    "a function of a module": Edit("coef.py", "value * deep", "value / deep"),
    "a module of a module": Edit("folder/deep.py", "2", "3"),
    "a comment": Edit("own_loss.py", "# the mean", "# the\n        # mean", False),
    "a docstring": Edit("own_loss.py", "A loss.", "A loss of my own.", False),
    "a comment of a module": Edit("coef.py", "SCALE", "# scale\nSCALE", False),
}
each_edit = pytest.mark.parametrize("change", EDITS.values(), ids=EDITS)


@each_edit
def test_an_edit_changes_the_hash_if_it_changes_the_code(
    change: Edit, folder: Path
) -> None:
    spec = f"{folder}/own_loss.py:Own"
    first_hash = hash_of(spec)
    edit(folder / change.file, change.old, change.new)
    forget_modules(folder)
    assert (hash_of(spec) != first_hash) == change.is_other_code


@each_edit
def test_an_edit_after_the_import_is_refused_if_it_changes_the_code(
    change: Edit, folder: Path
) -> None:
    own_loss = importlib.import_module("own_loss")
    old_class = own_loss.Own
    first_hash = hash_of(old_class)
    edit(folder / change.file, change.old, change.new)
    if not change.is_other_code:
        assert hash_of(old_class) == first_hash
        return
    refusal = rf"{Path(change.file).name}.*after it was imported"
    with pytest.raises(ConfigError, match=refusal):
        hash_of(old_class)
    # as the hint says
    for name in ("folder.deep", "coef", "own_loss"):
        importlib.reload(sys.modules[name])
    assert hash_of(own_loss.Own) != first_hash
    with pytest.raises(ConfigError, match=refusal):
        hash_of(old_class)


@each_edit
def test_a_file_that_is_given_again_is_refused_while_its_modules_are_old(
    change: Edit, folder: Path
) -> None:
    spec = f"{folder}/own_loss.py:Own"
    first_hash = hash_of(spec)
    edit(folder / change.file, change.old, change.new)
    if change.is_other_code and change.file != "own_loss.py":
        with pytest.raises(ConfigError, match="after it was imported"):
            hash_of(spec)
    else:
        assert (hash_of(spec) != first_hash) == change.is_other_code


FACTORY = """
from gaam_decoder.losses import Loss

def make(in_body, in_method):
    class Made(Loss):
        power = in_body
        def __call__(self, logits_BC, label_B):
            return logits_BC.mean() * in_method
    return Made

for scale in (1.0, 2.0):
    class Looped(Loss):
        def __call__(self, logits_BC, label_B):
            return logits_BC.mean() * scale
"""


@pytest.mark.parametrize("place", [0, 1], ids=["in the body", "in a method"])
def test_a_class_that_a_function_makes_has_the_values_of_the_function(
    place: int, folder: Path
) -> None:
    (folder / "factory.py").write_text(FACTORY)
    make = importlib.import_module("factory").make
    first_hash = hash_of(make(1, 1))
    assert hash_of(make(1, 1)) == first_hash
    values = [1, 1]
    values[place] = 2
    assert hash_of(make(*values)) != first_hash
    with pytest.raises(ConfigError, match="reads 'in_method' of a function around"):
        hash_of(make(1, [2]))


def test_a_value_that_was_set_later_changes_the_hash(folder: Path) -> None:
    (folder / "factory.py").write_text(FACTORY)
    factory: Any = importlib.import_module("factory")
    hashes = [hash_of(factory.Looped)]
    factory.scale = 1.0
    hashes.append(hash_of(factory.Looped))
    factory.Looped.power = 3
    hashes.append(hash_of(factory.Looped))
    assert len({*hashes}) == 3


VALUES = """
import numpy as np
import torch
from gaam_decoder.losses import Loss

K = 1.0
PAIR = (1.0, 2.0)
NUMBER = np.float32(1)
ARRAY = np.ones(2)
TENSOR = torch.ones(2, dtype=torch.bfloat16)
act = torch.tanh

def through(value, scale=1.0):
    return act(value) * K * PAIR[0] * NUMBER * ARRAY[0] * TENSOR[0] * scale

class Base(Loss):
    power = 1.0
    pair = (1.0, 2.0)
    curve = staticmethod(torch.tanh)

    def __call__(self, logits_BC, label_B):
        return through(logits_BC.mean()) * self.power

class Own(Base):
    def tail(self):
        return 0

def make(k):
    class Own(Loss):
        def __call__(self, logits_BC, label_B, k=k):
            return logits_BC.mean() * k
    return Own

def make_option(k):
    class Own(Loss):
        def __init__(self, *, k: float = k) -> None:
            self.k = k
        def __call__(self, logits_BC, label_B):
            return logits_BC.mean() * self.k
    return Own

def make_base(k):
    class Base(Loss):
        def __call__(self, logits_BC, label_B):
            return logits_BC.mean() * k
    class Own(Base):
        def tail(self):
            return 0
    return Own

def make_helper(k):
    def helper(value):
        return value * k
    class Own(Loss):
        def __call__(self, logits_BC, label_B):
            return helper(logits_BC.mean())
    return Own
"""
LATER = [
    "K = 3.0",
    "PAIR = (3.0, 2.0)",
    "NUMBER = np.float32(3)",
    "ARRAY[0] = 3.0",
    "TENSOR[0] = 3.0",
    "act = torch.relu",
    "through.__defaults__ = (3.0,)",
    "Base.power = 3.0",
    "Base.pair = (3.0, 2.0)",
    "Base.curve = staticmethod(torch.relu)",
    "Base.curve = torch.tensor(3.0)",
    "Base.__call__ = lambda self, logits_BC, label_B: logits_BC.sum()",
]


@pytest.fixture
def values(folder: Path) -> Any:
    """A module whose classes compute with values of all kinds."""
    (folder / "values.py").write_text(VALUES)
    return importlib.import_module("values")


@pytest.mark.parametrize("statement", LATER)
def test_each_kind_of_value_that_is_set_later_changes_the_hash(
    statement: str, values: Any
) -> None:
    first_hash = hash_of(values.Own)
    assert hash_of(values.Own) == first_hash
    exec(statement, vars(values))
    assert hash_of(values.Own) != first_hash


@pytest.mark.parametrize("name", ["make", "make_option", "make_base", "make_helper"])
def test_each_value_that_a_factory_puts_into_a_class_is_in_the_hash(
    name: str, values: Any
) -> None:
    hashes = [hash_of(getattr(values, name)(k)) for k in (1.0, 3.0, 1.0)]
    assert hashes[0] == hashes[2] != hashes[1]


def test_the_given_file_and_those_of_all_bases_count(folder: Path) -> None:
    (folder / "outer.py").write_text("from own_loss import Own\nOwn.power = [1]\n")
    (folder / "based.py").write_text(
        "from own_loss import Own as Base\n\ndef twice(cls):\n"
        "    return type('Own', (cls,), {'__module__': 'own_loss'})\n\n"
        "@twice\nclass Own(Base):\n    power = [1]\n"
    )
    for file in ("outer.py", "based.py"):
        first_hash = hash_of(f"{folder}/{file}:Own")
        edit(folder / file, "power = [1]", "power = [2]")
        forget_modules(folder)
        plugins._REGISTERED.clear()
        assert hash_of(f"{folder}/{file}:Own") != first_hash


def test_a_module_of_a_distribution_counts_with_the_modules_that_it_imports(
    folder: Path,
) -> None:
    metadata = folder / "solo-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: solo\nVersion: 1\n"
    )
    (metadata / "entry_points.txt").write_text("[gaam.losses]\nsolo = own_loss:Own\n")
    plugins._entry_points.cache_clear()
    hashes = []
    for scale in ("1.0", "2.0"):
        edit(folder / "coef.py", "SCALE = 1.0", f"SCALE = {scale}")
        forget_modules(folder)
        hashes.append(plugins.code_hash(PACKAGE, "solo", kind="loss"))
    plugins._entry_points.cache_clear()
    assert all(text.startswith("solo 1 ") for text in hashes)
    assert hashes[0] != hashes[1]


def test_a_value_that_changed_before_gaam_saw_its_module_has_its_own_hash(
    folder: Path,
) -> None:
    importlib.import_module("coef")
    edit(folder / "coef.py", "SCALE = 1.0", "SCALE = 2.0")
    # the session computes with 1, and the file has 2
    hash_in_session = hash_of(f"{folder}/own_loss.py:Own")
    forget_modules(folder)
    assert hash_of(f"{folder}/own_loss.py:Own") != hash_in_session


def test_two_modules_of_one_name_in_different_folders_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_of(f"{folder}/own_loss.py:Own")
    moved = tmp_path / "another"
    shutil.copytree(folder, moved)
    (moved / "own_loss.py").rename(moved / "other_loss.py")
    plugins._REGISTERED.clear()
    monkeypatch.syspath_prepend(moved)
    with pytest.raises(ConfigError, match="imports the module 'coef' of another"):
        hash_of(f"{moved}/other_loss.py:Own")
    forget_modules(tmp_path)
    assert hash_of(f"{moved}/other_loss.py:Own")


def test_a_class_that_type_makes_has_no_known_code() -> None:
    namespace = {"__call__": lambda self, logits_BC, label_B: logits_BC.mean()}
    loss = importlib.import_module("gaam_decoder.losses").Loss
    made = type("Made", (loss,), namespace)
    with pytest.raises(ConfigError, match="code of the loss 'Made' is not known"):
        hash_of(made)


def test_folder_and_spelling_do_not_change_the_hash(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_hash = hash_of(f"{folder}/own_loss.py:Own")
    assert hash_of(importlib.import_module("own_loss").Own) == given_hash
    moved = tmp_path / "another/place"
    shutil.copytree(folder, moved)
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    forget_modules(folder)
    monkeypatch.syspath_prepend(moved)
    assert hash_of(f"{moved}/own_loss.py:Own") == given_hash


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("import coef", "coef.SCALE"),
        ("import coef as c", "c.SCALE"),
        ("from coef import SCALE", "SCALE"),
        ("from folder import deep", "deep.POWER"),
        ("import folder.deep", "folder.deep.POWER"),
    ],
)
@pytest.mark.parametrize("place", ["module", "function"])
def test_each_way_to_import_is_seen(
    statement: str, value: str, place: str, folder: Path
) -> None:
    inner = f"{statement}; " if place == "function" else ""
    outer = statement if place == "module" else ""
    (folder / "short.py").write_text(
        f"from gaam_decoder.losses import Loss\n{outer}\nclass Short(Loss):\n"
        f"    def __call__(self, logits_BC, label_B):\n        {inner}return {value}\n"
    )
    first_hash = hash_of(f"{folder}/short.py:Short")
    edit(folder / "coef.py", "SCALE = 1.0", "SCALE = 2.0")
    edit(folder / "folder/deep.py", "2", "3")
    forget_modules(folder)
    assert hash_of(f"{folder}/short.py:Short") != first_hash


def test_modules_of_python_and_of_packages_are_not_a_persons_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "theirs.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(installed)
    file = folder / "short.py"
    file.write_text(
        "import json, math, os.path, numpy.linalg, theirs\nimport torch.nn as nn\n"
        "from gaam_decoder.losses import Loss\nclass Short(Loss):\n"
        "    def __call__(self, logits_BC, label_B): return theirs.VALUE\n"
    )
    text = canonical_code(file.read_bytes())
    assert hash_of(f"{file}:Short") == f"short.py {short_hash(text)}"


class Notebook:
    """Cells of a session, whose text Python keeps as in IPython."""

    def __init__(self) -> None:
        self.globals: dict[str, Any] = {"__name__": "no_module_of_this_name"}
        self._names: list[str] = []
        self.run(
            "import math, torch\nimport numpy as np\n"
            "from torch import Tensor\nfrom gaam_decoder.losses import Loss"
        )

    def run(self, text: str) -> None:
        name = f"<cell {len(self._names)} of {id(self)}>"
        self._names.append(name)
        lines = text.splitlines(keepends=True)
        linecache.cache[name] = (len(text), None, lines, name)
        exec(compile(text, name, "exec"), self.globals)

    def hash(self) -> str:
        return hash_of(self.globals["Own"])

    def close(self) -> None:
        for name in self._names:
            linecache.cache.pop(name, None)


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    notebook = Notebook()
    yield notebook
    notebook.close()


def loss_cell(value: str, base: str = "Loss", body: str = "") -> str:
    return (
        f"class Own({base}):\n    'A loss.'\n{body}"
        "    def __call__(self, logits_BC: Tensor, label_B: Tensor):\n"
        f"        return logits_BC.mean() * {value}\n"
    )


@pytest.mark.parametrize(
    "cell",
    [
        loss_cell("1"),
        loss_cell("math.pi"),
        loss_cell("label_B.X"),
        loss_cell("1").replace("mean()", "Own()"),
        loss_cell("1", body="    X = 3\n    a = X\n"),
        "def scale(): return np.ones(3)\n" + loss_cell("scale()"),
        f"{loss_cell('1')}trained = print(X, file=None) or Own\n",
    ],
    ids=[
        "torch",
        "math",
        "an attribute of that name",
        "itself",
        "its attribute",
        "a function of the cell",
        "a statement below",
    ],
)
def test_a_cell_that_reads_nothing_of_another_has_one_hash(
    cell: str, notebook: Notebook
) -> None:
    notebook.run("X = object()")
    hashes = set()
    for same_cell in (cell, f"# a remark\n{cell}", cell.replace("A loss", "Loss")):
        notebook.run(same_cell)
        hashes.add(notebook.hash())
    assert len(hashes) == 1
    notebook.run(cell.replace("return ", "return 2 * "))
    assert notebook.hash() not in hashes


def test_another_function_under_one_name_is_other_code(notebook: Notebook) -> None:
    hashes = set()
    for function in ("torch.tanh", "torch.cosh", "np.tanh"):
        notebook.run(f"X = {function}")
        notebook.run(loss_cell("X(1)"))
        hashes.add(notebook.hash())
    assert len(hashes) == 3


@pytest.mark.parametrize(
    "cell",
    [
        loss_cell("X"),
        loss_cell("(lambda: X)()"),
        loss_cell("1", body="    a = X\n"),
        loss_cell("1", body="    def f(self, a=X): return a\n"),
        f"Y = X\n{loss_cell('Y')}",
        f"def f(): return X\n{loss_cell('f()')}",
        loss_cell("X", body="    X = 3\n"),
        loss_cell("1", body="    X = X\n"),
        f"X = X if True else 1\n{loss_cell('X')}",
    ],
    ids=[
        "a method",
        "a lambda",
        "an attribute",
        "a default",
        "a name",
        "a function",
        "an attribute of that name",
        "an attribute that takes the name",
        "its own value",
    ],
)
def test_a_plain_value_of_another_cell_is_recorded(
    cell: str, notebook: Notebook
) -> None:
    hashes = []
    for value in ("1.0", "-5.0", "1.0", "'text'"):
        notebook.run(f"X = {value}")
        notebook.run(cell)
        hashes.append(notebook.hash())
    first, second, third, fourth = hashes
    assert first == third
    assert len({first, second, fourth}) == 3


def test_a_function_that_another_cell_defines_again_is_refused(
    notebook: Notebook,
) -> None:
    notebook.run(f"def X(): return 1\n{loss_cell('X()')}")
    assert notebook.hash()
    notebook.run("def X(): return 2")
    with pytest.raises(ConfigError, match="reads 'X' of another cell"):
        notebook.hash()


def test_a_class_that_a_function_of_a_cell_makes_reads_globals(
    notebook: Notebook,
) -> None:
    cell = "def make():\n" + "".join(
        f"    {line}\n" for line in loss_cell("X").splitlines()
    )
    hashes = []
    for value in (1.0, 2.0):
        notebook.run(f"X = {value}")
        notebook.run(f"{cell}    return Own\nMade = make()\n")
        notebook.run("Own = Made")
        hashes.append(notebook.hash())
    assert len({*hashes}) == 2


@pytest.mark.parametrize(
    "cell",
    [
        "def X(): return 1",
        "class X(Loss):\n    def f(self): return 1",
        "X = [1, 2]",
        "X = np.ones(3)",
        "X = torch.nn.Linear(2, 2)",
        "X = {}.get",
        "def filter(value): return value",
        "def X(function): return lambda *more: function(*more)",
    ],
    ids=[
        "a function",
        "a class",
        "a list",
        "an array",
        "an object",
        "a method",
        "a built-in name",
        "a decorator",
    ],
)
def test_what_another_cell_defines_is_refused(cell: str, notebook: Notebook) -> None:
    notebook.run(cell)
    name = "filter" if "filter" in cell else "X"
    own = loss_cell(name)
    if "class" in cell:
        own = loss_cell("1", base="X")
    elif "lambda" in cell:
        own = loss_cell("1", body="    @X\n    def f(self): return 1\n")
    notebook.run(own)
    message = rf"reads '{name}'(.|\n)*define '{name}' in the cell of 'Own'"
    with pytest.raises(ConfigError, match=message):
        notebook.hash()


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("import coef", "coef.SCALE"),
        ("from coef import shape", "shape(1)"),
        ("from folder import deep", "deep.POWER"),
    ],
)
@pytest.mark.parametrize("place", ["another cell", "its cell", "its method"])
def test_a_notebook_reads_modules(
    statement: str, value: str, place: str, notebook: Notebook, folder: Path
) -> None:
    own = loss_cell(value)
    if place == "another cell":
        notebook.run(statement)
    elif place == "its cell":
        own = f"{statement}\n{own}"
    else:
        own = own.replace("        return", f"        {statement}\n        return")
        notebook.run("import coef")
    notebook.run(own)
    first_hash = notebook.hash()
    edit(folder / "coef.py", "value * deep", "value / deep")
    edit(folder / "folder/deep.py", "2", "3")
    with pytest.raises(ConfigError, match="after it was imported"):
        notebook.hash()
    for name in ("folder.deep", "coef"):
        importlib.reload(importlib.import_module(name))
    if place == "another cell":
        notebook.run(statement)
    notebook.run(own)
    assert notebook.hash() != first_hash


@pytest.mark.parametrize(
    "statement",
    [
        "try:\n    from .missing import value\nexcept ImportError:\n    value = 1",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from loud import it",
        "from missing.module import value",
    ],
    ids=["no package", "never executed", "missing"],
)
def test_to_look_for_modules_executes_none(statement: str, folder: Path) -> None:
    (folder / "loud").mkdir()
    (folder / "loud/__init__.py").write_text("raise SystemExit(3)")
    (folder / "loud/it.py").write_text("raise SystemExit(3)")
    lazy = statement if "missing.module" in statement else ""
    above = "" if lazy else statement
    (folder / "short.py").write_text(
        f"from gaam_decoder.losses import Loss\n{above}\nclass Short(Loss):\n"
        f"    def __call__(self, logits_BC, label_B):\n        {lazy or 'pass'}\n"
    )
    assert hash_of(f"{folder}/short.py:Short")
