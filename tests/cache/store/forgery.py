"""Files of a cache that agree with each other, and were not written so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaam_cache.store.files import fingerprint, sealed_text, unsealed


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a plan or receipt by a function of its content, with digests that fit."""
    content = unsealed(json.loads(path.read_text()))
    edit(content)
    if "fingerprint_fields" in content:
        content["fingerprint"] = fingerprint(content["fingerprint_fields"])
    path.write_text(sealed_text(content))


def replace_shard(cache: Path, name: str, image: bytes) -> Path:
    """Put other bytes in the place of a shard, with a receipt that agrees with them."""
    receipt = cache / f"shards/{name}.json"
    old_file = json.loads(receipt.read_text())["file"]
    (cache / "shards" / old_file).unlink()
    digest = hashlib.sha256(image).hexdigest()
    path = cache / f"shards/{name}-{digest[:8]}.h5"
    path.write_bytes(image)
    values = {"file": path.name, "bytes": len(image), "sha256": digest}
    edit_json(receipt, lambda content: content.update(values))
    return path
