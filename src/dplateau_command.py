"""The first lines of the command ``dplateau``: Ctrl-C has one answer, from its first moment on.

A module of its own beside the package, because loading that takes a second in which Ctrl-C would
show a traceback. Nothing has been opened or written then, so the process may end at once.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130
SAID = "dplateau: interrupted. Nothing was released or written."


def _leave(signum: int, frame: FrameType | None) -> None:
    os.write(2, f"{SAID}\n".encode())
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line."""
    from dplateau.cli import main as command_line

    command_line()


signal.signal(signal.SIGINT, _leave)

if __name__ == "__main__":
    main()
