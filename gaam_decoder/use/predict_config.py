"""What a prediction is: one frozen dataclass that validates itself."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from gaam_cache.config_checks import check_at_least, settle_paths
from gaam_cache.devices import check_device
from gaam_cache.errors import ConfigError
from gaam_cache.messages import option_of, shortened

STDIN = "-"
"""The text that means those that come by stdin."""
SUFFIXES = (".csv", ".jsonl", ".parquet")
"""Of files of results."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictConfig:
    """Everything ``gaam predict`` can be told.

    Raises:
        ConfigError: on construction: a value out of its range, or settings that do not go together.
    """

    run: Path
    """Folder of a finished run, or of what was exported of one."""
    texts: tuple[str, ...] = ()
    """Texts, or paths of sounds or pictures; '-' alone: one a line by stdin, to its end."""
    file: Path | None = None
    """A table: CSV, JSON lines, Parquet; or a text a line (.txt)."""
    cache: Path | None = None
    """Without texts and file: the cache whose rows are predicted, without an encoder. With them:
    where the cache of the run is, if the run is of an earlier version and the cache has moved."""
    split: str | None = None
    """Of the cache; default: 'test'."""
    out: Path | None = None
    """CSV, JSON lines or Parquet; default: stdout."""
    overwrite: bool = False
    """Replace ``out`` if it is there."""
    seed: int | None = None
    """Whose decoder alone is used; default: all that finished, averaged."""
    temperature: bool = False
    """Divide the logits of every seed by its temperature, fitted on rows that chose its epoch."""
    top: int = 1
    """How many of the likeliest classes are named."""
    text_columns: tuple[str, ...] = ()
    """Columns joined by a space; default: those of the run."""
    encoder: str | None = None
    """Where the encoder of the run is, if it has moved."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    batch_tokens: int | None = None
    """Tokens of one batch of the encoder; default: what suits the device."""

    def __post_init__(self) -> None:
        """Refuse what cannot work before anything is read."""
        settle_paths(self)
        check_device(self.device)
        check_at_least(self, 1, "top", "batch_tokens")
        check_at_least(self, 0, "seed")
        if self.texts and self.file is not None:
            found = f"{shortened(self.texts[0])!r} and --file {self.file}"
            raise ConfigError("rows are texts, or those of a file", found=found)
        if not self.texts and self.file is None and self.cache is None:
            expected = "texts, - for stdin, --file FILE, or --cache CACHE --split test"
            raise ConfigError("nothing to predict", expected=expected)
        if STDIN in self.texts and len(self.texts) > 1:
            found = ", ".join(map(shortened, self.texts[:8]))
            raise ConfigError("'-' means that texts come by stdin", found=found)
        if self.out is not None and self.out.suffix not in SUFFIXES:
            expected = f"a name ending in {', '.join(SUFFIXES)}"
            raise ConfigError("--out has no format", expected=expected, found=str(self.out))
        idle = {"text_columns", "encoder", "batch_tokens"} if self.of_cache else {"split"}
        idle |= {"text_columns"} if self.texts else set()
        idle |= {"out"} if self.of_texts else set()
        for field in fields(self):
            if field.name in idle and getattr(self, field.name) != field.default:
                option = option_of(field.name.replace("columns", "column"))
                raise ConfigError(f"{option} plays no part here", hint=f"leave out {option}")

    @property
    def of_cache(self) -> bool:
        """Whether the rows are those of a cache."""
        return not self.texts and self.file is None

    @property
    def of_texts(self) -> bool:
        """Whether they stand on the command line."""
        return bool(self.texts) and self.texts != (STDIN,)
