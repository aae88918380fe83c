"""Run a frozen encoder once and keep every layer's pooled states on disk.

    import gaam_cache

    config = gaam_cache.ExtractConfig(dataset="news-sample", out="cache")
    gaam_cache.extract(config)
    gaam_cache.open_cache("cache")["train"].embeddings.shape  # (360, 6, 384)

Importing this package imports neither torch nor transformers; the names below load on first use.
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

_HOMES = {
    **dict.fromkeys(("EmbeddingCache", "open_cache"), "store.reader"),
    **dict.fromkeys(("ExtractConfig", "ImportConfig"), "config"),
    "GaamError": "common.errors",
    "estimate": "extraction.estimate",
    "export_cache": "hub.push",
    "extract": "extraction.extract",
    **dict.fromkeys(("import_states", "write"), "importing.states"),
    **dict.fromkeys(("Verification", "verify"), "extraction.verify"),
}
__all__ = list(_HOMES)


def offer(package: str, homes: dict[str, str]) -> None:
    """Let a package offer names, imported on first use: name -> module that has it or is it."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = importlib.import_module(f"{package}.{homes[name]}")
        return getattr(module, name, module)

    vars(sys.modules[package]).update(__getattr__=get, __dir__=lambda: sorted(homes))


offer(__name__, _HOMES)
