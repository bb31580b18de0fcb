"""The explorer's application: its page, what the page starts from, and the questions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dplateau import __version__
from dplateau.explorer import presets, state
from dplateau.explorer.answering import LEDGER, to_line
from dplateau.explorer.guard import App, Guard, Receive, Send, read_body
from dplateau.explorer.opened import Opened
from dplateau.explorer.workers import Limits, Pool

QUICK = Limits(seconds=5.0, workers=1, patience=0)
EXACT = Limits()

_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def build(
    opened: Opened,
    *,
    token: str,
    hosts: tuple[str, ...],
    exact: Limits = EXACT,
    ledger: Path | None = None,
) -> App:
    """The guarded application.

    Parameters
    ----------
    opened : Opened
        What the page shows first.
    token, hosts : str, tuple of str
        What a request must carry and whom it must name: see `Guard`.
    exact : Limits
        What an exact question may cost.
    ledger : path, optional
        The ledger to show; it is read anew for every look at it.
    """
    pools: dict[str, Pool] = {}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        pools.update(quick=Pool(QUICK), exact=Pool(exact))
        # Answers wait for the workers by themselves; the page need not.
        warming = [asyncio.create_task(pool.warm()) for pool in pools.values()]
        try:
            yield
        finally:
            for task in warming:
                task.cancel()
            for pool in pools.values():
                pool.close()

    async def about(_: Request) -> Response:
        return _json(
            {
                **state.describe(),
                **opened.to_dict(),
                "version": __version__,
                "ledger": ledger is not None,
                "presets": [
                    {
                        "name": preset.name,
                        "title": preset.title,
                        "note": preset.note,
                        "plan": preset.plan.to_dict(),
                        "delta": preset.delta,
                    }
                    for preset in presets.PRESETS
                ],
            }
        )

    async def top(_: Request) -> Response:
        return RedirectResponse(f"/{token}/", status_code=307)

    routes = [
        Route("/", _page, methods=["GET"]),
        Route("/about", about, methods=["GET"]),
        Route("/page/{name}", _file, methods=["GET"]),
        Route("/ask", _Answering(pools, ledger), methods=["POST"]),
        Route("/top", top, methods=["GET"]),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), token, hosts)


class _Answering:
    """A question in, lines of JSON out; a page that goes away stops the work at once."""

    def __init__(self, pools: dict[str, Pool], ledger: Path | None) -> None:
        self._pools = pools
        self._ledger = ledger

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        try:
            question = json.loads(await read_body(receive))
            if not isinstance(question, dict):
                raise ValueError("a question is a JSON object")
        except ConnectionError:
            return
        except (ValueError, RecursionError) as trouble:
            answer = _json({"kind": "refused", "message": f"No question: {trouble}."}, 400)
            await answer(scope, receive, send)
            return
        if question.get("ask") == LEDGER:  # whatever path the question names
            if self._ledger is None:
                await _json({"kind": "refused", "message": "No ledger was given."}, 404)(
                    scope, receive, send
                )
                return
            question = {"ask": LEDGER, "path": str(self._ledger)}
        pool = self._pools["quick" if question.get("ask") == "quick" else "exact"]
        answering = asyncio.ensure_future(_stream(pool, question, send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)


async def _stream(pool: Pool, question: dict[str, Any], send: Send) -> None:
    headers = [(b"content-type", b"application/x-ndjson")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async with aclosing(pool.ask(question)) as lines:
        async for line in lines:
            await send({"type": "http.response.body", "body": line, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _page(_: Request) -> Response:
    return _static("index.html")


async def _file(request: Request) -> Response:
    return _static(request.path_params["name"])


def _static(name: str) -> Response:
    known = {
        entry.name: entry
        for room in ("dplateau.explorer.page", "dplateau.report.figures")
        for entry in resources.files(room).iterdir()
        if entry.name.rsplit(".", 1)[-1] in _KINDS
    }
    if name not in known:
        return _json({"kind": "refused", "message": f"There is no {name!r:.60} here."}, 404)
    return Response(known[name].read_bytes(), media_type=_KINDS[name.rsplit(".", 1)[-1]])


def _json(found: dict[str, Any], status: int = 200) -> Response:
    return Response(to_line(found), status_code=status, media_type="application/json")
