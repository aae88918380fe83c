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
    """A regular expression for file names that match one of the globs.

    '*' stands for any characters but '/', so that only files at the top level match.
    """
    escaped = [glob.replace(".", r"\.").replace("*", "[^/]*") for glob in globs]
    return re.compile("|".join(escaped))


MODEL_FILE = _pattern(SMALL + WEIGHTS)
TOKENIZER_FILE = _pattern(RARE)
WEIGHTS_FILE = re.compile(r"model[^/\\]*\.safetensors")  # of a folder, and their index
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
    """Turn errors that the hub's client raises inside the block into errors of ours.

    An error of this machine, such as a full disk, passes as it is.

    Args:
        repo_id: the repository that the block asks for.
        kind: 'model' or 'dataset'.

    Raises:
        NotFoundError: the hub has no such repository or revision.
        HubError: the user has no access, or the hub refused or could not be reached.
    """
    from huggingface_hub import errors as client_errors

    # mypy does not see the base class of HTTP errors, which the client only imports
    errors: Any = client_errors
    repository = f"{KINDS[kind]} '{repo_id}'"
    try:
        yield
    except errors.GatedRepoError as error:
        raise gated_error(repo_id, kind) from error
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
        # a full disk, for example, is no fault of the hub
        if isinstance(error, GaamError) or _has_local_cause(error):
            raise
        # without a status the hub has not answered
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


def _has_local_cause(error: Exception) -> bool:
    """Whether this machine caused an error, such as a full disk, and not the network.

    The system gives its errors a number (errno).
    """
    if isinstance(error, ConnectionError | TimeoutError):
        return False
    return bool(getattr(error, "errno", None))


def _http_status(error: BaseException) -> int | None:
    """The HTTP status of the response that caused an error, or one of its causes.

    None if the hub has sent no response.
    """
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if response is not None:
            status: int | None = getattr(response, "status_code", None)
            return status
        cause = cause.__cause__
    return None


def gated_error(repo_id: str, kind: str) -> HubError:
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
    """The first 300 characters of an error's text, on one line.

    The id of the request is left out: it would make equal errors differ.
    """
    text = re.sub(r"\(Request ID[^)]*\)", "", str(error))
    return " ".join(text.split())[:300]


def fetch(
    repo_id: str, revision: str | None, patterns: Sequence[str], *, kind: str
) -> tuple[Path, HubError | None]:
    """Fetch files at the top level of a repository, or use a local copy of them.

    Args:
        repo_id: the repository on the hub.
        revision: its commit, branch or tag; None for the newest commit.
        patterns: globs of the files to fetch.
        kind: 'model' or 'dataset'.

    Returns:
        The folder of the files, whose name is the commit; and the error of the hub if
        it could not be asked and the files are a local copy, or else None.

    Raises:
        HubError: the hub refused, or could not be asked and there is no local copy.
        NotFoundError: the hub has no such repository or revision.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    # ask the hub with a short timeout first: the download would wait for minutes
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
    """Fetch a model's configuration, tokenizer and weights, and weights of an adapter.

    Args:
        repo_id: the model on the hub.
        revision: its commit, branch or tag; None for the newest commit.
        needs_weights: whether the weights will be read; if not, they are not fetched.

    Returns:
        The folder and its commit.
    """
    # the small files come before the large weights: they may show that the model has
    # code of its own, which is refused
    small_files = SMALL + RARE
    folder, _ = fetch(repo_id, revision, small_files, kind="model")
    refuse_code(folder)
    if needs_weights:
        patterns = (*small_files, *WEIGHTS, ADAPTER_WEIGHTS)
        # the name of the folder is the commit: a branch may have moved by now
        folder, _ = fetch(repo_id, folder.name, patterns, kind="model")
    return folder, folder.name


def hub_only_error(option: str, value: str, name: str) -> ConfigError:
    """The error for an option that only repositories of the hub have.

    Args:
        option: such as --revision, which a file or folder on this disk does not have.
        value: the value that the user gave.
        name: the file or folder.
    """
    value_and_folder = f"{option} {shortened(value)}, and '{name}' is on this disk"
    return ConfigError(
        f"{option} needs a repository of the hub", found=value_and_folder
    )


def refuse_code(folder: Path) -> None:
    """Refuse a model that brings its own code, or takes its attention from the hub.

    Such a model is refused even if transformers has a class for its ``model_type``:
    that class may compute other numbers than the authors mean, as a causal class does
    for a bidirectional model.

    Args:
        folder: the folder of the model, whose JSON files are read.

    Raises:
        ConfigError: a file names code outside of transformers.
    """

    # json calls this for every object in a file, nested ones too
    def check(json_object: dict[str, object]) -> dict[str, object]:
        for key, value in json_object.items():
            if _is_foreign_code(key, value):
                raise ConfigError(
                    "the encoder brings its own code, which is never run",
                    expected="an encoder and tokenizer that transformers knows by "
                    "itself",
                    found=f"{key}: {json.dumps(value)[:120]}",
                    where=str(folder),
                )
        return json_object

    # a missing or broken file is no code: whoever needs its content reports it
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
