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
            raise ConfigError(
                "rows are texts, or those of a file",
                expected="TEXT or --file",
                found=f"{shortened(self.texts[0])!r} and --file {self.file}",
            )
        if not self.texts and self.file is None and self.cache is None:
            raise ConfigError(
                "nothing to predict",
                expected="texts, - for stdin, --file FILE, or --cache CACHE --split test",
            )
        if STDIN in self.texts and len(self.texts) > 1:
            raise ConfigError(
                "'-' means that texts come by stdin",
                expected="no other text beside it",
                found=", ".join(map(shortened, self.texts[:8])),
            )
        if self.format is not None and self.format not in FORMATS:
            raise ConfigError(
                "--format is out of range",
                expected=f"one of: {', '.join(FORMATS)}",
                found=shortened(self.format),
            )
        if self.overwrite and self.out is None:
            raise ConfigError("--overwrite is for --out", expected="--out FILE beside it")
        if not self.of_stdin:
            self._refuse(("format",), "stdin, which is called -")
        if self.of_cache:
            self._refuse(_OF_ROWS[1:], "rows that are read")
            self._refuse(("encoder", "batch_tokens"), "rows that are encoded")
        else:
            self._refuse(("split",), "--cache without texts or --file")
        if self.of_texts:
            self._refuse(("out", *_OF_ROWS), "files and stdin")
        if self.of_lines:
            self._refuse(("text_columns", "file_column", "delimiter"), "tables", " --format csv")

    def _refuse(self, names: tuple[str, ...], place: str, instead: str = "") -> None:
        """Refuse settings that play no part, unless they are at their default."""
        defaults = {field.name: field.default for field in fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                option = option_of(name.removesuffix("s") if name == "text_columns" else name)
                raise ConfigError(
                    f"{option} plays no part here",
                    expected=f"{option} for {place}",
                    found=option,
                    hint=f"leave out {option}{', or say' if instead else ''}{instead}",
                )

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
