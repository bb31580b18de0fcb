"""What is printed: words from outside cannot move the cursor, change colours or pose as ours."""

from __future__ import annotations

import sys
from typing import TextIO


def clean(text: str) -> str:
    """Text with everything that is no letter, mark or plain space written as an escape.

    Examples
    --------
    >>> print(clean("ok\\x1b[2K\\u202e name"))
    ok\\x1b[2K\\u202e name
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def say(text: str, file: TextIO | None = None) -> None:
    """Print lines of text, cleaned; what the terminal's encoding lacks is escaped too."""
    stream = sys.stdout if file is None else file
    lines = "\n".join(clean(line) for line in text.split("\n"))
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(lines.encode(encoding, "backslashreplace").decode(encoding), file=stream)
