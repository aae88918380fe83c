"""Texts as token ids, cut at the maximum length of an encoder.

N texts, T tokens of all texts one after the other, or of one text.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.config import TEXT_PLACEHOLDER, ExtractConfig
from gaam_cache.encoders._located import foreign
from gaam_cache.encoders._prompts import ChatTemplate, WrappedText, wrap_in_prompt
from gaam_cache.encoders._tokenizer import EncoderTokenizer
from gaam_cache.encoders._weights import encoder_part, skeleton
from gaam_cache.encoders.base import Inputs

DEFAULT_MAX_LENGTH = 512
NO_LIMIT = 10**9
"""A limit this large means that a tokenizer states none."""
TOKENIZED_TWICE = 8
"""Texts of a shard that are tokenised twice, because a tokenizer may draw at random."""
EDGE = 6
"""Tokens at either end of a text among which a special token may stand twice."""


class SpannedText(NamedTuple):
    """Token ids of a text, of which those from ``start`` to ``stop`` are pooled."""

    ids: NDArray[np.int64]
    start: int
    stop: int


class CutText(NamedTuple):
    """Tokens of a text and its prompt, cut at the maximum length."""

    ids: list[int]
    start: int  # of the text's own tokens
    stop: int  # equal to ``start`` where none of its own tokens is left
    truncated: bool


class Tokens:
    """The tokenizer of an encoder, its maximum length, and the prompt around texts.

    The tokenizer cuts a text itself where it reads nothing but the text. Otherwise
    every text is read whole and cut afterwards, so that its prompt or markup stays
    whole.

    Attributes:
        prompt: the text around every text, with ``{text}`` in its place, if any.
        chat: the chat template that writes the markup around every text, if any.
    """

    def __init__(
        self, pretrained: Any, model_config: Any, folder: Path, config: ExtractConfig
    ) -> None:
        self._folder = folder
        self._model_config = model_config
        self._text_config = model_config.get_text_config()
        self.tokenizer = EncoderTokenizer(pretrained, folder, self._text_config)
        self.max_length = self._choose_max_length(config.max_length)

        self.prompt: str | None = None
        if config.prompt != TEXT_PLACEHOLDER:
            self.prompt = config.prompt
        self.chat: ChatTemplate | None = None
        if config.chat_template:
            self.chat = ChatTemplate(
                pretrained, folder, self.prompt or TEXT_PLACEHOLDER
            )
            # A template writes the special tokens: the tokenizer must not add them.
            self.tokenizer.markup = self.chat.before + self.chat.after

        self._is_wrapped = self.prompt is not None or self.chat is not None
        self._pools_own_tokens = config.pool_over == "text"
        self._cuts_afterwards = self._is_wrapped or self._pools_own_tokens
        self._check_offsets()
        self._check_room_in_markup()

    def _choose_max_length(self, requested: int | None) -> int:
        """The requested maximum length, else 512 tokens or the encoder's limit."""
        pretrained = self.tokenizer.pretrained
        # A tokenizer without room for its special tokens does not cut at all.
        num_special = pretrained.num_special_tokens_to_add()
        if requested is not None and requested <= num_special:
            raise ConfigError(
                "--max-length leaves no room for the text",
                expected=f"at least {num_special + 1} tokens: every text has "
                f"{num_special} special tokens",
                found=str(requested),
            )

        wanted_length = requested or DEFAULT_MAX_LENGTH
        positions = getattr(self._text_config, "max_position_embeddings", None)
        limits = [
            limit
            for limit in (pretrained.model_max_length, positions)
            if limit and 0 < limit < NO_LIMIT
        ]

        # RoBERTa counts positions from behind its padding token. Only its structure
        # shows this, and building it takes time: look where the padding could matter.
        pad_id = getattr(self._text_config, "pad_token_id", None) or 0
        if limits and positions and min(wanted_length, *limits) >= positions - pad_id:
            limits += self._limits_behind_padding()

        limit = int(min(limits, default=wanted_length))
        if requested is None:
            return min(DEFAULT_MAX_LENGTH, limit)
        if requested > limit:
            raise ConfigError(
                "--max-length is more than the encoder can take",
                expected=f"at most {limit} tokens",
                found=str(requested),
            )
        return requested

    def _limits_behind_padding(self) -> list[int]:
        """Lengths that are left by tables of positions that begin behind padding."""
        limits = []
        for name, module in encoder_part(skeleton(self._model_config)).named_modules():
            if type(module) is not nn.Embedding or module.padding_idx is None:
                continue
            if "position" in name.lower() and "type" not in name.lower():
                limits.append(module.num_embeddings - module.padding_idx - 1)
        return limits

    def _check_offsets(self) -> None:
        """Refuse a tokenizer without offsets if texts are cut inside their prompts."""
        pretrained = self.tokenizer.pretrained
        if self._cuts_afterwards and not getattr(pretrained, "is_fast", False):
            raise ConfigError(
                "the tokenizer does not report where in a text its tokens stand",
                expected="a tokenizer with a tokenizer.json, which --prompt, "
                "--chat-template and pool-over need",
                found=type(pretrained).__name__,
            )

    def _check_room_in_markup(self) -> None:
        """Refuse a maximum length that the markup of a chat template fills."""
        if self.tokenizer.markup is None:
            return
        # At least one token of the text must fit beside the markup.
        markup_length = len(self.tokenizer.ids([self.tokenizer.markup])[0])
        if markup_length >= self.max_length:
            raise ConfigError(
                "the markup of the chat template leaves no room for the text",
                expected=f"--max-length of at least {markup_length + 1} tokens",
                found=str(self.max_length),
            )

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Token ids of texts, special tokens included.

        A text of which no token is left has the length 0.
        """
        cut_texts = self._cut_texts(rows)
        if cut_texts[:TOKENIZED_TWICE] != self._cut_texts(rows[:TOKENIZED_TWICE]):
            raise ConfigError(
                "the tokenizer draws tokens at random",
                hint="copy the encoder and turn that off in the copy "
                "(of BPE: dropout null)",
            )

        ids_T = self._join(cut_texts)
        length_N = np.fromiter(
            (len(text.ids) for text in cut_texts), np.int64, len(cut_texts)
        )
        items: list[Any] = np.split(ids_T, np.cumsum(length_N)[:-1])
        if self._pools_own_tokens:
            items = [
                SpannedText(ids, text.start, text.stop)
                for ids, text in zip(items, cut_texts, strict=True)
            ]

        own_N, unknown_N = self._count_own_tokens(ids_T, length_N, cut_texts)
        is_lost = [self._is_lost(text) for text in cut_texts]
        return Inputs(
            items=items,
            lengths=np.where(is_lost, 0, length_N),
            truncated=[text.truncated for text in cut_texts],
            own=own_N,
            unknown=unknown_N,
            doubled=self._count_doubled(cut_texts),
        )

    def _join(self, cut_texts: Sequence[CutText]) -> NDArray[np.int64]:
        """The token ids of all texts, one after the other: (T,)."""
        # An array refuses None and fractions, as NumPy does not, and is twice as fast.
        joined = array("q")
        with foreign("the tokenizer cannot read a text", self._folder):
            for text in cut_texts:
                joined.fromlist(text.ids)
        return np.array(joined, np.int64)

    def _is_lost(self, text: CutText) -> bool:
        """Whether a text has no token that could be pooled.

        An empty text still has its special tokens, if these are pooled too.
        """
        has_no_own_token = text.start == text.stop
        return has_no_own_token and (self._pools_own_tokens or text.truncated)

    def _count_own_tokens(
        self,
        ids_T: NDArray[np.int64],
        length_N: NDArray[np.int64],
        cut_texts: Sequence[CutText],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Every text's own tokens, (N,), and the unknown ones among them, (N,)."""
        # Positions count from the beginning of each text.
        num_texts = len(cut_texts)
        text_T = np.repeat(np.arange(num_texts), length_N)
        first_T = np.repeat(np.cumsum(length_N) - length_N, length_N)
        position_T = np.arange(len(ids_T)) - first_T

        start_N = np.array([text.start for text in cut_texts], np.int64)
        stop_N = np.array([text.stop for text in cut_texts], np.int64)
        is_inside_T = (start_N[text_T] <= position_T) & (position_T < stop_N[text_T])

        # The unknown token is a special one, and all the same it stands for text.
        is_unknown_T = np.isin(ids_T, list(self.tokenizer.unknown)) & is_inside_T
        is_special_T = np.isin(ids_T, list(self.tokenizer.special))
        is_own_T = (~is_special_T & is_inside_T) | is_unknown_T

        own_N = np.bincount(text_T[is_own_T], minlength=num_texts)
        unknown_N = np.bincount(text_T[is_unknown_T], minlength=num_texts)
        return own_N, unknown_N

    def _count_doubled(self, cut_texts: Sequence[CutText]) -> dict[str, int]:
        """Special tokens that texts bring along beside the added ones.

        Returns:
            The name of such a token -> the number of texts with it.
        """
        texts_by_token: Counter[int] = Counter()
        for text in cut_texts:
            if self.chat is None:
                texts_by_token.update(self._repeated_at_edges(text))
            else:
                texts_by_token.update(self._added_inside_markup(text))
        return {
            self.tokenizer.name(token): count for token, count in texts_by_token.items()
        }

    def _repeated_at_edges(self, text: CutText) -> set[int]:
        """Added tokens that stand twice at the beginning or end of a text."""
        # A tokenizer adds its special tokens at the ends, and nowhere else.
        repeated: set[int] = set()
        for edge in (text.ids[:EDGE], text.ids[-EDGE:]):
            repeated.update(self.tokenizer.repeated_special(edge))
        return repeated

    def _added_inside_markup(self, text: CutText) -> set[int]:
        """Added tokens with which a text inside its markup begins or ends.

        The markup itself may repeat a token.
        """
        is_space = self.tokenizer.is_space
        own_ids = text.ids[text.start : text.stop]
        first = [token for token in own_ids[:EDGE] if not is_space(token)]
        last = [token for token in own_ids[-EDGE:] if not is_space(token)]
        return {*first[:1], *last[-1:]} & self.tokenizer.added

    def _cut_texts(self, rows: Sequence[str]) -> list[CutText]:
        if self._cuts_afterwards:
            return self._cut_in_prompts(rows)
        return self._cut_by_tokenizer(rows)

    def _cut_by_tokenizer(self, rows: Sequence[str]) -> list[CutText]:
        cut_texts = [
            CutText(list(ids), 0, len(ids), truncated=False)
            for ids in self.tokenizer.cut_ids(rows, self.max_length)
        ]

        # Only a text that fills the maximum length can have been cut: read it whole.
        full = [
            number
            for number, text in enumerate(cut_texts)
            if len(text.ids) == self.max_length
        ]
        if not full:
            return cut_texts
        whole_ids = self.tokenizer.ids([rows[number] for number in full])
        for number, ids in zip(full, whole_ids, strict=True):
            truncated = len(ids) > self.max_length
            cut_texts[number] = cut_texts[number]._replace(truncated=truncated)
        return cut_texts

    def _cut_in_prompts(self, rows: Sequence[str]) -> list[CutText]:
        # The tokenizer would cut prompts too, so that it reads every text whole.
        wrapped_texts = [self._wrap(row) for row in rows]
        encoded = self.tokenizer.read(
            [wrapped.content for wrapped in wrapped_texts],
            truncation=False,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
        )
        truncation_side = getattr(self.tokenizer.pretrained, "truncation_side", "right")

        cut_texts = []
        for wrapped, ids, offsets, special in zip(
            wrapped_texts,
            encoded["input_ids"],
            encoded["offset_mapping"],
            encoded["special_tokens_mask"],
            strict=True,
        ):
            is_own_T = ~np.asarray(special, bool)
            can_go_T = is_own_T
            if self._is_wrapped:
                is_own_T, can_go_T = find_own_tokens(offsets, is_own_T, wrapped)
            cut_text = cut_around_prompt(
                ids,
                is_own_T,
                can_go_T,
                self.max_length,
                at_beginning=truncation_side == "left",
            )
            cut_texts.append(cut_text)
        return cut_texts

    def _wrap(self, row: str) -> WrappedText:
        if self.chat is not None:
            return self.chat.wrap(row)
        return wrap_in_prompt(self.prompt or TEXT_PLACEHOLDER, row)


