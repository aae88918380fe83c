"""The model and data-set hub: names resolved to commits, files fetched, errors made readable.

Only safetensors weights are ever fetched, and no code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError, GaamError, HubError
from gaam_cache.hub.errors import TIMEOUT_SECONDS, hub_errors, meant_what_is_here
from gaam_cache.messages import shortened
from gaam_cache.store.files import write_file

PATTERNS = ("*.json", "model*.safetensors", "vocab*.txt", "merges*.txt", "*.model")
"""Files of a model repository that an encoder needs: all at the top level, none of them code."""
WANTED = re.compile("|".join(p.replace(".", r"\.").replace("*", "[^/]*") for p in PATTERNS))
IS_WEIGHTS = re.compile(r"model.*\.safetensors")
"""Weights and their index."""
CONFIGURATIONS = (
    "config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
)
"""Files that may name code."""
COMMIT = re.compile(r"[0-9a-f]{40}")


def _info(repo_id: str, revision: str | None, kind: str) -> Any:
    from huggingface_hub import HfApi

    api = HfApi()
    ask = api.model_info if kind == "model" else api.dataset_info
    with hub_errors(repo_id, kind=kind):
        return ask(repo_id, revision=revision, timeout=TIMEOUT_SECONDS)


def _offline(repo_id: str, kind: str) -> GaamError | None:
    from huggingface_hub import is_offline_mode
    from huggingface_hub.utils import validate_repo_id

    if not is_offline_mode():
        return None
    with hub_errors(repo_id, kind=kind):
        validate_repo_id(repo_id)  # what is no id is not missing
    error = HubError(
        f"HF_HUB_OFFLINE is set and '{repo_id}' has no local copy",
        hint="fetch it once without HF_HUB_OFFLINE, or give a local path",
    )
    return meant_what_is_here(error, repo_id, kind)


def resolve_revision(repo_id: str, revision: str | None, *, kind: str) -> str | None:
    """The commit that a branch, tag or None (the default branch) stands for now.

    Raises:
        HubError: the hub cannot be asked, or must not be (``HF_HUB_OFFLINE``).
    """
    if error := _offline(repo_id, kind):
        raise error
    return str(_info(repo_id, revision, kind).sha)


def _ref(repo_id: str, revision: str | None, kind: str) -> Path:
    """Where the cache folder of the hub's client keeps the commit of a branch or tag."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"{kind}s--{repo_id.replace('/', '--')}"
    return folder / "refs" / (revision or constants.DEFAULT_REVISION)


def remember(repo_id: str, revision: str | None, commit: str, *, kind: str) -> None:
    """Note the commit of a branch: what is fetched by its commit is found by its branch later.

    The hub's client does so itself only for what it fetches by the name of the branch, which may
    have moved between two files.
    """
    ref = _ref(repo_id, revision, kind)
    refs = next(parent for parent in ref.parents if parent.name == "refs")
    if revision == commit or ".." in ref.parts or not refs.parent.is_dir():
        return
    with suppress(OSError):  # a shared read-only folder serves as well
        write_file(ref, commit.encode())


def recall(repo_id: str, revision: str | None, *, kind: str) -> str | None:
    """The commit that a branch or tag stood for when it was last seen; a commit is itself."""
    if revision is not None and COMMIT.fullmatch(revision):
        return revision
    try:
        commit = _ref(repo_id, revision, kind).read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return commit if COMMIT.fullmatch(commit) else None


def fetch_model(repo_id: str, revision: str | None, *, weights: bool = True) -> tuple[Path, str]:
    """Fetch the configuration, tokenizer and, unless told not to, safetensors weights of a model.

    A hub that cannot be reached is no obstacle where a complete local copy exists.

    Returns:
        The folder of the snapshot and its commit.
    """
    from huggingface_hub import snapshot_download

    try:
        if offline := _offline(repo_id, "model"):
            raise offline
        info = _info(repo_id, revision, "model")
    except HubError as error:
        # what was never wanted is not missed: the same patterns as for the download
        ignored = ["*/*"] if weights else ["*/*", "*.safetensors"]
        rules: Any = {"allow_patterns": list(PATTERNS), "ignore_patterns": ignored}
        try:
            folder = Path(
                snapshot_download(repo_id, revision=revision, local_files_only=True, **rules)
            )
        except (OSError, ValueError):
            raise error from None
        return folder, folder.name
    files = [sibling.rfilename for sibling in info.siblings or ()]
    wanted = [name for name in files if WANTED.fullmatch(name)]
    if weights and not any(name.endswith(".safetensors") for name in wanted):
        raise no_safetensors(repo_id, files)
    with hub_errors(repo_id, kind="model", downloading=True):
        # the small files first: what they forbid is known before the weights are paid for
        small = [name for name in wanted if not name.endswith(".safetensors")]
        refuse_code(Path(snapshot_download(repo_id, revision=info.sha, allow_patterns=small)))
        needed = wanted if weights else small
        folder = Path(snapshot_download(repo_id, revision=info.sha, allow_patterns=needed))
    remember(repo_id, revision, info.sha, kind="model")
    return folder, str(info.sha)


def hub_only(option: str, revision: str, name: str) -> ConfigError:
    """The refusal of a revision of what lies on this disk: it is as it is, whatever was asked."""
    return ConfigError(
        f"{option} is for what comes from the hub",
        expected=f"no {option}, or an id on the hub",
        found=f"{option} {shortened(revision)}, and '{name}' is on this disk",
    )


def no_safetensors(where: str, files: list[str]) -> ConfigError:
    """The refusal of weights in any format that can carry code."""
    weights = [name for name in files if name.endswith((".bin", ".pt", ".pth", ".h5", ".ckpt"))]
    return ConfigError(
        f"the encoder '{where}' has no safetensors weights",
        expected="model.safetensors (weights in other formats can carry code and are never read)",
        found=", ".join(weights[:4]) or "no weights",
        hint="convert it where you trust it: "
        "AutoModel.from_pretrained(...).save_pretrained(folder), then --encoder folder",
    )


def refuse_code(folder: Path) -> None:
    """Refuse a model that brings its own code.

    Even where transformers has a class for its ``model_type`` and would use that: the numbers are
    then not those that the model's authors mean (a causal class for a bidirectional model).

    Raises:
        ConfigError: ``auto_map`` in the configuration of the model or of what makes rows ready for
            it, or an attention that is fetched from the hub.
    """
    for name in CONFIGURATIONS:
        try:
            content = json.loads((folder / name).read_bytes())
        except (OSError, ValueError, RecursionError):
            continue  # whoever reads it for its content says what is wrong
        if found := next(_code(content), None):
            key, value = found
            raise ConfigError(
                "the encoder brings its own code, which is never run",
                expected="an encoder and tokenizer that transformers knows by itself",
                found=f"{key} in {name}: {json.dumps(value)[:120]}",
                where=str(folder / name),
                hint="choose another encoder; if the class of transformers computes the same, "
                f"copy the folder, remove {key} and give --encoder the copy",
            )


def _code(content: Any) -> Iterator[tuple[str, Any]]:
    """Settings that name code, of a model or of a part of it."""
    parts = [content]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            for key, value in part.items():
                # kernels of others are named owner/repository
                foreign = key.endswith("attn_implementation") and "/" in json.dumps(value)
                if (key == "auto_map" and value) or foreign:
                    yield key, value
                else:
                    parts.append(value)
