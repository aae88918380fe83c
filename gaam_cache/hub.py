"""The model and data-set hub: names resolved to commits, files fetched, errors made readable.

Only safetensors weights are ever fetched, and no code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError, GaamError, HubError, NotFoundError

TIMEOUT_SECONDS = 8.0
WANTED = re.compile(r"[^/]+\.json|model[^/]*\.safetensors|(vocab|merges)[^/]*\.txt|[^/]+\.model")
"""Files of a model repository that an encoder needs: all at the top level, none of them code."""


@contextmanager
def hub_errors(repo_id: str, *, kind: str) -> Iterator[None]:
    """Turn what the hub's client raises into one GaamError.

    Raises:
        ConfigError: the id is malformed.
        NotFoundError: no such repository or revision.
        HubError: gated, unreachable, or a download that broke.
    """
    from huggingface_hub import errors

    kind = "data set" if kind == "dataset" else kind
    try:
        yield
    except GaamError:
        raise  # said already; some are OSErrors too
    except errors.HFValidationError as error:
        raise ConfigError(
            f"'{repo_id}' is neither an existing path nor a {kind} id",
            expected="a folder, a file, or an id like 'owner/name'",
            found=str(error).splitlines()[0],
        ) from error
    except errors.GatedRepoError as error:
        raise HubError(
            f"the {kind} '{repo_id}' is gated",
            found="the hub asks who you are",
            hint="accept its terms on its page, then log in with 'hf auth login' or set HF_TOKEN",
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise NotFoundError(
            f"no {kind} '{repo_id}'",
            expected="a local path or an id that exists on the hub (private ones need HF_TOKEN)",
            found=_first_line(error),
        ) from error
    except (errors.HTTPError, OSError) as error:
        raise HubError(
            f"the hub could not be reached for the {kind} '{repo_id}'",
            found=_first_line(error) or type(error).__name__,
            hint="check the network and HF_ENDPOINT, or give a local path",
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _info(repo_id: str, revision: str | None, kind: str) -> Any:
    from huggingface_hub import HfApi

    api = HfApi()
    ask = api.model_info if kind == "model" else api.dataset_info
    with hub_errors(repo_id, kind=kind):
        return ask(repo_id, revision=revision, timeout=TIMEOUT_SECONDS)


def _offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def resolve_revision(repo_id: str, revision: str | None, *, kind: str) -> str | None:
    """The commit that a branch, tag or None (the default branch) stands for now.

    With ``HF_HUB_OFFLINE`` set nobody is asked and the revision comes back as it is.
    """
    if _offline():
        return revision
    return str(_info(repo_id, revision, kind).sha)


def fetch_model(repo_id: str, revision: str | None) -> tuple[Path, str]:
    """Fetch the configuration, tokenizer and safetensors weights of a model.

    A hub that cannot be reached is no obstacle where a complete local copy exists.

    Returns:
        The folder of the snapshot and its commit.
    """
    from huggingface_hub import snapshot_download

    try:
        if _offline():
            raise HubError(f"HF_HUB_OFFLINE is set and '{repo_id}' has no local copy")
        info = _info(repo_id, revision, "model")
    except HubError as error:
        try:
            folder = Path(snapshot_download(repo_id, revision=revision, local_files_only=True))
        except (OSError, ValueError):
            raise error from None
        return folder, folder.name
    files = [sibling.rfilename for sibling in info.siblings or ()]
    wanted = [name for name in files if WANTED.fullmatch(name)]
    if not any(name.endswith(".safetensors") for name in wanted):
        raise no_safetensors(repo_id, files)
    with hub_errors(repo_id, kind="model"):
        folder = Path(snapshot_download(repo_id, revision=info.sha, allow_patterns=wanted))
    return folder, str(info.sha)


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
