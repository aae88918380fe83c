"""Texts as token ids, in a prompt where there is one: the same each time, and not too many.

N texts, T tokens of one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gaam_cache.config import PLACE, ExtractConfig, check_place
from gaam_cache.encoders._base import Inputs
from gaam_cache.encoders._weights import encoder_part, foreign, skeleton
from gaam_cache.errors import ConfigError, DataError, NotFoundError

TWICE = 8
"""Texts of a shard that are tokenised twice: what is drawn at random is no state of a text."""
DEFAULT_MAX_LENGTH = 512


class Spanned(NamedTuple):
    """A text of which a part is pooled: from ``start`` to ``stop``."""

    ids: NDArray[np.int64]
    start: int
    stop: int


class Cut(NamedTuple):
    """Tokens of a text and its prompt that an encoder takes."""

    ids: list[int]
    start: int  # of the text's own tokens among them
    stop: int  # equal where none is left
    truncated: bool


class Tokens:
    """The tokenizer of an encoder, the length at which it cuts, and the prompt around every text.

    Where there is a prompt, or the text's own tokens alone are pooled, every text is read whole and
    cut afterwards: the text is, and not the prompt.
    """

    def __init__(
        self, tokenizer: Any, model_config: Any, folder: Path, config: ExtractConfig
    ) -> None:
        self.tokenizer, self._folder = tokenizer, folder
        self._model_config, self._text_config = model_config, model_config.get_text_config()
        names = sorted(tokenizer.vocab_files_names.values())
        if names and not any((folder / name).is_file() for name in self.files()):
            hint = "save it there: AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
            expected = f"one of: {', '.join(names)}"
            raise ConfigError(f"'{folder}' holds no tokenizer", expected=expected, hint=hint)
        self.max_length = self._longest(config.max_length)
        self.prompt = _prompt_of(config)
        """The text around every text, ``{text}`` in the place of that; None where there is none."""
        self._over_text = config.pool_over == "text"
        self._whole = self.prompt is not None or self._over_text
        if self._whole and not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                "the tokenizer does not say where in a text its tokens stand",
                expected="a tokenizer with a tokenizer.json, which --prompt and pool-over need",
                found=type(tokenizer).__name__,
            )
        taken = len(self._ids([self.prompt.replace(PLACE, "")])[0]) if self.prompt else 0
        if taken >= self.max_length:
            raise ConfigError(
                "the prompt leaves no room for a text",
                expected=f"a --max-length above the {taken} tokens of the prompt",
                found=f"a maximum length of {self.max_length}",
            )

    def _longest(self, asked: int | None) -> int:
        """The longest text in tokens: as asked, else 512 or the encoder's limit."""
        # a tokenizer that finds no room for its special tokens does not cut at all
        special = self.tokenizer.num_special_tokens_to_add()
        if asked is not None and asked <= special:
            raise ConfigError(
                "--max-length leaves no room for the text",
                expected=f"at least {special + 1} tokens: {special} of every text are special ones",
                found=str(asked),
            )
        positions = getattr(self._text_config, "max_position_embeddings", None)
        limits = [n for n in (self.tokenizer.model_max_length, positions) if n and 0 < n < 10**9]
        pad = getattr(self._text_config, "pad_token_id", None) or 0
        if limits and positions and min([asked or DEFAULT_MAX_LENGTH, *limits]) >= positions - pad:
            # whether it counts from behind padding on, as RoBERTa, only its own structure tells
            limits += [
                module.num_embeddings - module.padding_idx - 1
                for name, module in encoder_part(skeleton(self._model_config)).named_modules()
                if type(module) is nn.Embedding
                and module.padding_idx is not None
                and "position" in name.lower()
                and "type" not in name.lower()
            ]
        limit = int(min(limits, default=asked or DEFAULT_MAX_LENGTH))
        if asked is not None and asked > limit:
            message = "--max-length is more than the encoder can take"
            raise ConfigError(message, expected=f"at most {limit} tokens", found=str(asked))
        return asked or min(DEFAULT_MAX_LENGTH, limit)

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Token ids of every text, special tokens included; none where nothing of it is left."""
        cut = self._cut_in_prompt if self._whole else self._cut
        cuts = cut(rows)
        if cuts[:TWICE] != cut(rows[:TWICE]):
            hint = "copy the encoder and turn that off in the copy (of BPE: dropout null)"
            raise ConfigError("the tokenizer draws tokens at random", hint=hint)
        flat = array("q")  # refuses None and fractions, as NumPy does not, and is twice as fast
        with foreign("the tokenizer cannot read a text", self._folder):
            for one in cuts:
                flat.fromlist(one.ids)
        length_N = np.fromiter((len(one.ids) for one in cuts), np.int64, len(cuts))
        texts: list[Any] = np.split(np.array(flat, np.int64), np.cumsum(length_N)[:-1])
        if self._over_text:
            texts = [Spanned(ids, c.start, c.stop) for ids, c in zip(texts, cuts, strict=True)]
        # without a prompt and pooled over all, an empty text is what its special tokens are
        lost = [one.start == one.stop and (self._over_text or one.truncated) for one in cuts]
        truncated = [one.truncated for one in cuts]
        return Inputs(items=texts, lengths=np.where(lost, 0, length_N), truncated=truncated)

    def _cut(self, rows: Sequence[str]) -> list[Cut]:
        cuts = [
            Cut(list(ids), 0, len(ids), truncated=False)
            for ids in self._ids(rows, truncation=True, max_length=self.max_length)
        ]
        # only a text that fills the maximum can have been cut: ask for its true length
        full = [i for i, one in enumerate(cuts) if len(one.ids) == self.max_length]
        for i, ids in zip(full, self._ids([rows[i] for i in full]) if full else (), strict=True):
            cuts[i] = cuts[i]._replace(truncated=len(ids) > self.max_length)
        return cuts

    def _cut_in_prompt(self, rows: Sequence[str]) -> list[Cut]:
        before, after = (self.prompt or PLACE).split(PLACE)
        read = self._read(
            [f"{before}{row}{after}" for row in rows],
            truncation=False,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
        )
        left = getattr(self.tokenizer, "truncation_side", "right") == "left"
        cuts = []
        columns = (read[key] for key in ("input_ids", "offset_mapping", "special_tokens_mask"))
        for row, ids, offsets, special in zip(rows, *columns, strict=True):
            own_T = alone_T = ~np.asarray(special, bool)
            if self.prompt is not None:
                own_T, alone_T = _whose(offsets, own_T, len(before), len(before) + len(row))
            cuts.append(_fitting(ids, own_T, alone_T, self.max_length, left=left))
        return cuts

    def _ids(self, rows: Sequence[str], **options: Any) -> list[list[int]]:
        found: list[list[int]] = self._read(rows, **{"truncation": False} | options)["input_ids"]
        return found

    def _read(self, rows: Sequence[str], **options: Any) -> Any:
        """What the tokenizer makes of texts."""
        with foreign("the tokenizer cannot read a text", self._folder):
            return self.tokenizer(
                list(rows),
                add_special_tokens=True,
                padding=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
                **options,
            )

    def have_types(self) -> bool:
        """Whether the tokenizer tells tokens of one text apart by a type."""
        for text in ("", "a"):
            with suppress(Exception):  # it may have no token for this; rows are for prepare to try
                encoded = self.tokenizer([text], return_token_type_ids=True, verbose=False)
                if any(map(any, encoded.get("token_type_ids") or [])):
                    return True
        return False

    def files(self) -> set[str]:
        """Names of the files that the tokenizer reads."""
        given = [value for value in self.tokenizer.init_kwargs.values() if isinstance(value, str)]
        names = self.tokenizer.vocab_files_names.values()
        return {*names, *(Path(value).name for value in given)}

    def pad_ids(self, size: int | None) -> list[int]:
        """Tokens that fill batches, for the tokenizer or for the model."""
        named = [getattr(self._text_config, name, None) for name in ("pad_token_id", "pad_index")]
        given = (self.tokenizer.pad_token_id, *named)
        return [i for i in given if type(i) is int and 0 <= i < (size or i + 1)]

    def marks(self, model: Any, size: int | None) -> list[int]:
        """Tokens of no word that a text may hold all the same."""
        around = self._ids([""])[0]
        tables = (module for module in model.modules() if isinstance(module, nn.Embedding))
        zero = (t.padding_idx for t in tables if t.num_embeddings == size)
        found = [*around[:1], *self.pad_ids(size), *zero, *around[1:]]
        return list(dict.fromkeys(i for i in found if i is not None and i < (size or i + 1)))


def _prompt_of(config: ExtractConfig) -> str | None:
    """The prompt of a configuration; of a file all but one line end at its end."""
    prompt, file = config.prompt, config.prompt_file
    if file is not None:
        try:
            prompt = file.expanduser().read_bytes().decode("utf-8")
        except (OSError, ValueError) as error:
            expected = f"UTF-8 text with '{PLACE}' where the text stands"
            message, found = f"cannot read the prompt '{file}'", str(error)
            raise NotFoundError(message, expected=expected, found=found) from error
        prompt = prompt.removesuffix("\n").removesuffix("\r")
        check_place(prompt, str(file))
    return None if prompt == PLACE else prompt


def _whose(
    offsets: Sequence[tuple[int, int]], real_T: NDArray[np.bool_], first: int, end: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which tokens hold characters of a text, and which of its prompt none: those can be cut."""
    start_T, stop_T = np.asarray(offsets, np.int64).reshape(-1, 2).T
    # byte-level tokenizers take white space out of what a token is said to hold: one of white space
    # alone begins where it ends, and stands for what is before that place
    empty_T = start_T == stop_T
    start_T = np.where(empty_T, np.maximum(start_T - 1, 0), start_T)
    stop_T = np.where(empty_T, np.maximum(stop_T, 1), stop_T)
    own_T = (start_T < end) & (stop_T > first) & real_T
    return own_T, own_T & (start_T >= first) & (stop_T <= end)


def _fitting(
    ids: list[int],
    own_T: NDArray[np.bool_],
    alone_T: NDArray[np.bool_],
    longest: int,
    *,
    left: bool,
) -> Cut:
    """The whole prompt, and of the text what fits beside it; ``left``: cut at its beginning."""
    own, places = np.flatnonzero(own_T), np.flatnonzero(alone_T)
    over = len(ids) - longest
    if len(own) and own[-1] - own[0] + 1 != len(own):
        raise DataError("the tokens of a text do not stand together in its prompt")
    if len(own) <= max(over, 0) or len(places) < over:  # nothing is left of it
        return Cut(ids[:longest], 0, 0, truncated=over > 0)
    start, stop = int(own[0]), int(own[-1]) + 1
    if over <= 0:
        return Cut(ids, start, stop, truncated=False)
    gone = places[:over] if left else places[-over:]
    return Cut(np.delete(np.asarray(ids), gone).tolist(), start, stop - over, truncated=True)
