"""Text encoders of the transformers library, BERT-like and Llama-like; and texts as token ids.

B batch, T tokens.
"""

from __future__ import annotations

import heapq
import inspect
import json
import re
import warnings
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import nn

from gaam_cache.common.devices import memory_left
from gaam_cache.common.errors import (
    ConfigError,
    DataError,
    GaamError,
    GaamWarning,
    ShortOfMemoryError,
)
from gaam_cache.common.messages import visible
from gaam_cache.config import DEFAULT_ENCODER, PLACE, ExtractConfig, budget_of
from gaam_cache.encoders._fixed_rows import SHORT_TEXTS, TEXTS, texts_around_the_cut
from gaam_cache.encoders._forward import Batch, Forward, Span, Unusable, said
from gaam_cache.encoders._gguf import alone
from gaam_cache.encoders._located import Located, foreign
from gaam_cache.encoders._model import ModelEncoder
from gaam_cache.encoders._notices import as_sentences
from gaam_cache.encoders._probe import Items
from gaam_cache.encoders._room import SURE, longest_fitting
from gaam_cache.encoders._weights import encoder_part, skeleton
from gaam_cache.encoders.base import Inputs
from gaam_cache.store.files import digest_of, hash_parts, short_digest

CAUSAL_SHIFT = 1e-6
"""Largest relative effect of a later token that counts as none: a causal model that is taken for
another loses some speed, the other mistake would cost the states their truth."""
SHORT_LENGTHS = (
    1,
    2,
    3,
    5,
    8,
    12,
    17,
    23,
    31,
    47,
    64,
)  # of texts that are tried together
TWO_UP_TO = 3  # tokens of the texts of which two of each length are tried
LOOKED_AT, MOST_CHARACTERS = 64, 8
"""Of a data set so many texts with most characters are tokenised to find the longest; one that has
so many characters for every token of the maximum is taken to be as long as that."""
LONG_TEXTS = 4
"""Lengths just beyond a window or switch of the configuration that are tried, at most."""
WINDOW = re.compile(
    r"window|block|chunk|original_max|local|stride|conv.*kernel|max_distance|buckets"
)
"""Settings of a configuration that may name a length at which a model begins to act otherwise."""

VOCABULARY_SAMPLE = 64
"""Tokens of a vocabulary, about, of which texts are made that the tokenizer is known by."""
DIRECTIONS: dict[str, dict[bool, bool]] = {
    "is_causal": {True: True, False: False},
    "use_bidirectional_attention": {True: False},
    "bidirectional": {True: False},
    "is_decoder": {True: True},
}
"""Settings that say, by their value, whether attention is causal. A value that is missing here is a
default, which is written into files of models that it means nothing to."""

SETTINGS = "tokenizer_config.json"
"""The file that some tokenizers count among those of their vocabulary."""
MEDIA = {"pixel_values", "input_features", "input_values"}
"""Arguments of models that read pictures or sounds."""
TWICE = 8
"""Texts of a shard that are tokenised twice: what is drawn at random is no state of a text."""
DEFAULT_MAX_LENGTH = 512
LONGEST_PATH = 200  # characters of a setting of a tokenizer that may name a file
FEWEST_KNOWN = 0.9
"""Of the tokens that a model has embeddings for those that its tokenizer makes: of models that fill
up their vocabularies to a round number it is 0.98 and more."""
SPELLED_SPACE = " \n\t\r\u2581\u0120\u010a\u0109\u010d"
"""White space, and what stands for it in names of tokens (SentencePiece, byte-level BPE)."""
EDGE = 6  # tokens at the start and end of a text in which a special one may stand twice
SHOWN_START, SHOWN_END = (
    48,
    16,
)  # characters of the tokens of a text that people are shown
RARE_LETTERS = (
    "\ua66e",
    "\ua387",
    "\U00013000",
)  # Cyrillic of one psalter, Yi, hieroglyphs
PROBE_TEXT = "gaamtextgaam"  # stands for a text where a chat template is looked at
CHAT_DATE = "26 Jul 2024"
"""What a chat template writes as today's date, on every day: that of Llama's own templates."""


