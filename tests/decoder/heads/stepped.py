"""Names of the heads that are trained in steps."""

from __future__ import annotations

from gaam_cache.common import plugins

PACKAGE = "gaam_decoder.heads"
STEPPED = [
    name
    for name in plugins.names(PACKAGE)
    if plugins.load(PACKAGE, name, kind="head").trained_by == "steps"
]
