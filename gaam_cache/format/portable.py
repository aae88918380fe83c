"""What a plan says, without what is of this machine alone: paths, and who works on it.

The fingerprint covers no path, so that the plan stays a plan of the same cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from gaam_cache.format.plan import Plan
from gaam_cache.import_config import is_imported

NAMELESS = "local"
"""What has no name but a path, such as the folder that one happens to be in."""
NAMES_OF_IMPORT = ("encoder_name", "dataset_name")
"""Settings of an import that name things as somebody wishes, by a path too."""
_LIKE_A_PATH = re.compile(r"[~.]|[A-Za-z]:\\|.*(?:/|\\).*/")
"""Names that are no id on the hub; one slash may be that of an owner and a name."""


def local_name(name: str) -> str:
    """The last part of a path as it was given; never more of it than was."""
    last = PurePath(name.replace("\\", "/")).name
    return NAMELESS if last in ("", "..") or last.startswith("~") else last


def portable_name(name: str, *, local: bool = False) -> str:
    """What to call a data set or an encoder elsewhere.

    Args:
        name: as the user gave it.
        local: whether it is known to be a path.
    """
    if local or name.startswith("/") or _LIKE_A_PATH.match(name):
        return local_name(name)
    return name


def without_path(source: Mapping[str, Any]) -> dict[str, Any]:
    """The ``encoder`` or ``dataset`` of a plan without any path of this machine."""
    local = source.get("path") is not None
    return {**source, "name": portable_name(source["name"], local=local), "path": None}


def portable_plan(plan: Plan) -> Plan:
    """A plan of the same fingerprint that names no path of this machine."""
    encoder, dataset = without_path(plan.encoder), without_path(plan.dataset)
    on_disk = plan.dataset.get("path") is not None or is_imported(plan.encoder)
    if origins := dataset.get("origin"):
        dataset["origin"] = {
            split: portable_name(str(origin), local=on_disk) for split, origin in origins.items()
        }
    if again := dataset.get("import"):
        names = {key: portable_name(again[key]) for key in NAMES_OF_IMPORT if again.get(key)}
        files = [local_name(name) for name in again["files"]]
        dataset["import"] = {**again, **names, "files": files}
    return replace(plan, encoder=encoder, dataset=dataset)
