"""Names on the hub -> commits and files; what its client raises -> one error that says what to do.

Of models only safetensors weights and JSON are fetched, and no code. Where the hub cannot be
reached a complete local copy serves.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gaam_cache.common.errors import ConfigError, GaamError, HubError, NotFoundError
from gaam_cache.common.messages import shortened

TIMEOUT_SECONDS = 8.0  # for the hub to name a commit; its client would wait for minutes
# files of a model repository that an encoder needs: all at the top level, none of them code
SMALL, WEIGHTS = (
    ("*.json", "vocab*.txt", "merges*.txt", "*.model"),
    ("model*.safetensors",),
)
ADAPTER_WEIGHTS = "adapter_model.safetensors"
RARE = (
    "*.spm",
    "*.codes",
    "*.tokenizer",
    "dict.txt",
    "tokenizer.model.v*",
    "chat_template.jinja",
)
"""Files of few tokenizers. Those that a tokenizer reads are hashed because it names them; a chat
template is text around the texts, and is hashed where it is used."""


def _pattern(globs: Sequence[str]) -> re.Pattern[str]:
    return re.compile(
        "|".join(g.replace(".", r"\.").replace("*", "[^/]*") for g in globs)
    )


WANTED = _pattern(SMALL + WEIGHTS)
TOKENIZER = _pattern(RARE)
IS_WEIGHTS = re.compile(r"model[^/\\]*\.safetensors")  # of a folder, and their index
COMMIT = re.compile(r"[0-9a-f]{40}")
KINDS = {"model": "model", "dataset": "data set"}
TOKEN = "give a token that may do this: 'hf auth login', or HF_TOKEN"


@contextmanager
def hub_errors(repo_id: str, *, kind: str) -> Iterator[None]:
    """Turn what the hub's client raises into one GaamError; ``kind`` is 'model' or 'dataset'."""
    from huggingface_hub import errors

    what = f"{KINDS[kind]} '{repo_id}'"
    try:
        yield
    except errors.GatedRepoError as error:
        raise gated(repo_id, kind) from error
    except errors.RevisionNotFoundError as error:
        message, expected = (
            f"the {what} has no such revision",
            "a branch, tag or commit of it",
        )
        raise NotFoundError(
            message, expected=expected, found=one_line(error)
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        expected = (
            "a local path or an id like 'owner/name' (private ones need HF_TOKEN)"
        )
        raise NotFoundError(
            f"no {what}", expected=expected, found=one_line(error)
        ) from error
    except (errors.HTTPError, OSError, RuntimeError) as error:
        network = isinstance(error, ConnectionError | TimeoutError)
        if isinstance(error, GaamError) or (
            getattr(error, "errno", None) and not network
        ):
            raise  # said already, or of this disk
        cause: Any = error
        while getattr(cause, "response", None) is None and cause.__cause__ is not None:
            cause = cause.__cause__
        status = getattr(getattr(cause, "response", None), "status_code", None)
        message = f"the hub refused the {what}"
        hint = TOKEN if status in (401, 403) else "run the same again later"
        if status is None:
            message = f"the hub could not be reached for the {what}"
            hint = "no file or folder has that name; for the hub check HF_ENDPOINT, HF_HUB_OFFLINE"
        raise HubError(message, found=one_line(error), hint=hint) from error


def gated(repo_id: str, kind: str) -> HubError:
    """The answer to a repository that is shown to those alone who accepted its terms."""
    from huggingface_hub import constants

    folder = "datasets/" if kind == "dataset" else ""
    where = f"{constants.ENDPOINT}/{folder}{repo_id}"
    hint = "accept its terms on that page, then log in with 'hf auth login' or set HF_TOKEN"
    return HubError(f"the {KINDS[kind]} '{repo_id}' is gated", where=where, hint=hint)


def one_line(error: BaseException) -> str:
    """What it says, on one line."""
    return " ".join(re.sub(r"\(Request ID[^)]*\)", "", str(error)).split())[:300]


def fetch(
    repo_id: str, revision: str | None, patterns: Sequence[str], *, kind: str
) -> tuple[Path, HubError | None]:
    """The folder of files at the top level of a repository, which is called as its commit.

    It is that of the local copy where the hub cannot be asked, which the second value says.
    """
    from huggingface_hub import HfApi, snapshot_download, utils

    utils.disable_progress_bars()
    unreachable = None
    try:
        with hub_errors(repo_id, kind=kind):
            HfApi().repo_info(
                repo_id, revision=revision, repo_type=kind, timeout=TIMEOUT_SECONDS
            )
    except HubError as error:
        unreachable = error
    try:
        with hub_errors(repo_id, kind=kind):
            found = snapshot_download(
                repo_id,
                repo_type=kind,
                revision=revision,
                allow_patterns=list(patterns),
                ignore_patterns=["*/*"],
                local_files_only=unreachable is not None,
            )
    except HubError as error:
        raise unreachable or error from None
    return Path(found), unreachable


def fetch_model(
    repo_id: str, revision: str | None, *, weights: bool = True
) -> tuple[Path, str]:
    """Fetch configuration, tokenizer and safetensors weights, of adapters too.

    Returns the folder and its commit.
    """
    # the small files first: what they forbid is known before the weights are paid for
    small = SMALL + RARE
    folder, _ = fetch(repo_id, revision, small, kind="model")
    refuse_code(folder)
    if weights:
        patterns = (*small, *WEIGHTS, ADAPTER_WEIGHTS)
        folder, _ = fetch(repo_id, folder.name, patterns, kind="model")
    return folder, folder.name


def hub_only(option: str, value: str, name: str) -> ConfigError:
    """The refusal of a revision or subset of what lies on this disk: it is as it is."""
    found = f"{option} {shortened(value)}, and '{name}' is on this disk"
    return ConfigError(f"{option} is for what comes from the hub", found=found)


def refuse_code(folder: Path) -> None:
    """Refuse a model that brings its own code, or an attention that is fetched from the hub.

    Even where transformers has a class for its ``model_type`` and would use that: the numbers are
    then not those that the model's authors mean (a causal class for a bidirectional model).
    """

    def check(part: dict[str, Any]) -> dict[str, Any]:
        for key, value in part.items():
            said = json.dumps(value)
            # kernels of others are named owner/repository
            foreign = key.endswith("attn_implementation") and "/" in said
            if (key == "auto_map" and value) or foreign:
                raise ConfigError(
                    "the encoder brings its own code, which is never run",
                    expected="an encoder and tokenizer that transformers knows by itself",
                    found=f"{key}: {said[:120]}",
                    where=str(folder),
                )
        return part

    for name in (
        "config",
        "tokenizer_config",
        "preprocessor_config",
        "processor_config",
    ):
        # whoever reads it for its content says what else is wrong
        with suppress(
            OSError, json.JSONDecodeError, UnicodeDecodeError, RecursionError
        ):
            json.loads((folder / f"{name}.json").read_bytes(), object_hook=check)
