"""Downloads from the hub: repository and revision become a folder of files.

Of models only safetensors weights and JSON are fetched, and no code. If the hub is out
of reach, a complete local copy is used. Every error of the hub's client becomes one
error that says what to do.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gaam_cache.common.errors import ConfigError, GaamError, HubError, NotFoundError
from gaam_cache.common.messages import shortened

# the hub's client itself would wait for minutes until it knows a commit
TIMEOUT_SECONDS = 8.0
SMALL = ("*.json", "vocab*.txt", "merges*.txt", "*.model")
"""Small files of an encoder at the top level of its repository; none is code."""
WEIGHTS = ("model*.safetensors",)
ADAPTER_WEIGHTS = "adapter_model.safetensors"
RARE = (
    "*.spm",
    "*.codes",
    "*.tokenizer",
    "dict.txt",
    "tokenizer.model.v*",
    "chat_template.jinja",
)
"""Files of few tokenizers.

A tokenizer names the files that it reads, and those are hashed. A chat template is text
around the texts, and is hashed if it is used.
"""


def _pattern(globs: Sequence[str]) -> re.Pattern[str]:
    """A pattern of the file names that match one of the globs."""
    escaped = [glob.replace(".", r"\.").replace("*", "[^/]*") for glob in globs]
    return re.compile("|".join(escaped))


WANTED = _pattern(SMALL + WEIGHTS)
TOKENIZER = _pattern(RARE)
IS_WEIGHTS = re.compile(r"model[^/\\]*\.safetensors")  # of a folder, and their index
CONFIG_FILES = (
    "config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
)
"""JSON files of a model that could name code."""
COMMIT = re.compile(r"[0-9a-f]{40}")
KINDS = {"model": "model", "dataset": "data set"}
TOKEN = "use a token with the right to do this: 'hf auth login', or HF_TOKEN"


@contextmanager
def hub_errors(repo_id: str, *, kind: str) -> Iterator[None]:
    """Turn errors of the hub's client into ours; ``kind`` is 'model' or 'dataset'."""
    from huggingface_hub import errors as client_errors

    # the client imports the base class of HTTP errors without offering it to mypy
    errors: Any = client_errors
    repository = f"{KINDS[kind]} '{repo_id}'"
    try:
        yield
    except errors.GatedRepoError as error:
        raise gated(repo_id, kind) from error
    except errors.RevisionNotFoundError as error:
        raise NotFoundError(
            f"the {repository} has no such revision",
            expected="a branch, tag or commit of it",
            found=one_line(error),
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise NotFoundError(
            f"no {repository}",
            expected="a local path or an id like 'owner/name' "
            "(private ones need HF_TOKEN)",
            found=one_line(error),
        ) from error
    except (errors.HTTPError, OSError, RuntimeError) as error:
        if isinstance(error, GaamError) or _is_of_this_machine(error):
            raise
        status = _http_status(error)
        message = f"the hub refused the {repository}"
        hint = TOKEN if status in (401, 403) else "run the same again later"
        if status is None:
            message = f"the hub could not be reached for the {repository}"
            hint = (
                "no file or folder has that name; for the hub check HF_ENDPOINT, "
                "HF_HUB_OFFLINE"
            )
        raise HubError(message, found=one_line(error), hint=hint) from error


def _is_of_this_machine(error: Exception) -> bool:
    """Whether the system raised an error for another reason than the network."""
    if isinstance(error, ConnectionError | TimeoutError):
        return False
    return bool(getattr(error, "errno", None))


def _http_status(error: BaseException) -> int | None:
    """The status of the response that caused an error; None without a response."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if response is not None:
            status: int | None = getattr(response, "status_code", None)
            return status
        cause = cause.__cause__
    return None


def gated(repo_id: str, kind: str) -> HubError:
    """The error for a repository whose terms this user has not accepted."""
    from huggingface_hub import constants

    folder = "datasets/" if kind == "dataset" else ""
    where = f"{constants.ENDPOINT}/{folder}{repo_id}"
    hint = (
        "accept its terms on that page, then log in with 'hf auth login' or set "
        "HF_TOKEN"
    )
    return HubError(f"the {KINDS[kind]} '{repo_id}' is gated", where=where, hint=hint)


def one_line(error: BaseException) -> str:
    """The start of an error's text on one line, without the id of the request."""
    text = re.sub(r"\(Request ID[^)]*\)", "", str(error))
    return " ".join(text.split())[:300]


def fetch(
    repo_id: str, revision: str | None, patterns: Sequence[str], *, kind: str
) -> tuple[Path, HubError | None]:
    """Fetch files at the top level of a repository.

    Returns:
        The folder, which has the name of the commit; and the error of the hub if it
        could not be asked, so that the folder is a local copy.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    unreachable: HubError | None = None
    try:
        with hub_errors(repo_id, kind=kind):
            HfApi().repo_info(
                repo_id, revision=revision, repo_type=kind, timeout=TIMEOUT_SECONDS
            )
    except HubError as error:
        unreachable = error
    try:
        with hub_errors(repo_id, kind=kind):
            folder = snapshot_download(
                repo_id,
                repo_type=kind,
                revision=revision,
                allow_patterns=list(patterns),
                ignore_patterns=["*/*"],
                local_files_only=unreachable is not None,
            )
    except HubError as error:
        # the first error says why the hub was not asked
        raise unreachable or error from None
    return Path(folder), unreachable


def fetch_model(
    repo_id: str, revision: str | None, *, needs_weights: bool = True
) -> tuple[Path, str]:
    """Fetch configuration, tokenizer and safetensors weights, also of adapters.

    Args:
        repo_id: the model on the hub.
        revision: its commit, branch or tag; None for the newest commit.
        needs_weights: whether the weights will be read; if not, they are not fetched.

    Returns:
        The folder and its commit.
    """
    # the small files may forbid the model: they come before the large weights
    small_files = SMALL + RARE
    folder, _ = fetch(repo_id, revision, small_files, kind="model")
    refuse_code(folder)
    if needs_weights:
        patterns = (*small_files, *WEIGHTS, ADAPTER_WEIGHTS)
        folder, _ = fetch(repo_id, folder.name, patterns, kind="model")
    return folder, folder.name


def hub_only(option: str, value: str, name: str) -> ConfigError:
    """The error for a revision or subset of something on this disk, which has none."""
    found = f"{option} {shortened(value)}, and '{name}' is on this disk"
    return ConfigError(f"{option} needs a repository of the hub", found=found)


def refuse_code(folder: Path) -> None:
    """Refuse a model that brings its own code, or takes its attention from the hub.

    This holds even if transformers has a class for the ``model_type``. That class
    computes other numbers than the authors mean, as a causal class does for a
    bidirectional model.
    """

    def check(part: dict[str, object]) -> dict[str, object]:
        for key, value in part.items():
            if _is_foreign_code(key, value):
                raise ConfigError(
                    "the encoder brings its own code, which is never run",
                    expected="an encoder and tokenizer that transformers knows by "
                    "itself",
                    found=f"{key}: {json.dumps(value)[:120]}",
                    where=str(folder),
                )
        return part

    # the reader of a file's content reports all else that is wrong with it
    unreadable = (OSError, json.JSONDecodeError, UnicodeDecodeError, RecursionError)
    for name in CONFIG_FILES:
        with suppress(*unreadable):
            json.loads((folder / name).read_bytes(), object_hook=check)


def _is_foreign_code(key: str, value: object) -> bool:
    """Whether an entry of a configuration names code outside of transformers."""
    if key == "auto_map":
        return bool(value)
    # a kernel on the hub has a name like owner/repository
    return key.endswith("attn_implementation") and "/" in json.dumps(value)