class TextEncoder(ModelEncoder):
    """Token ids in, pooled states of every layer out; of an encoder-decoder model its encoder's.

    Causal models run with right padding, no attention mask and no key-value cache: a real token
    never sees the padding behind it, and the kernel for plain causal attention stays available.
    Others get a mask, in batches that have padding. Where that is not enough, ``batching`` says
    which texts may share a batch.
    """

    given: ClassVar[frozenset[str]] = frozenset({"input_ids"})
    reads: ClassVar[str] = "a text encoder and tokenizer"
    states_of: ClassVar[str] = "token"
    _tokens: _Tokens
    _forward: _TextForward
    _fitting = SURE
    """Tokens of a text for which there is enough memory, as far as is known."""

    def _read(self) -> int:
        tokenizer, folder = _read_tokenizer(self._located, self._model_config)
        self._tokens = _Tokens(tokenizer, self._model_config, folder, self._config)
        return self._tokens.max_length

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "special_tokens": self._tokens.chat is None,
            "tokens": self._token_digests(),
        }
        if self._tokens.chat is not None:
            settings["chat_template"] = self._tokens.chat.identity()
        if self._tokens.prompt is not None:
            settings["prompt"] = self._tokens.prompt
        if self._config.pool_over != "all":
            settings["pool_over"] = self._config.pool_over
        return settings

    def _token_digests(self) -> dict[str, str]:
        """For every kind of fixed texts a digest of what the tokenizer makes of them.

        Files do not say it: versions of the libraries read the same files otherwise.
        """
        texts_by_kind = {
            **TEXTS,
            "vocabulary": self._tokens.texts_of_vocabulary(),
            "cut": texts_around_the_cut(self.max_length),
        }
        return {
            kind: short_digest(hash_parts(map(self._token_bytes, texts)))
            for kind, texts in texts_by_kind.items()
        }

    def _token_bytes(self, text: str) -> bytes:
        """The token ids of a text, which of them are pooled, and whether it was cut."""
        try:
            inputs = self._tokens.prepare([text])
        except GaamError:
            return b"refused"
        item = inputs.items[0]
        parts = item if isinstance(item, _Spanned) else (item,)
        numbers = [np.asarray(part).ravel().tolist() for part in parts]
        return json.dumps([numbers, bool(inputs.truncated[0])]).encode()

    def reference_rows(self) -> Sequence[str]:
        """Two short texts."""
        return SHORT_TEXTS

    @property
    def causal_setting(self) -> tuple[str, bool] | None:  # type: ignore[override]
        """What the configuration's own file says of the direction of attention."""
        settings = [self._model_config, self._model_config.get_text_config()]
        for name, says_causal in DIRECTIONS.items():
            for config in settings:
                value = vars(config).get(name)
                if isinstance(value, bool) and value in says_causal:
                    return f"{name} = {str(value).lower()}", says_causal[value]
        return None

    def _more_files(self) -> set[str]:
        return self._tokens.files()

    def notices(self) -> list[str]:
        """And what sentence-transformers would do besides, where the encoder's folder says so.

        Of the default encoder, which nobody chose, the guide says it.
        """
        more = None
        if not self._located.is_gguf and self.name != DEFAULT_ENCODER:
            more = as_sentences(
                self._located.tokenizer_folder,
                max_length=self.max_length,
                pool=self._config.pool,
                prompt=self._tokens.prompt,
            )
        return [*super().notices(), *([more] if more else [])]

    def _part_of(self, model: Any) -> Any:
        """What reads the texts: of a model of pictures or sounds and texts, its tower of texts."""
        if not hasattr(model, "get_text_features"):
            return encoder_part(model)
        return text_tower(model)

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Token ids of every text, cut at the maximum length; raises as ``_Tokens.prepare``."""
        return self._tokens.prepare(rows)

    def describe_row(self, inputs: Inputs, row: int) -> str:
        """The first and last tokens of a text, special ones included, and how many there are."""
        item = inputs.items[row]
        ids = item.ids if isinstance(item, _Spanned) else item
        return f"{self._tokens.shown(ids)}  ({len(ids):,} tokens)"

    def _forward_of(self, part: Any, model: Any) -> _TextForward:
        forward = _TextForward(part, device=self.device, pooling=self._config.pool)
        size = getattr(self._model_config.get_text_config(), "vocab_size", None)
        for one in (model, part):
            with suppress(NotImplementedError, AttributeError):
                if isinstance(found := one.get_input_embeddings(), nn.Embedding):
                    size = found.num_embeddings
        forward.vocabulary = size
        self._tokens.check_vocabulary(size)
        forward.pad_id = next(iter(self._tokens.pad_ids(size)), 0)
        if "token_type_ids" in forward.takes and self._tokens.have_types():
            raise Unusable(
                "its tokenizer gives tokens types other than 0 (token_type_ids)"
            )
        return forward

    def longest_of(self, rows: Iterable[str]) -> int:
        """Tokens of the longest of the texts that have most characters."""
        longest = heapq.nlargest(LOOKED_AT, rows, key=len)
        if longest and len(longest[0]) < MOST_CHARACTERS * self.max_length:
            with suppress(GaamError):  # who encodes the text says where it stands
                return int(np.max(self.prepare(longest).lengths))
        return self.max_length

    def _reach_of(self, longest: int) -> int:
        """Such lengths are few, so that what was measured for other rows can be used again."""
        if longest > SURE:  # there may be no memory for a longer row
            return longest
        step = SHORT_LENGTHS[-1]
        while step < longest:
            step += (
                step // 2 if step.bit_count() == 1 else step // 3
            )  # 64, 96, 128, 192, 256, ...
        return min(step, self.max_length)

    def _shared(self, reach: int) -> int | None:
        most = max(
            budget_of(self._config.batch_tokens, self.device.type), SHORT_LENGTHS[-1]
        )
        return most if most < reach else None

    def _candidates(self, part: Any, reach: int) -> tuple[Sequence[Items], int]:
        """Texts with the model's marks in them; and texts without, if a mark asks for a picture."""
        size, tokenizer = self._forward.vocabulary, self._tokens.tokenizer
        shortest = max(1, tokenizer.num_special_tokens_to_add())
        lengths = probe_lengths(self._model_config.to_dict(), shortest, reach)
        avoid = tokenizer.all_special_ids
        marked = [self._tokens.marks(part, size), []]
        return [
            probe_texts(lengths, size, avoid, marks) for marks in marked
        ], SHORT_LENGTHS[-1]

    def _check_memory(self, longest: int) -> None:
        if self.device.type != "cpu" or longest <= self._fitting:
            return
        size, avoid = self._forward.vocabulary, self._tokens.tokenizer.all_special_ids

        @torch.inference_mode()
        def run(length: int) -> None:
            [text] = probe_texts([length], size, avoid, [])
            self._forward.reference(text)

        fitting = longest_fitting(run, longest, lambda: memory_left(self.device))
        if fitting < longest:
            free = memory_left(self.device) / 1e9
            raise ShortOfMemoryError(
                "the memory is too small for the longest texts",
                expected=f"at most about {fitting:,} tokens a text: {free:,.1f} GB are free",
                found=f"a text of about {longest:,} tokens",
                where=self.name,
                hint=f"--max-length {fitting}, --dtype bfloat16, or another --device",
            )
        self._fitting = longest


