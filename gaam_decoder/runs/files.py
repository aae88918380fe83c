"""The files of a run folder, and errors about them.

A run is one decoder, trained with one recipe on one cache, over some seeds. Shapes: S
seeds, N test rows, V validation rows, C classes.

A run folder holds these files::

    runs/laplace-linear-1f9c2a7b-s0-9/
      run.json                what was trained, on what, and how each seed ended;
                              size and SHA-256 of every other file
      config.toml             all settings; gaam train --config trains the run again
      log.jsonl               one line per seed and epoch
      weights.safetensors     every parameter of every seed, stacked: (S, ...)
      test.safetensors        logits (S, N, C), labels (N,), attention_map (S, ...),
                              learned.NAME (S, ...), same.NAME (N,); of a fold also
                              rows (N,). A final model has N = 0 and no map
      validation.safetensors  logits (S, V, C), labels, rows and same.NAME, each (V,)

Of numbers and of label sets, C are the columns or labels, and labels are (N, C) and
(V, C): float32, or uint8 of 0 and 1. Logits of numbers are in the unit of the data; the
weights ``targets.mean`` and ``targets.std`` put them there. ``states.factor`` are the
factors of the states, where a recipe scales them.

A tensor ``same.NAME`` gives rows that belong together the same number.

The folder appears by one rename when the run is finished. ``read_run`` checks the sizes
of the files; each file is hashed before its first use.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from gaam_cache.common.errors import CacheError, GaamError
from gaam_cache.store import files as disk

RUN_FILE = "run.json"
RUN_VERSION = 1
WEIGHTS_FILE = "weights.safetensors"
TEST_FILE = "test.safetensors"
LOG_FILE = "log.jsonl"
VALIDATION_FILE = "validation.safetensors"
CONFIG_FILE = "config.toml"
EXPORT_FILE = "config.json"
"""The settings of a decoder that ``gaam export`` wrote."""
EXPORT_FORMAT = "gaam-decoder"
"""What these settings say as their ``format``."""
RUN_FILES = {WEIGHTS_FILE, TEST_FILE, LOG_FILE}
"""Files that every run has beside run.json."""
ALL_FILES = RUN_FILES | {VALIDATION_FILE, CONFIG_FILE}
RELATION_PREFIX = "same."
"""Prefix of tensors that give rows that belong together the same number."""
LEARNED_PREFIX = "learned."
"""Prefix of the tensors of learned parameters."""


@contextmanager
def explained_file_errors(path: Path) -> Iterator[None]:
    """Turn an error about a file of a run into a CacheError that explains it.

    Args:
        path: the file that is read in this block.
    """
    try:
        yield
    except GaamError:
        # It is explained already.
        raise
    except disk.ElsewhereError as error:
        raise error.out_of_reach_error(f"the run '{path.parent.name}'", path) from error
    except (*disk.DAMAGE, SafetensorError) as error:
        is_gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        if is_gone and not path.parent.is_dir():
            raise disk.moved_away_error("run", path.parent) from error
        reason = getattr(error, "strerror", None) or str(error)
        if path.name not in reason:
            reason = f"{path.name}: {reason}"
        raise damaged_run(path, reason) from error


def damaged_run(path: Path, reason: str) -> CacheError:
    """The error about a file of a run that is damaged, to be raised.

    Args:
        path: the file.
        reason: what is wrong with it.
    """
    folder = shlex.quote(str(path.parent))
    return CacheError(
        f"the run '{path.parent.name}' is damaged",
        found=reason,
        where=str(path),
        hint=f"copy the run again from an intact copy; else move {folder} out of the "
        "folder of runs, and run the 'gaam train' command that made it again",
    )