def find_own_tokens(
    offsets: Sequence[tuple[int, int]],
    is_real_T: NDArray[np.bool_],
    wrapped: WrappedText,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Find the tokens of a text inside its prompt.

    Args:
        offsets: the characters of every token, as the tokenizer reports them.
        is_real_T: whether a token stands for characters.
        wrapped: the text inside its prompt.

    Returns:
        The tokens that hold a character of the text, and those among them that hold no
        character of the prompt. Only the latter may be cut off.
    """
    offsets_T2 = np.asarray(offsets, np.int64).reshape(-1, 2)
    start_T = offsets_T2[:, 0]
    stop_T = offsets_T2[:, 1]

    # Byte-level tokenizers report no white space. The offsets of a token of white space
    # alone are empty, and it stands for the character before them.
    is_empty_T = start_T == stop_T
    start_T = np.where(is_empty_T, np.maximum(start_T - 1, 0), start_T)
    stop_T = np.where(is_empty_T, np.maximum(stop_T, 1), stop_T)

    is_own_T = (start_T < wrapped.stop) & (stop_T > wrapped.start) & is_real_T
    is_inside_T = (start_T >= wrapped.start) & (stop_T <= wrapped.stop)
    return is_own_T, is_own_T & is_inside_T


def cut_around_prompt(
    ids: list[int],
    is_own_T: NDArray[np.bool_],
    can_go_T: NDArray[np.bool_],
    max_length: int,
    *,
    at_beginning: bool,
) -> CutText:
    """Keep the whole prompt, and as much of its text as fits beside it.

    Args:
        ids: tokens of the prompt and the text.
        is_own_T: whether a token holds a character of the text.
        can_go_T: whether a token may be cut off.
        max_length: number of tokens that fit.
        at_beginning: whether the text is cut at its beginning, not at its end.
    """
    own_positions = np.flatnonzero(is_own_T)
    free_positions = np.flatnonzero(can_go_T)
    num_own = len(own_positions)
    excess = len(ids) - max_length
    if num_own and own_positions[-1] - own_positions[0] + 1 != num_own:
        raise DataError("the tokens of a text do not stand together in its prompt")

    # Nothing of the text is left where the prompt needs all the room.
    if num_own <= max(excess, 0) or len(free_positions) < excess:
        return CutText(ids[:max_length], 0, 0, truncated=excess > 0)

    start = int(own_positions[0])
    stop = int(own_positions[-1]) + 1
    if excess <= 0:
        return CutText(ids, start, stop, truncated=False)

    cut_positions = free_positions[-excess:]
    if at_beginning:
        cut_positions = free_positions[:excess]
    left_ids = np.delete(np.asarray(ids), cut_positions).tolist()
    return CutText(left_ids, start, stop - excess, truncated=True)
