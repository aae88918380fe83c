"""A command on a pseudo-terminal, and what its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
HEIGHT = 30  # lines
CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(.)", re.DOTALL)
INTERRUPT = b"\x03"  # what Ctrl-C sends


class Session(NamedTuple):
    """What a command left on its terminal."""

    code: int
    output: str
    attributes_changed: bool
    """Whether it left the terminal in another mode."""


def run_on_terminal(
    arguments: Sequence[object], width: int, *, interrupt_after: str = ""
) -> Session:
    """Run gaam on a terminal of this width.

    Args:
        arguments: of gaam.
        width: of the terminal, in characters.
        interrupt_after: press Ctrl-C when the output matches this pattern.
    """
    child, terminal = pty.fork()
    if not child:
        os.environ |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(ROOT / "cli.py"), *map(str, arguments)]
        os.execv(sys.executable, command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", HEIGHT, width, 0, 0))
    attributes = termios.tcgetattr(terminal)
    output = b""
    is_interrupted = not interrupt_after
    changed = False
    while True:
        select.select([terminal], [], [])
        try:
            part = os.read(terminal, 65536)
        except OSError:
            # Linux ends the stream so, when the command has ended
            break
        if not part:
            break
        output += part
        changed = termios.tcgetattr(terminal) != attributes
        if not is_interrupted and re.search(interrupt_after.encode(), output):
            os.write(terminal, INTERRUPT)
            is_interrupted = True
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return Session(os.waitstatus_to_exitcode(status), output.decode(), changed)


class Screen:
    """The lines that a terminal shows after some output."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lines: list[list[str]] = [[]]
        self._line = 0
        self._column = 0
        self.cursor_is_visible = True

    def write(self, output: str) -> None:
        """Obey the control sequences of the output, and put its characters."""
        for argument, command, character in CONTROL.findall(output):
            if command:
                self._obey(argument, command)
            elif character == "\n":
                self._line += 1
            elif character == "\r":
                self._column = 0
            else:
                self._put(character)

    def _obey(self, argument: str, command: str) -> None:
        if command == "A":
            self._line -= int(argument or 1)
            assert self._line >= 0
        elif command == "K":
            assert argument == "2"
            self._own_line().clear()
        elif argument == "?25":
            self.cursor_is_visible = command == "h"
        else:
            assert command == "m", f"the screen does not know {argument}{command}"

    def _put(self, character: str) -> None:
        if self._column == self._width:
            self._line += 1
            self._column = 0
        line = self._own_line()
        line += [" "] * (self._column + 1 - len(line))
        line[self._column] = character
        self._column += 1

    def _own_line(self) -> list[str]:
        while len(self._lines) <= self._line:
            self._lines.append([])
        return self._lines[self._line]

    @property
    def lines(self) -> list[str]:
        """The lines with text, without spaces at their ends."""
        texts = ["".join(line).rstrip() for line in self._lines]
        return [text for text in texts if text]


def screens(output: str, width: int) -> list[list[str]]:
    """The lines on the screen before each time that lines are cleared, and at the end."""
    screen = Screen(width)
    shown = []
    for part in re.split(r"(?=\r\x1b\[2K)", output):
        screen.write(part)
        shown.append(screen.lines)
    return shown
