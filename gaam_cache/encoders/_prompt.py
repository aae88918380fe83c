"""Texts within a prompt, and which of their tokens are the text's own.

T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gaam_cache.config_checks import PLACE, check_place
from gaam_cache.encoders._base import Inputs
from gaam_cache.encoders._tokens import TWICE, Tokens
from gaam_cache.errors import ConfigError, DataError, NotFoundError


class Prompt(NamedTuple):
    """What stands before a text, and what behind it."""

    before: str
    after: str

    @classmethod
    def of(cls, prompt: str | None, file: Path | None) -> Self | None:
        """The prompt of a configuration; None where there is none, or nothing around the text.

        A file is taken as it stands, but for one line end at its end.
        """
        if file is not None:
            try:
                prompt = file.expanduser().read_bytes().decode("utf-8")
            except (OSError, ValueError) as error:
                raise NotFoundError(
                    f"cannot read the prompt '{file}'",
                    expected=f"UTF-8 text with '{PLACE}' where the text stands",
                    found=getattr(error, "strerror", None) or str(error),
                ) from error
            prompt = prompt.removesuffix("\n").removesuffix("\r")
        if prompt is None:
            return None
        check_place(prompt, "--prompt" if file is None else str(file))
        found = cls(*prompt.split(PLACE))
        return found if any(found) else None

    def around(self, text: str) -> str:
        """The prompt with a text in its place; a ``{text}`` within that is itself."""
        return f"{self.before}{text}{self.after}"


class Cut(NamedTuple):
    """Tokens of a text and its prompt that an encoder takes."""

    ids: list[int]
    start: int
    stop: int
    """Of the text's own tokens among them; equal where none is left."""
    truncated: bool


class PromptedTokens(Tokens):
    """Texts within a prompt as token ids, of which the text's own may be pooled alone.

    A text that is too long is cut, and not the prompt. Whether there is a prompt or not, every text
    is read whole and cut afterwards.
    """

    def __init__(
        self,
        tokenizer: Any,
        model_config: Any,
        folder: Path,
        *,
        prompt: Prompt | None,
        over_text: bool,
        max_length: int,
    ) -> None:
        super().__init__(tokenizer, model_config, folder)
        self.prompt, self._over_text = prompt, over_text
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                "the tokenizer does not say where in a text its tokens stand",
                expected="a tokenizer with a tokenizer.json, which --prompt and pool-over need",
                found=type(tokenizer).__name__,
                where=str(folder),
            )
        if prompt is not None and (taken := len(self.ids([prompt.around("")])[0])) >= max_length:
            raise ConfigError(
                "the prompt leaves no room for a text",
                expected=f"a --max-length above the {taken} tokens of the prompt",
                found=f"a maximum length of {max_length}",
                where=str(folder),
            )

    def prepare(self, rows: Sequence[str], max_length: int) -> Inputs:
        """Token ids of every text and its prompt; a text of which none is left has no length."""
        cuts = self._cut(rows, max_length)
        self.check_same(cuts[:TWICE], self._cut(rows[:TWICE], max_length))
        spans = [(one.start, one.stop) for one in cuts] if self._over_text else None
        items = self.as_arrays([one.ids for one in cuts], spans)
        # without a prompt and pooled over all, an empty text is what its special tokens are
        lost = [one.start == one.stop and (self._over_text or one.truncated) for one in cuts]
        lengths = np.where(lost, 0, items.length_N)
        return Inputs(items=items, lengths=lengths, truncated=[one.truncated for one in cuts])

    def _cut(self, rows: Sequence[str], max_length: int) -> list[Cut]:
        around = self.prompt or Prompt("", "")
        read = self.read(
            [around.around(row) for row in rows],
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
                first = len(around.before)
                own_T, alone_T = _whose(offsets, own_T, first, first + len(row))
            cuts.append(_fitting(ids, own_T, alone_T, max_length, left=left))
        return cuts


def _whose(
    offsets: Sequence[tuple[int, int]], real_T: NDArray[np.bool_], first: int, end: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell the tokens of a text from those of its prompt.

    A token that holds characters of both, as when white space before a word belongs to it, is the
    text's. Tokens that the tokenizer puts around every text are nobody's.

    Numerics:
        Byte-level tokenizers take white space out of what a token is said to hold, so that a token
        of white space alone begins where it ends: it stands for what is before that place. At the
        very beginning such a token stands for the first character.

    Returns:
        Of every token whether it holds a character of the text, and whether it holds none of the
        prompt either: then it can be cut.
    """
    start_T, stop_T = np.asarray(offsets, np.int64).reshape(-1, 2).T
    empty_T = start_T == stop_T
    start_T = np.where(empty_T, np.maximum(start_T - 1, 0), start_T)
    stop_T = np.where(empty_T, np.maximum(stop_T, 1), stop_T)
    own_T = (start_T < end) & (stop_T > first) & real_T
    return own_T, own_T & (start_T >= first) & (stop_T <= end)


def _fitting(
    ids: list[int],
    own_T: NDArray[np.bool_],
    alone_T: NDArray[np.bool_],
    max_length: int,
    *,
    left: bool,
) -> Cut:
    """The whole prompt, and of the text what fits beside it; ``left``: cut at its beginning."""
    own = np.flatnonzero(own_T)
    over = len(ids) - max_length
    if not len(own):
        return Cut(ids[:max_length], 0, 0, over > 0)
    start, stop = int(own[0]), int(own[-1]) + 1
    if stop - start != len(own):
        raise DataError("the tokens of a text do not stand together in its prompt")
    if over <= 0:
        return Cut(ids, start, stop, truncated=False)
    places = np.flatnonzero(alone_T)
    gone = places[:over] if left else places[-over:]
    if len(gone) < over or len(own) - over < 1:
        return Cut(ids[:max_length], 0, 0, truncated=True)
    return Cut(np.delete(np.asarray(ids), gone).tolist(), start, stop - over, truncated=True)
