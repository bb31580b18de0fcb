"""A headless Chromium, spoken to over a pipe in its own protocol: enough to look at a page."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page in one headless Chromium; a context manager that ends the process it started."""

    def __enter__(self) -> Browser:
        to_read, self._send = os.pipe()
        self._receive, to_write = os.pipe()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # Chromium reads commands from descriptor 3 and answers on descriptor 4.
        script = 'exec "$0" "$@" 3<&%d 4>&%d' % (to_read, to_write)  # noqa: UP031
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, PROGRAM, *flags, f"--user-data-dir={self._profile.name}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest, self._number, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._send)
        os.close(self._receive)
        self._profile.cleanup()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._receive, 1 << 16)
            if not more:
                raise RuntimeError("Chromium closed the pipe")
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and wait for its answer; what happens meanwhile goes to `events`."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._send, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def show(self, url: str, width: int, *, dark: bool = False) -> None:
        """Load the page in a window of that width, and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def complaints(self) -> list[str]:
        """Console messages, uncaught errors and log entries since the page was shown."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.events if e["method"] in kinds]

    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["text"])
        return found["result"].get("value")

    def screenshot(self, path: Path) -> Path:
        """The whole page as a PNG file."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(data["data"]))
        return path
