"""Run a frozen encoder once and keep every layer's pooled states on disk.

    import gaam_cache

    config = gaam_cache.ExtractConfig(dataset="news-sample", out="cache")
    gaam_cache.extract(config)
    gaam_cache.open_cache("cache")["train"].embeddings.shape  # (360, 6, 384)

The pages in docs/ of the repository say how: docs/index.md is the first, and
docs/reference/python.md lists what programs call.

Importing this package imports neither torch nor transformers. Each name below loads its
module on first use.
"""
# ruff: noqa: F401 names that ``__all__`` holds, for type checkers

import importlib
import sys
from typing import TYPE_CHECKING, Any

from gaam_cache.common.version import __version__ as __version__

if TYPE_CHECKING:
    from gaam_cache.common.errors import GaamError
    from gaam_cache.config import ExtractConfig, ImportConfig
    from gaam_cache.extraction.estimate import estimate
    from gaam_cache.extraction.extract import extract
    from gaam_cache.extraction.verify import Verification, verify
    from gaam_cache.hub.push import export_cache
    from gaam_cache.importing.states import import_states, write
    from gaam_cache.store.reader import EmbeddingCache, open_cache

_MODULES = {
    "EmbeddingCache": "store.reader",
    "ExtractConfig": "config",
    "GaamError": "common.errors",
    "ImportConfig": "config",
    "Verification": "extraction.verify",
    "estimate": "extraction.estimate",
    "export_cache": "hub.push",
    "extract": "extraction.extract",
    "import_states": "importing.states",
    "open_cache": "store.reader",
    "verify": "extraction.verify",
    "write": "importing.states",
}
"""Public name -> the module that defines it."""

__all__ = [
    "EmbeddingCache",
    "ExtractConfig",
    "GaamError",
    "ImportConfig",
    "Verification",
    "estimate",
    "export_cache",
    "extract",
    "import_states",
    "open_cache",
    "verify",
    "write",
]


def offer(package: str, modules: dict[str, str]) -> None:
    """Let a package import its public names on first use.

    Args:
        package: the dotted name of the package.
        modules: public name -> the module that defines it, or that is it.
    """

    def load_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = importlib.import_module(f"{package}.{modules[name]}")
        return getattr(module, name, module)

    def list_names() -> list[str]:
        return sorted(modules)

    # Python calls these two for a name that the package does not have (PEP 562)
    namespace = vars(sys.modules[package])
    namespace["__getattr__"] = load_name
    namespace["__dir__"] = list_names


offer(__name__, _MODULES)
