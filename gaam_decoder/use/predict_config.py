"""What a prediction is: one frozen dataclass that validates itself."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from gaam_cache.config_checks import check_at_least
from gaam_cache.devices import check_device
from gaam_cache.errors import ConfigError
from gaam_cache.messages import option_of, shortened

STDIN = "-"
"""The text that means those that come by stdin."""
FORMATS = ("text", "csv", "jsonl")
"""Of what comes by stdin."""
_OF_TABLES = ("prefix", "text_columns", "file_column", "delimiter", "encoding")
_OF_ROWS = (*_OF_TABLES, "format", "allow_outside", "skip_empty")


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictConfig:
    """Everything ``gaam predict`` can be told.

    Raises:
        ConfigError: on construction: a value out of its range, or settings that do not go together.
    """

    run: Path
    """Folder of a finished run."""
    texts: tuple[str, ...] = ()
    """Texts, or paths of sounds or pictures; '-' alone: what comes by stdin, to its end."""
    file: Path | None = None
    """A table: CSV, JSON lines, Parquet."""
    cache: Path | None = None
    """Without texts and file: the cache whose rows are predicted, without an encoder. With them:
    where the cache of the run is, if the run is of an earlier version and the cache has moved."""
    split: str | None = None
    """Of the cache; default: 'test'."""
    out: Path | None = None
    """CSV, JSON lines or Parquet; default: stdout."""
    overwrite: bool = False
    """Replace ``out`` if it is there, and what another prediction has begun."""
    format: str | None = None
    """Of what comes by stdin: text (one a line), csv or jsonl; default: text."""
    seed: int | None = None
    """Whose decoder alone is used; default: all that finished, averaged."""
    temperature: bool = False
    """Divide the logits of every seed by its temperature, fitted on rows that chose its epoch."""
    top: int = 1
    """How many of the likeliest classes are named."""
    prefix: str = ""
    """Of the names of the columns that are added."""
    text_columns: tuple[str, ...] = ()
    """Columns joined by a space; default: those of the run."""
    file_column: str | None = None
    """Column of the paths of sounds or pictures; default: that of the run, or a usual name."""
    allow_outside: bool = False
    """Take files that lie outside of the folder of the table that names them."""
    delimiter: str | None = None
    """What parts the fields of a CSV file; default: a comma."""
    encoding: str | None = None
    """Of the characters in CSV, JSON lines and lines; default: UTF-8."""
    skip_empty: bool = False
    """Let rows be of which nothing is to be encoded: their results are empty."""
    encoder: str | None = None
    """Where the encoder of the run is, if it has moved."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    batch_tokens: int | None = None
    """Tokens of one batch of the encoder; default: what suits the device."""

    def __post_init__(self) -> None:
        """Refuse what cannot work before anything is read."""
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
        if self.format is not None and self.format not in FORMATS:
            expected, found = f"one of: {', '.join(FORMATS)}", shortened(self.format)
            raise ConfigError("format is out of range", expected=expected, found=found)
        idle = set() if self.of_stdin else {"format"}
        idle |= {*_OF_ROWS[1:], "encoder", "batch_tokens"} if self.of_cache else {"split"}
        idle |= {"out", *_OF_ROWS} if self.of_texts else set()
        idle |= {"text_columns", "file_column", "delimiter"} if self.of_lines else set()
        idle |= {"overwrite"} if self.out is None else set()
        for field in fields(self):
            if field.name in idle and getattr(self, field.name) != field.default:
                option = option_of(field.name.replace("text_columns", "text_column"))
                raise ConfigError(f"{option} plays no part here", hint=f"leave out {option}")

    @property
    def of_cache(self) -> bool:
        """Whether the rows are those of a cache."""
        return not self.texts and self.file is None

    @property
    def of_stdin(self) -> bool:
        """Whether they come by stdin."""
        return self.texts == (STDIN,)

    @property
    def of_texts(self) -> bool:
        """Whether they stand on the command line."""
        return bool(self.texts) and not self.of_stdin

    @property
    def of_lines(self) -> bool:
        """Whether they are the lines of stdin."""
        return self.of_stdin and self.format in (None, FORMATS[0])
