from __future__ import annotations

import errno
import os
from collections.abc import Callable

import numpy as np
import pytest
import torch

from gaam_cache.errors import CacheError, GaamError
from gaam_cache.terminal import as_refusal, ran_out


def raised(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:  # noqa: BLE001 whatever it is
        return error
    raise AssertionError("nothing was raised")


def wrapped(inner: BaseException) -> BaseException:
    def wrap() -> None:
        try:
            raise inner
        except BaseException as error:
            raise CacheError("the shard is damaged", hint="delete it") from error

    return raised(wrap)


def of_number(number: int) -> OSError:
    return OSError(number, os.strerror(number), "name")


EXHAUSTED = {
    "numpy": (raised(lambda: np.empty(2**60, np.uint8)), "batch-tokens"),
    "torch": (raised(lambda: torch.empty(2**60, dtype=torch.uint8)), "seed-batch"),
    "python": (MemoryError(), "shard-rows"),
    "a GPU": (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "memory"),
    "the dynamic loader": (ImportError("libx.so: failed to map: Cannot allocate memory"), "memory"),
    "a system call": (of_number(errno.ENOMEM), "memory"),
    "open": (of_number(errno.EMFILE), "ulimit -n"),
    "open, all processes": (of_number(errno.ENFILE), "ulimit -n"),
    "HDF5": (OSError("unable to open file (errno = 24, error message = 'x')"), "ulimit -n"),
    "safetensors": (RuntimeError('Os { code: 24, message: "Too many open files" }'), "ulimit -n"),
    "threads": (RuntimeError("can't start new thread"), "ulimit -u"),
}


@pytest.mark.parametrize("kind", EXHAUSTED)
@pytest.mark.parametrize("wrap", [False, True], ids=["bare", "wrapped"])
def test_what_ran_out_is_named_with_what_to_do_whoever_wraps_it(kind: str, wrap: bool) -> None:
    error, words = EXHAUSTED[kind]
    error = wrapped(error) if wrap else error
    refusal = as_refusal(error)
    assert isinstance(refusal, GaamError)
    assert refusal.exit_code == 1
    assert words in str(refusal)
    assert "damaged" not in str(refusal)
    assert ran_out(error)


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOSPC, errno.ESTALE])
def test_any_other_refusal_counts_where_nobody_has_said_more_of_it(number: int) -> None:
    error = of_number(number)
    assert os.strerror(number) in str(as_refusal(error))
    assert not ran_out(error)
    assert as_refusal(wrapped(error)) is None


def test_a_bug_stays_a_bug() -> None:
    for error in (KeyError("x"), AssertionError(), RuntimeError("shapes differ"), ValueError()):
        assert as_refusal(error) is None
