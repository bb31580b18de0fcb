"""Start the explorer on this machine."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from pathlib import Path

import uvicorn

from dplateau.errors import DataError
from dplateau.explorer.app import EXACT, build
from dplateau.explorer.opened import Opened
from dplateau.explorer.workers import Limits

ADDRESS = "127.0.0.1"


class Explorer:
    """A server on 127.0.0.1, ready to run.

    Parameters
    ----------
    opened : Opened
        What the page shows first.
    port : int
        0 takes any free one.
    limits : Limits
        What one exact question may cost.
    ledger : path, optional
        The ledger of the ledger view, which is only read.

    Attributes
    ----------
    url : str
        The only address that is answered: it holds the random token.
    """

    def __init__(
        self,
        opened: Opened,
        *,
        port: int = 0,
        limits: Limits = EXACT,
        ledger: Path | None = None,
    ) -> None:
        self._socket = _listen(port)
        port = self._socket.getsockname()[1]
        token = secrets.token_urlsafe(24)
        self.url = f"http://{ADDRESS}:{port}/{token}/"
        hosts = (f"{ADDRESS}:{port}", f"localhost:{port}")
        self._server = uvicorn.Server(
            uvicorn.Config(
                build(opened, token=token, hosts=hosts, exact=limits, ledger=ledger),
                lifespan="on",
                log_level="error",
                access_log=False,  # addresses hold the token
                server_header=False,
                timeout_graceful_shutdown=1,
                limit_concurrency=64,
                h11_max_incomplete_event_size=65_536,
                ws="none",
            )
        )

    def run(self, *, browser: bool = False) -> None:
        """Serve until `stop` or Ctrl-C."""
        if browser:
            webbrowser.open(self.url)  # the socket listens already: the page waits for the server
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True


def _listen(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((ADDRESS, port))
    except (OSError, OverflowError) as trouble:
        found.close()
        raise DataError(
            f"port {port} of {ADDRESS} cannot be used: {trouble}. Choose another --port, or leave "
            "it out."
        ) from None
    found.listen(64)
    return found
