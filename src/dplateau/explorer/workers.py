"""Worker processes that answer questions: bounded in number, time and memory, killed when unwanted.

A cancelled question must cost nothing, and numerical code cannot be interrupted politely: the
process that works on it is killed, and the next one is forked from a server that has everything
imported already.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from dplateau.explorer.answering import PRELOAD, work

_TO_START = 120.0  # seconds that a worker may take to be ready, on a slow or busy machine
_WAITING = 32  # questions that may wait for a worker; more are turned away


@dataclass(frozen=True)
class Limits:
    """What one question may cost.

    Parameters
    ----------
    seconds : float
        Wall-clock seconds after which the worker is killed.
    megabytes : int
        Memory that a worker may take on top of what it starts with.
    workers : int
        Questions that are answered at the same time.
    patience : int
        How far these workers step back behind others (as `os.nice`).
    """

    seconds: float = 120.0
    megabytes: int = 2048
    workers: int = 2
    patience: int = 3


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection  # closed by its destructor: a thread may still be reading from it


class Pool:
    """Workers of one kind; `ask` yields the lines of an answer as they are found."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._context = _context()
        self._idle: list[_Worker] = []
        self._slots = asyncio.Semaphore(limits.workers)
        self._waiting = 0
        self._threads = ThreadPoolExecutor(limits.workers + 1, thread_name_prefix="explorer")
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    async def warm(self) -> None:
        """Start the workers before the first question needs them."""
        loop = asyncio.get_running_loop()
        for _ in range(self.limits.workers):
            self._idle.append(await loop.run_in_executor(self._threads, self._start))

    async def ask(self, question: dict[str, Any]) -> AsyncGenerator[bytes]:
        """Answer one question, a line of JSON at a time.

        Closing the iterator early kills the worker. Running out of time or memory is an answer,
        too: a line whose ``kind`` is "stopped".
        """
        if self._waiting >= _WAITING:
            yield _line("stopped", "Too many questions at once: ask again in a moment.")
            return
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            async for line in self._answer(question):
                yield line
        finally:
            self._slots.release()

    async def _answer(self, question: dict[str, Any]) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        worker = await self._take()
        deadline = loop.time() + self.limits.seconds
        finished = False
        try:
            await loop.run_in_executor(self._threads, worker.pipe.send, question)
            while True:
                reading = loop.run_in_executor(self._threads, worker.pipe.recv_bytes)
                line = await asyncio.wait_for(reading, deadline - loop.time())
                if not line:
                    finished = True
                    return
                yield line
        except TimeoutError:
            yield _line(
                "stopped",
                f"This took longer than {self.limits.seconds:g} seconds and was stopped. What is "
                "marked approximate stays so; shorter schedules or larger batches are quicker.",
            )
        except (EOFError, OSError):
            yield _line(
                "stopped",
                f"The worker ended, most likely for want of memory ({self.limits.megabytes} MB are "
                "allowed). Use a shorter schedule or larger batches.",
            )
        finally:
            if finished and not self._closed:
                self._idle.append(worker)
            else:
                self._drop(worker)

    async def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.process.is_alive():
                return worker
            self._drop(worker)
        loop = asyncio.get_running_loop()
        starting = loop.run_in_executor(self._threads, self._start)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The question was cancelled while its worker was being born: keep it for the next.
            starting.add_done_callback(self._keep)
            raise

    def _keep(self, started: asyncio.Future[_Worker]) -> None:
        if started.cancelled() or started.exception() is not None:
            return
        if self._closed:
            self._drop(started.result())
        else:
            self._idle.append(started.result())

    def _start(self) -> _Worker:
        here, there = self._context.Pipe()
        process = self._context.Process(
            target=work,
            args=(there, self.limits.megabytes, self.limits.seconds, self.limits.patience),
            daemon=True,
        )
        with self._lock:  # the fork server is spoken to by one thread at a time
            process.start()
        there.close()
        worker = _Worker(process, here)
        self._all.add(worker)
        if here.poll(_TO_START):  # a worker says when it is ready: the first one waits for imports
            here.recv_bytes()
        return worker

    def _drop(self, worker: _Worker) -> None:
        self._all.discard(worker)
        worker.process.kill()  # which also wakes the thread that waits for its answer

    def close(self) -> None:
        """Kill every worker."""
        self._closed = True
        for worker in list(self._all):
            self._drop(worker)
        self._threads.shutdown(wait=False, cancel_futures=True)


def _context() -> Any:
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *PRELOAD])
    return context


def _line(kind: str, message: str) -> bytes:
    return json.dumps({"kind": kind, "message": message}).encode() + b"\n"
