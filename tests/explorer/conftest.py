"""A running explorer, and a browser to look at it with."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the explorer's extra is not installed")
pytest.importorskip("uvicorn", reason="the explorer's extra is not installed")

from dplateau.explorer.opened import Opened
from dplateau.explorer.server import Explorer
from dplateau.explorer.workers import Limits
from dplateau.report.comparison import example_settings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def _serving(opened: Opened, **options: Any) -> Iterator[Explorer]:
    explorer = Explorer(opened, **options)
    thread = threading.Thread(target=explorer.run, daemon=True)
    thread.start()
    for _ in range(300):
        try:
            httpx.get(explorer.url, timeout=1)
            break
        except httpx.TransportError:
            time.sleep(0.05)
    try:
        yield explorer
    finally:
        explorer.stop()
        thread.join(15)


@pytest.fixture(scope="module")
def serving() -> Callable[..., Any]:
    """Run an explorer of one's own: a context manager."""
    return _serving


@pytest.fixture(scope="module")
def small() -> Opened:
    """Cyclic batches: every exact answer takes milliseconds."""
    return Opened(example_settings()["cyclic"])


@pytest.fixture(scope="module")
def explorer(small: Opened) -> Iterator[Explorer]:
    with _serving(small, limits=Limits(seconds=60.0, workers=2)) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Debian's chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def look(browser: Any, explorer: Explorer) -> Iterator[Callable[..., Any]]:
    """Open the explorer in a fresh window; what the page asked for and complained of is kept."""
    contexts = []

    def opened(url: str = "", *, width: int = 1280, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.requested, page.complaints = [], []
        page.on("request", lambda request: page.requested.append(request.url))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda said: page.complaints.append(said.text))
        page.set_default_timeout(60_000)
        page.goto(url or explorer.url)
        page.wait_for_selector('#epsilon[data-status="exact"]')
        return page

    yield opened
    for context in contexts:
        context.close()
