"""Run a frozen encoder once and keep every layer's pooled states on disk.

>>> import gaam_cache
>>> config = gaam_cache.ExtractConfig(dataset="news-sample", out="cache")  # doctest: +SKIP
>>> gaam_cache.extract(config)  # doctest: +SKIP
>>> gaam_cache.open_cache("cache")["train"].embeddings.shape  # doctest: +SKIP
(360, 6, 384)

Importing this package imports neither torch nor transformers; the names below load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaam_cache.lazy import lazy_attributes

if TYPE_CHECKING:
    from gaam_cache.cache import EmbeddingCache, open_cache
    from gaam_cache.config import ExtractConfig
    from gaam_cache.errors import GaamError
    from gaam_cache.extraction.assumptions import Assumptions, assume
    from gaam_cache.extraction.estimate import estimate
    from gaam_cache.extraction.extract import extract
    from gaam_cache.verification.verify import Verification, verify

__version__ = "0.1.0"
__all__ = [
    "Assumptions",
    "EmbeddingCache",
    "ExtractConfig",
    "GaamError",
    "Verification",
    "assume",
    "estimate",
    "extract",
    "open_cache",
    "verify",
]

lazy_attributes(
    __name__,
    {
        "Assumptions": "extraction.assumptions",
        "EmbeddingCache": "cache",
        "ExtractConfig": "config",
        "GaamError": "errors",
        "assume": "extraction.assumptions",
        "estimate": "extraction.estimate",
        "Verification": "verification.verify",
        "extract": "extraction.extract",
        "open_cache": "cache",
        "verify": "verification.verify",
    },
)