def _read_tokenizer(located: Located, model_config: Any) -> tuple[Any, Path]:
    """The tokenizer of an encoder, and the folder of its files; of a GGUF file the file."""
    options = {"local_files_only": True, "trust_remote_code": False}
    read = transformers.AutoTokenizer.from_pretrained
    if located.is_gguf:
        with alone(located.path) as (folder, reading):
            return read(folder, **options | reading), located.path
    folder = located.tokenizer_folder
    if folder != located.path:  # of an adapter: it has no configuration of the model
        options["config"] = model_config
    return read(folder, **options), folder


def text_tower(model: Any) -> Any:
    """Of a model that compares texts with pictures or sounds, the part that reads texts alone.

    It is the outermost part with a configuration of its own that takes token ids and nothing that
    only another tower makes.
    """
    found: dict[int, list[Any]] = {}
    for name, module in model.named_modules():
        takes = inspect.signature(module.forward).parameters
        if (
            hasattr(module, "config")
            and "input_ids" in takes
            and not MEDIA & takes.keys()
        ):
            found.setdefault(name.count("."), []).append(module)
    outermost = found[min(found)] if found else []
    if len(outermost) != 1:
        raise Unusable("it has no part that reads texts alone")
    return outermost[0]


class _TextForward(Forward):
    """Token ids, filled on the right."""

    tries_lengths: ClassVar[bool] = True
    pad_id = 0
    vocabulary: int | None = None  # how many token ids the model has embeddings for

    def batch(self, items: Sequence[Any]) -> Batch:
        """Token ids as (B, T), and their mask."""
        spanned = isinstance(items[0], _Spanned)
        texts = [one.ids for one in items] if spanned else items
        length_N = np.fromiter(map(len, texts), np.int64, len(texts))
        longest = int(length_N.max())
        real_BT = np.arange(longest) < length_N[:, None]
        ids_BT = np.full(real_BT.shape, self.pad_id, np.int64)
        ids_BT[real_BT] = np.concatenate(texts)
        if (
            self.vocabulary is not None
            and (largest := int(ids_BT.max())) >= self.vocabulary
        ):
            has = f"the model has embeddings for {self.vocabulary}"
            raise Unusable(f"the tokenizer makes the token {largest}, {has}")
        span = None
        if spanned:
            start_B, stop_B = np.array(
                [(one.start, one.stop) for one in items], np.int64
            ).T
            count_B = stop_B - start_B
            width = max(1, int(count_B.max()))
            span = Span(self.to_device(start_B.copy()), self.to_device(count_B), width)
        length_B = self.to_device(length_N)
        position_T = torch.arange(longest, device=self.device)
        return Batch(
            inputs={"input_ids": self.to_device(ids_BT)},
            length_B=length_B,
            mask=(position_T < length_B[:, None]).long(),
            padded=int(length_N.min()) < longest,
            positions=longest,
            span=span,
        )

    def is_causal(self, items: Sequence[Any]) -> bool | None:
        """Whether another last token shifts no state before it: not at all, where it is causal."""
        for ids in (items[len(items) // 2], items[-1]):
            if len(ids) < 2:
                return None
            other = next((i for text in items for i in text if i != ids[-1]), ids[-1])
            runs = []
            for tokens in (ids, [*ids[:-1], other]):
                try:
                    batch = self.batch([np.array(tokens)])._replace(mask=None)
                    _, layers = self.hidden_states(batch)
                except Unusable:
                    return False
                runs.append(layers[-1][:, :-1].float())
            if not bool((runs[0] - runs[1]).norm() <= CAUSAL_SHIFT * runs[0].norm()):
                return False
        return True


def probe_lengths(settings: dict[str, Any], shortest: int, longest: int) -> list[int]:
    """Lengths of the texts that are tried, in order: short ones, beyond windows, the longest.

    And one that is no multiple of a block, where the longest is: BigBird fills up others.
    """
    windows = set(_windows(settings))
    beyond = sorted({w + 1 for w in windows if SHORT_LENGTHS[-1] <= w < longest})
    blocks = any(w > 1 and longest % w == 0 for w in windows)
    chosen = {shortest, *SHORT_LENGTHS, *beyond[:LONG_TEXTS], longest - blocks, longest}
    return sorted(n for n in chosen if min(shortest, longest) <= n <= longest)


def _windows(settings: Any, name: str = "") -> Iterator[int]:
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _windows(value, f"{name}.{key}")
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from _windows(value, name)
    elif type(settings) is int and WINDOW.search(name):
        yield settings


def probe_texts(
    lengths: list[int],
    vocabulary: int | None,
    avoid: Sequence[int],
    marks: Sequence[int],
) -> list[list[int]]:
    """Token ids of texts that begin alike for nobody, from the shortest to the longest.

    There are two of each of the shortest lengths. Every other text has the marks in it, spread from
    its first to its last token.
    """
    size = vocabulary or 256
    # from the middle: ids that mean something and are not declared lie at the ends
    free = [i for i in range(size // 4, size - size // 4) if i not in set(avoid)] or [0]
    rng = np.random.default_rng(0)
    texts: list[list[int]] = []
    for length in lengths:
        for _ in range(2 if length <= TWO_UP_TO else 1):
            ids = [free[i] for i in rng.integers(len(free), size=length)]
            marked = len(texts) % 2 and length <= SHORT_LENGTHS[-1]
            for i, mark in enumerate(marks if marked else ()):
                ids[i * (length - 1) // max(1, len(marks) - 1)] = mark
            texts.append(ids)
    return texts


class _Spanned(NamedTuple):
    """A text of which a part is pooled: from ``start`` to ``stop``."""

    ids: NDArray[np.int64]
    start: int
    stop: int


class _Cut(NamedTuple):
    """Tokens of a text and its prompt that an encoder takes."""

    ids: list[int]
    start: int  # of the text's own tokens among them
    stop: int  # equal where none is left
    truncated: bool


class _Chat:
    """The chat template of a tokenizer, and what it makes of a text as the only message of a user.

    The model's turn is not begun. What stands before and behind a text must be the same for all.
    """

    def __init__(self, tokenizer: Any, folder: Path, prompt: str) -> None:
        self._tokenizer, self._folder, self._prompt = tokenizer, folder, prompt
        try:
            self._template = tokenizer.get_chat_template()
        except ValueError as error:
            raise ConfigError(
                "the tokenizer of this encoder has no chat template",
                expected="a tokenizer with one, as models that were trained on dialogues have",
                found=said(error),
                where=str(folder),
                hint="leave --chat-template out, or write the markup into --prompt",
            ) from error
        parts = self._rendered(prompt.replace(PLACE, PROBE_TEXT)).split(PROBE_TEXT)
        if len(parts) != 2:
            raise ConfigError(
                "the chat template does not write a message of a user exactly once",
                found=f"{len(parts) - 1} times",
                where=str(folder),
                hint="write the markup into --prompt, without --chat-template",
            )
        self.before, self.after = parts

    def identity(self) -> dict[str, str]:
        """What decides the tokens: the template, and what it writes around a text."""
        template = digest_of(self._template.encode())
        return {"template": template, "markup": f"{self.before}{PLACE}{self.after}"}

    def wrapped(self, row: str) -> tuple[str, int, int]:
        """A text in its markup, and where it begins and ends there.

        A template may leave out white space at the ends of a text, and nothing else.
        """
        whole = self._rendered(self._prompt.replace(PLACE, row))
        start, stop = len(self.before), len(whole) - len(self.after)
        around = whole.startswith(self.before) and whole.endswith(self.after)
        if not around or start >= stop or whole[start:stop].strip() != row.strip():
            raise DataError(
                "the chat template changes a text, or writes other markup around it",
                expected=f"{self.before}{PLACE}{self.after}",
                found=whole,
            )
        return whole, start, stop

    def _rendered(self, content: str) -> str:
        template = self._template
        if "strftime_now" in template:
            # the empty value keeps white space that the template begins with
            macro = f"{{%- macro strftime_now(form) -%}}{CHAT_DATE}{{%- endmacro -%}}{{{{ '' }}}}"
            template = macro + template
        with foreign("the chat template of the tokenizer cannot be used", self._folder):
            text: str = self._tokenizer.apply_chat_template(
                [{"role": "user", "content": content}],
                chat_template=template,
                tokenize=False,
                add_generation_prompt=False,
                date_string=CHAT_DATE,
            )
        return text


class _Tokens:
    """The tokenizer of an encoder, the length at which it cuts, and the prompt around every text.

    Where there is a prompt or a chat template, or the text's own tokens alone are pooled, every
    text is read whole and cut afterwards: the text is, and not the prompt or the markup.
    """

    def __init__(
        self, tokenizer: Any, model_config: Any, folder: Path, config: ExtractConfig
    ) -> None:
        self.tokenizer, self._folder = tokenizer, folder
        self._model_config, self._text_config = (
            model_config,
            model_config.get_text_config(),
        )
        names = sorted(set(tokenizer.vocab_files_names.values()) - {SETTINGS})
        own = self.files() - {SETTINGS}
        whole = folder.is_file()  # a GGUF file has its tokenizer in it
        if names and not whole and not any((folder / name).is_file() for name in own):
            hint = "save it there: AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
            expected = f"one of: {', '.join(names)}"
            raise ConfigError(
                f"'{folder}' holds no tokenizer", expected=expected, hint=hint
            )
        self.max_length = self._longest(config.max_length)
        self._spaces: dict[int, bool] = {}  # token -> whether it is white space alone
        self.prompt = None if config.prompt == PLACE else config.prompt
        """The text around every text, ``{text}`` in the place of that; None where there is none."""
        self.chat: _Chat | None = None
        """What writes the markup of a dialogue around every text, where that is asked for."""
        if config.chat_template:
            self.chat = _Chat(tokenizer, folder, self.prompt or PLACE)
        self._over_text = config.pool_over == "text"
        self._whole = (
            self.prompt is not None or self.chat is not None or self._over_text
        )
        if self._whole and not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                "the tokenizer does not say where in a text its tokens stand",
                expected="a tokenizer with a tokenizer.json, which --prompt, --chat-template and "
                "pool-over need",
                found=type(tokenizer).__name__,
            )
        if self.chat is not None:
            markup = len(self._ids([self.chat.before + self.chat.after])[0])
            if markup >= self.max_length:
                raise ConfigError(
                    "the markup of the chat template leaves no room for the text",
                    expected=f"--max-length of at least {markup + 1} tokens",
                    found=str(self.max_length),
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
        limits = [
            n
            for n in (self.tokenizer.model_max_length, positions)
            if n and 0 < n < 10**9
        ]
        pad = getattr(self._text_config, "pad_token_id", None) or 0
        if (
            limits
            and positions
            and min([asked or DEFAULT_MAX_LENGTH, *limits]) >= positions - pad
        ):
            # whether it counts from behind padding on, as RoBERTa, only its own structure tells
            limits += [
                module.num_embeddings - module.padding_idx - 1
                for name, module in encoder_part(
                    skeleton(self._model_config)
                ).named_modules()
                if type(module) is nn.Embedding
                and module.padding_idx is not None
                and "position" in name.lower()
                and "type" not in name.lower()
            ]
        limit = int(min(limits, default=asked or DEFAULT_MAX_LENGTH))
        if asked is not None and asked > limit:
            message = "--max-length is more than the encoder can take"
            raise ConfigError(
                message, expected=f"at most {limit} tokens", found=str(asked)
            )
        return asked or min(DEFAULT_MAX_LENGTH, limit)

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Token ids of every text, special tokens included; none where nothing of it is left."""
        cut = self._cut_in_prompt if self._whole else self._cut
        cuts = cut(rows)
        if cuts[:TWICE] != cut(rows[:TWICE]):
            hint = (
                "copy the encoder and turn that off in the copy (of BPE: dropout null)"
            )
            raise ConfigError("the tokenizer draws tokens at random", hint=hint)
        flat = array(
            "q"
        )  # refuses None and fractions, as NumPy does not, and is twice as fast
        with foreign("the tokenizer cannot read a text", self._folder):
            for one in cuts:
                flat.fromlist(one.ids)
        length_N = np.fromiter((len(one.ids) for one in cuts), np.int64, len(cuts))
        texts: list[Any] = np.split(np.array(flat, np.int64), np.cumsum(length_N)[:-1])
        if self._over_text:
            texts = [
                _Spanned(ids, c.start, c.stop)
                for ids, c in zip(texts, cuts, strict=True)
            ]
        # without a prompt and pooled over all, an empty text is what its special tokens are
        lost = [
            one.start == one.stop and (self._over_text or one.truncated) for one in cuts
        ]
        own_N, unknown_N = self._known(flat, length_N, cuts)
        return Inputs(
            items=texts,
            lengths=np.where(lost, 0, length_N),
            truncated=[one.truncated for one in cuts],
            own=own_N,
            unknown=unknown_N,
            doubled=self._doubled(cuts),
        )

    def _known(
        self, flat: array[int], length_N: NDArray[np.int64], cuts: Sequence[_Cut]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many tokens of every text are its own, (N,), and how many of these are unknown."""
        ids_T, row_T = (
            np.array(flat, np.int64),
            np.repeat(np.arange(len(cuts)), length_N),
        )
        place_T = np.arange(len(ids_T)) - np.repeat(
            np.cumsum(length_N) - length_N, length_N
        )
        ends_N2 = np.array([(one.start, one.stop) for one in cuts], np.int64).reshape(
            -1, 2
        )
        start_N, stop_N = ends_N2.T
        within_T = (start_N[row_T] <= place_T) & (place_T < stop_N[row_T])
        unknown_T = np.isin(ids_T, list(self._unknown)) & within_T
        own_T = ~np.isin(ids_T, list(self._special)) & within_T | unknown_T
        own_N, unknown_N = (
            np.bincount(row_T[of], minlength=len(cuts)) for of in (own_T, unknown_T)
        )
        return own_N, unknown_N

    def _doubled(self, cuts: Sequence[_Cut]) -> dict[str, int]:
        """Special tokens that a text brings beside those that are added -> how many texts do."""
        rows_of: Counter[int] = Counter()
        for one in cuts:
            if self.chat is None:
                edges = (one.ids[:EDGE], one.ids[-EDGE:])
                rows_of.update({token for edge in edges for token in self._twice(edge)})
            else:  # what a template itself writes twice is its own affair
                own = one.ids[one.start : one.stop]
                first = [token for token in own[:EDGE] if not self._is_space(token)]
                last = [token for token in own[-EDGE:] if not self._is_space(token)]
                rows_of.update({*first[:1], *last[-1:]} & self._added)
        return {
            str(self.tokenizer.convert_ids_to_tokens(token)): rows
            for token, rows in rows_of.items()
        }

    def _twice(self, ids: Sequence[int]) -> Iterator[int]:
        """Tokens of those that are added that stand twice with nothing but white space between."""
        before: int | None = None
        for token in ids:
            if token in self._added:
                if token == before:
                    yield token
                before = token
            elif before is not None and not self._is_space(token):
                before = None

    def _is_space(self, token: int) -> bool:
        """Whether a token is white space alone, in letters or as tokenizers spell it."""
        if token not in self._spaces:
            name = str(self.tokenizer.convert_ids_to_tokens(token))
            seen = name.strip(SPELLED_SPACE) and self.tokenizer.decode([token]).strip()
            self._spaces[token] = not seen
        return self._spaces[token]

    def check_vocabulary(self, size: int | None) -> None:
        """Warn where the model has embeddings for many more tokens than the tokenizer makes."""
        tokens = len(self.tokenizer)
        if size is not None and tokens < FEWEST_KNOWN * size:
            warnings.warn(
                f"the tokenizer in '{self._folder}' has {tokens:,} tokens and the model embeddings "
                f"for {size:,}: it may be another model's, and then states mean nothing",
                GaamWarning,
                stacklevel=2,
            )

    @cached_property
    def _special(self) -> set[int]:
        """Tokens that stand for no part of a text."""
        declared = self.tokenizer.added_tokens_decoder
        special = {token for token, about in declared.items() if about.special}
        return {*self.tokenizer.all_special_ids, *special, *self._ids([""])[0]}

    @cached_property
    def _added(self) -> set[int]:
        """Special tokens that are added to every text."""
        markup = "" if self.chat is None else self.chat.before + self.chat.after
        return set(self._ids([markup])[0]) & self._special - self._unknown

    @cached_property
    def _unknown(self) -> set[int]:
        """Tokens that stand for what the tokenizer does not know.

        The one that it declares, and any that it makes of letters of three rare scripts alike.
        """
        ids: set[int] = set()
        with suppress(
            ConfigError
        ):  # one that refuses such letters makes no token of them
            alike = set.intersection(*map(set, self._ids(RARE_LETTERS)))
            ids = {token for token in alike if not self._is_space(token)}
        if self.tokenizer.unk_token_id is not None:
            ids.add(self.tokenizer.unk_token_id)
        return ids - set(self._ids([""])[0])

    def shown(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Tokens on one line, as the tokenizer calls them; of many the first and the last."""
        names = [
            visible(str(name))
            for name in self.tokenizer.convert_ids_to_tokens(list(ids))
        ]
        text = " ".join(names)
        if len(text) <= SHOWN_START + SHOWN_END:
            return text
        start, end = (
            text[:SHOWN_START].rpartition(" ")[0],
            text[-SHOWN_END:].partition(" ")[2],
        )
        return f"{start or text[:SHOWN_START]} ... {end or names[-1][-SHOWN_END:]}"

    def _cut(self, rows: Sequence[str]) -> list[_Cut]:
        cuts = [
            _Cut(list(ids), 0, len(ids), truncated=False)
            for ids in self._ids(rows, truncation=True, max_length=self.max_length)
        ]
        # only a text that fills the maximum can have been cut: ask for its true length
        full = [i for i, one in enumerate(cuts) if len(one.ids) == self.max_length]
        for i, ids in zip(
            full, self._ids([rows[i] for i in full]) if full else (), strict=True
        ):
            cuts[i] = cuts[i]._replace(truncated=len(ids) > self.max_length)
        return cuts

    def _cut_in_prompt(self, rows: Sequence[str]) -> list[_Cut]:
        wrapped = [self._wrapped(row) for row in rows]
        read = self._read(
            [whole for whole, _, _ in wrapped],
            truncation=False,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
        )
        left = getattr(self.tokenizer, "truncation_side", "right") == "left"
        cuts = []
        columns = (
            read[key] for key in ("input_ids", "offset_mapping", "special_tokens_mask")
        )
        for (_, start, stop), ids, offsets, special in zip(
            wrapped, *columns, strict=True
        ):
            own_T = alone_T = ~np.asarray(special, bool)
            if self.prompt is not None or self.chat is not None:
                own_T, alone_T = _whose(offsets, own_T, start, stop)
            cuts.append(_fitting(ids, own_T, alone_T, self.max_length, left=left))
        return cuts

    def _wrapped(self, row: str) -> tuple[str, int, int]:
        """A text with what stands around it, and where it begins and ends there."""
        if self.chat is not None:
            return self.chat.wrapped(row)
        before, after = (self.prompt or PLACE).split(PLACE)
        return f"{before}{row}{after}", len(before), len(before) + len(row)

    def _ids(self, rows: Sequence[str], **options: Any) -> list[list[int]]:
        found: list[list[int]] = self._read(rows, **{"truncation": False} | options)[
            "input_ids"
        ]
        return found

    def _read(self, rows: Sequence[str], **options: Any) -> Any:
        """What the tokenizer makes of texts."""
        with foreign("the tokenizer cannot read a text", self._folder):
            return self.tokenizer(
                list(rows),
                add_special_tokens=self.chat is None,  # else the template writes them
                padding=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
                **options,
            )

    def have_types(self) -> bool:
        """Whether the tokenizer tells tokens of one text apart by a type."""
        for text in ("", "a"):
            with suppress(
                Exception
            ):  # it may have no token for this; rows are for prepare to try
                encoded = self.tokenizer(
                    [text], return_token_type_ids=True, verbose=False
                )
                if any(map(any, encoded.get("token_type_ids") or [])):
                    return True
        return False

    def files(self) -> set[str]:
        """Names of the files that the tokenizer reads, as far as they lie in its folder.

        They are arguments that transformers lists by name; what else a tokenizer was made with are
        values, such as a chat template.
        """
        arguments = self.tokenizer.vocab_files_names
        given = [self.tokenizer.init_kwargs.get(argument) for argument in arguments]
        paths = [Path(value) for value in given if isinstance(value, str)]
        for path in paths:
            # transformers before 5.2 opens what tokenizer_config.json names anywhere on this disk
            if path.is_file() and path.parent.resolve() != self._folder.resolve():
                raise ConfigError(
                    "the tokenizer reads a file outside of the encoder's folder",
                    expected=f"a file in '{self._folder}'",
                    found=str(path),
                    where=str(self._folder / "tokenizer_config.json"),
                )
        return {*arguments.values(), *(path.name for path in paths)}

    def texts_of_vocabulary(self) -> list[str]:
        """Tokens of its own, evenly spread over the vocabulary, as texts of several cases.

        Of fixed texts a small vocabulary may know no word.
        """
        token_by_id = {
            number: token for token, number in self.tokenizer.get_vocab().items()
        }
        ids = sorted(token_by_id)
        step = max(1, len(ids) // VOCABULARY_SAMPLE)
        words = " ".join(token_by_id[number] for number in ids[::step])
        return [words, words.lower(), words.upper(), words.title()]

    def pad_ids(self, size: int | None) -> list[int]:
        """Tokens that fill batches, for the tokenizer or for the model."""
        named = [
            getattr(self._text_config, name, None)
            for name in ("pad_token_id", "pad_index")
        ]
        given = (self.tokenizer.pad_token_id, *named)
        return [i for i in given if type(i) is int and 0 <= i < (size or i + 1)]

    def marks(self, model: Any, size: int | None) -> list[int]:
        """Tokens of no word that a text may hold all the same."""
        around = self._ids([""])[0]
        tables = (
            module for module in model.modules() if isinstance(module, nn.Embedding)
        )
        zero = (t.padding_idx for t in tables if t.num_embeddings == size)
        found = [*around[:1], *self.pad_ids(size), *zero, *around[1:]]
        return list(
            dict.fromkeys(i for i in found if i is not None and i < (size or i + 1))
        )


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
) -> _Cut:
    """The whole prompt, and of the text what fits beside it; ``left``: cut at its beginning."""
    own, places = np.flatnonzero(own_T), np.flatnonzero(alone_T)
    over = len(ids) - longest
    if len(own) and own[-1] - own[0] + 1 != len(own):
        raise DataError("the tokens of a text do not stand together in its prompt")
    if len(own) <= max(over, 0) or len(places) < over:  # nothing is left of it
        return _Cut(ids[:longest], 0, 0, truncated=over > 0)
    start, stop = int(own[0]), int(own[-1]) + 1
    if over <= 0:
        return _Cut(ids, start, stop, truncated=False)
    gone = places[:over] if left else places[-over:]
    return _Cut(
        np.delete(np.asarray(ids), gone).tolist(), start, stop - over, truncated=True
    )
