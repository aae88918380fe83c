"""Puts a prompt, or the markup of a chat template, around a text.

The result tells which characters are the text's own, because only these may be cut off.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.config import TEXT_PLACEHOLDER
from gaam_cache.encoders._forward import error_summary
from gaam_cache.encoders._located import library_errors_as
from gaam_cache.store.files import digest_of

PROBE_TEXT = "gaamtextgaam"
"""A text to be written by a chat template, which shows the markup around it."""
CHAT_DATE = "26 Jul 2024"
"""The date that every chat template writes as today's, as Llama's own templates do."""


class WrappedText(NamedTuple):
    """A text inside its prompt; ``content[start:stop]`` is the text itself."""

    content: str  # the prompt with the text in it
    start: int
    stop: int


def wrap_in_prompt(prompt: str, row: str) -> WrappedText:
    """Put a text into the place that a prompt leaves for it.

    Args:
        prompt: the prompt with exactly one ``{text}``.
        row: the text.
    """
    before, after = prompt.split(TEXT_PLACEHOLDER)
    start = len(before)
    return WrappedText(f"{before}{row}{after}", start, start + len(row))


class ChatTemplate:
    """A tokenizer's chat template, which formats a text as a chat of one user message.

    The text is rendered without the opening of the model's turn. What the template
    writes before and behind the text, the prompt included, is called markup; it must be
    the same for every text.
    """

    def __init__(self, tokenizer: Any, folder: Path, prompt: str) -> None:
        """Read the template of a tokenizer, and find out which markup it writes.

        Args:
            tokenizer: the tokenizer, as transformers loads it.
            folder: the folder of its files, for error messages.
            prompt: the message of the user, with ``{text}`` in the place of a text.
        """
        self._tokenizer = tokenizer
        self._folder = folder
        self._prompt = prompt
        self._template = self._read_template()
        self.before, self.after = self._find_markup()

    def identity(self) -> dict[str, str]:
        """The template's digest and its markup, which decide the tokens."""
        template = digest_of(self._template.encode())
        return {"template": template, "markup": self._show_markup()}

    def wrap(self, row: str) -> WrappedText:
        """Write the markup of the template, and the prompt, around a text.

        A template may strip white space from the ends of a text. A text that it changes
        in another way is refused, and so is a text of which nothing is left.

        Raises:
            DataError: the template changes the text, or writes other markup around it.
        """
        content = self._render(self._prompt.replace(TEXT_PLACEHOLDER, row))
        start = len(self.before)
        stop = len(content) - len(self.after)

        # ``start < stop``: where nothing is left of a text, the markup before it and
        # the markup behind it may share characters
        has_markup = content.startswith(self.before) and content.endswith(self.after)
        is_same_text = start < stop and content[start:stop].strip() == row.strip()
        if not has_markup or not is_same_text:
            raise DataError(
                "the chat template changes a text, or writes other markup around it",
                expected=self._show_markup(),
                found=content,
            )
        return WrappedText(content, start, stop)

    def _read_template(self) -> str:
        """The source of the template; refuse a tokenizer without one."""
        try:
            template: str = self._tokenizer.get_chat_template()
        except ValueError as error:
            raise ConfigError(
                "the tokenizer of this encoder has no chat template",
                expected="a tokenizer with one, as models of dialogues have",
                found=error_summary(error),
                where=str(self._folder),
                hint="leave --chat-template out, or write the markup into --prompt",
            ) from error
        return template

    def _find_markup(self) -> tuple[str, str]:
        """Find the markup before a text, and the markup behind it.

        The template writes a text that occurs in no markup, and what is around it is
        the markup. The prompt belongs to the markup too.
        """
        rendered = self._render(self._prompt.replace(TEXT_PLACEHOLDER, PROBE_TEXT))
        parts = rendered.split(PROBE_TEXT)
        if len(parts) != 2:
            raise ConfigError(
                "the chat template does not write a message of a user exactly once",
                found=f"{len(parts) - 1} times",
                where=str(self._folder),
                hint="write the markup into --prompt, without --chat-template",
            )
        before, after = parts
        return before, after

    def _show_markup(self) -> str:
        """The markup, with ``{text}`` in the place of the text."""
        return f"{self.before}{TEXT_PLACEHOLDER}{self.after}"

    def _render(self, message: str) -> str:
        """Let the template write a dialogue of one message, by the user.

        A template that writes today's date writes a fixed date instead: otherwise the
        states would change every day. Templates get the date in two ways: they call
        ``strftime_now``, or read the variable ``date_string``.
        """
        template = self._template
        if "strftime_now" in template:
            # A macro of the same name takes the place of the function.
            macro = "{%- macro strftime_now(form) -%}" + CHAT_DATE + "{%- endmacro -%}"
            # The template may begin with white space, which the end of a macro would
            # swallow; an empty value between the two prevents that.
            empty_value = "{{ '' }}"
            template = macro + empty_value + template
        with library_errors_as(
            "the chat template of the tokenizer cannot be used", self._folder
        ):
            rendered: str = self._tokenizer.apply_chat_template(
                [{"role": "user", "content": message}],
                chat_template=template,
                tokenize=False,
                add_generation_prompt=False,
                date_string=CHAT_DATE,
            )
        return rendered
