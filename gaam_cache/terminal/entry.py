"""The entry point of the command ``gaam``.

The commands are in ``cli.py``, at the top of the repository. A distribution must not install a
module of that name beside those of others: it has the file in this folder.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import NoReturn

NAME = "gaam_cli"
"""Of the module, in this process."""


def main() -> NoReturn:
    """Run a command and exit with its code."""
    installed = Path(__file__).with_name("_cli.py")
    file = installed if installed.exists() else Path(__file__).parents[2] / "cli.py"
    spec = importlib.util.spec_from_file_location(NAME, file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[NAME] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    sys.exit()
