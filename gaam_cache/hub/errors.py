"""What the hub's client raises, made into errors that say what to do; its patience, bounded."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gaam_cache.config import DEFAULT_DATASET, DEFAULT_ENCODER
from gaam_cache.errors import ConfigError, GaamError, HubError, NotFoundError, StorageError
from gaam_cache.messages import nearest

TIMEOUT_SECONDS = 8.0
TRIES = 4
"""How often one request is made; a range that begins further on in a file is another request."""
NOUNS = {"model": "model", "dataset": "data set", "decoder": "decoder"}
OF = {"model": "an encoder", "dataset": "a dataset", "decoder": "an exported decoder"}


def meant_what_is_here(error: GaamError, name: str, kind: str) -> GaamError:
    """The error, with a hint where ``name`` is nearly what comes with gaam."""
    here = {"model": DEFAULT_ENCODER, "dataset": DEFAULT_DATASET}.get(kind)
    if here is None:
        return error
    short = {here.rpartition("/")[2]: here, here.partition("-")[0]: here}
    meant = nearest(name, [here], short) if name != here else None
    if meant:
        other = f" If not: {error.details['to do']}" if "to do" in error.details else ""
        error.details["to do"] = f"did you mean '{meant}', which needs no hub?{other}"
    return error


@contextmanager
def hub_errors(repo_id: str, *, kind: str, downloading: bool = False) -> Iterator[None]:
    """Turn what the hub's client raises into one GaamError, and bound its patience.

    Args:
        repo_id: the repository.
        kind: 'model', 'dataset' or 'decoder'.
        downloading: files are being fetched: the hub has answered before.

    Raises:
        ConfigError: the id is malformed.
        NotFoundError: no such repository or revision.
        HubError: gated, unreachable, or a download that broke.
        StorageError: the local copy cannot be written.
    """
    try:
        with _translated(repo_id, kind, downloading):
            yield
    except GaamError as error:
        meant_what_is_here(error, repo_id, kind)
        raise


@contextmanager
def _translated(repo_id: str, kind: str, downloading: bool) -> Iterator[None]:
    from huggingface_hub import errors

    noun = NOUNS[kind]
    what = f"{noun} '{repo_id}'"
    try:
        with bounded_tries(what):
            yield
    except GaamError:
        raise  # said already; some are OSErrors too
    except errors.HFValidationError as error:
        raise ConfigError(
            f"'{repo_id}' is neither an existing path nor the id of {OF[kind]}",
            expected="a folder, a file, or an id like 'owner/name'",
            found=first_line(error),
        ) from error
    except errors.GatedRepoError as error:
        raise gated(repo_id, kind) from error
    except errors.RevisionNotFoundError as error:
        raise NotFoundError(
            f"the {what} has no such revision",
            expected="a branch, a tag or a full commit hash of that repository",
            found=first_line(error),
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise NotFoundError(
            f"no {what}",
            expected="a local path or an id that exists on the hub (private ones need HF_TOKEN)",
            found=first_line(error),
        ) from error
    except (errors.HTTPError, OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not downloading:
            raise
        raise _failed(error, what, downloading) from error


def _failed(error: Exception, what: str, downloading: bool) -> GaamError:
    """What to say about an error of the network, of a server or of this disk."""
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    found = first_line(cause) or type(cause).__name__
    response = getattr(cause, "response", None)
    network = (ConnectionError, TimeoutError)
    if isinstance(error, OSError) and error.errno and not isinstance(error, network):
        return StorageError(
            f"the local copy of the {what} cannot be written",
            found=error.strerror,
            where=str(error.filename or os.environ.get("HF_HOME", "~/.cache/huggingface")),
            hint="make room, or set HF_HOME to a folder that can hold it",
        )
    if response is not None:
        return HubError(
            f"the hub failed to answer for the {what}",
            found=found,
            hint="run the same again later",
        )
    if downloading:
        return HubError(
            f"the download of the {what} broke off",
            found=found,
            hint="run the same again: files that are complete are kept",
        )
    return HubError(
        f"the hub could not be reached for the {what}",
        found=found,
        hint="check the network and HF_ENDPOINT, or give a local path",
    )


def gated(repo_id: str, kind: str) -> HubError:
    """The answer to a repository that is shown to those alone who accepted its terms."""
    from huggingface_hub import constants

    folder = "datasets/" if kind == "dataset" else ""
    return HubError(
        f"the {NOUNS[kind]} '{repo_id}' is gated",
        found="the hub gives its files to those alone whom it knows to have accepted its terms",
        where=f"{constants.ENDPOINT}/{folder}{repo_id}",
        hint="accept them on that page, then log in with 'hf auth login' or set HF_TOKEN",
    )


def first_line(error: BaseException) -> str:
    """The first line; of an answer of the hub also what it says about the address."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    about = [line for line in lines[1:] if " for url" in line]
    return " ".join([re.sub(r" \(Request ID.*", "", line) for line in lines[:1]] + about[:1])


@contextmanager
def bounded_tries(what: str) -> Iterator[None]:
    """Give up on a request that is made again and again, and on one that is never answered.

    The hub's client goes on for as long as every try brings bytes: for ever, where a proxy cuts
    each answer and knows no ranges. Some of its waits are a minute, whatever HF_HUB_ETAG_TIMEOUT
    says.
    """
    from huggingface_hub import constants, get_session

    longest = max(constants.HF_HUB_ETAG_TIMEOUT, constants.HF_HUB_DOWNLOAD_TIMEOUT, TIMEOUT_SECONDS)
    made: Counter[tuple[str, ...]] = Counter()
    answers: dict[tuple[str, ...], str] = {}

    def key(request: Any) -> tuple[str, ...]:
        return (request.method, str(request.url), request.headers.get("range", ""))

    def count(request: Any) -> None:
        waits = request.extensions.get("timeout", {})
        waits |= {name: min(wait or longest, longest) for name, wait in waits.items()}
        made[key(request)] += 1
        if request.method in ("GET", "HEAD") and made[key(request)] > TRIES:
            raise HubError(
                f"the hub failed {TRIES} times to deliver a file of the {what}",
                found=answers.get(key(request), "no answer"),
                where=str(request.url),
                hint="run the same again later: files that are complete are kept",
            )

    def note(response: Any) -> None:
        code = response.status_code
        answers[key(response.request)] = (
            f"{code} {response.reason_phrase}" if code >= 400 else "an answer that breaks off"
        )

    hooks = get_session().event_hooks
    hooks["request"].append(count)
    hooks["response"].append(note)
    try:
        yield
    finally:
        hooks["request"].remove(count)
        hooks["response"].remove(note)
