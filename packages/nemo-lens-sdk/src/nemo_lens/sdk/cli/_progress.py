"""How far a command is, on standard error: one line rewritten on a terminal."""

from __future__ import annotations

import sys
import time

from nemo_lens.sdk.cli._terminal import Terminal

_BAR_COLUMNS = 24
# How often the line is written, at most.
_EVERY_S = 0.1


class ProgressLine:
    """The line. Use it as a context manager: it is gone at the end.

    Args:
        command: the command's name, which begins the line.
        quiet: whether nothing is shown.
    """

    def __init__(self, command: str, *, quiet: bool = False) -> None:
        self._prefix = f"nemo-lens {command}: "
        self._terminal = Terminal(sys.stderr)
        self._quiet = quiet
        self.is_live = self._terminal.is_tty and not quiet
        self._shown_at = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Show ``text`` in place of what was there; nothing where there is no terminal."""
        if self.is_live:
            width = (self._terminal.width or 80) - 1  # a full line would wrap
            sys.stderr.write(f"\r\x1b[K{self._terminal.fit(self._prefix + text, width)}")
            sys.stderr.flush()
            self._shown_at = time.monotonic()

    def say(self, text: str) -> None:
        """Show ``text`` in place of what was there; where there is no terminal, as a line that stays."""
        self.show(text)
        if not self.is_live and not self._quiet:
            self._terminal.line(self._prefix + text)

    def bar(self, what: str, done: int, total: int) -> None:
        """Show a bar, at most ten times a second.

        Args:
            what: what is being done.
            done: how much of it is.
            total: how much there is in all, 0 for unknown.
        """
        if not self.is_live or time.monotonic() - self._shown_at < _EVERY_S:
            return
        share = min(done / total, 1.0) if total > 0 else 0.0
        filled = round(share * _BAR_COLUMNS)
        bar = "#" * filled + "." * (_BAR_COLUMNS - filled)
        self.show(f"{what} [{bar}] {share:4.0%}" if total > 0 else what)

    def clear(self) -> None:
        """Take the line away, so that other text can be written."""
        if self.is_live and self._shown_at:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
