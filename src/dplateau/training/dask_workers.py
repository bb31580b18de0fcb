"""Dask's workers: one actor on each, called directly, and what must not leave through Dask.

Rows live in actors only. They are not results of tasks, so Dask has none to show the size of, to
move or to spill; asks, iterates and sums travel between this process and a worker, past the
scheduler. Names of keys are random.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from dplateau.errors import NOTHING, ClusterError, PlanError, PrivacyWarning
from dplateau.training.cluster import RETRIES, ClusterTeam, Pending
from dplateau.training.partitions import as_partitions
from dplateau.training.shares import Prepare

_ANSWER = 20.0  # seconds that the scheduler, or a worker that is to hold rows, may take
_SAFE = ("tls", "wss", "inproc")


class Sealed:
    """Something that Dask carries and cannot show: its logs print the messages that pass."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __repr__(self) -> str:
        return "<private>"


class Post:
    """What Dask holds of us on a worker: an object of such a class, asked and answering sealed."""

    def __init__(self, kind: type) -> None:
        self._held = kind()

    def answer(self, sealed: Sealed) -> Sealed:
        """What a method, the first thing sealed, says to the others."""
        method, *arguments = sealed.held
        return Sealed(getattr(self._held, method)(*arguments))


@dataclass(frozen=True)
class _Actor:
    """An object on a worker; it can be handed to another worker, which then calls it.

    Calls go to the worker itself. (Those of `distributed.Actor` take the way of whichever client is
    the default one, which leads through the scheduler, and are repeated by themselves when a
    connection breaks.)
    """

    key: str
    address: str
    client: Any = None
    future: Any = None

    def __reduce__(self) -> Any:
        return _Actor, (self.key, self.address)

    @property
    def lost(self) -> bool:
        return self.future is not None and self.future.status != "finished"

    def call(self, method: str, *arguments: Any) -> Pending:
        if self.lost:
            return _Gone()
        caller, sealed = _worker_here() or self.client, Sealed((method, *arguments))
        if getattr(caller, "address", None) == self.address:  # a hub and a share on one worker
            return _Known(caller.state.actors[self.key].answer(sealed).held)
        ask = self._ask(caller.rpc(self.address), sealed)
        return _Asked(asyncio.run_coroutine_threadsafe(ask, caller.loop.asyncio_loop))

    async def _ask(self, worker: Any, sealed: Sealed) -> Any:
        packed = import_module("distributed.protocol").to_serialize(sealed)
        found = await worker.actor_execute(function="answer", actor=self.key, args=[packed])
        if found["status"] != "OK":
            raise OSError("the worker did not answer")
        return found["result"].held


def _worker_here() -> Any:
    """The worker in whose actor this is called; None in the driver."""
    state = import_module("distributed.worker").thread_state
    return _distributed().get_worker() if getattr(state, "actor", False) else None


@dataclass(frozen=True)
class _Asked:
    """An answer that is on its way."""

    coming: Any

    def result(self, timeout: float | None) -> Any:
        return self.coming.result(timeout)


@dataclass(frozen=True)
class _Known:
    """An answer that is there."""

    answer: Any

    def result(self, timeout: float | None) -> Any:
        return self.answer


class _Gone:
    def result(self, timeout: float | None) -> Any:
        raise OSError("the worker is gone")


class DaskWorkers:
    """The workers of a Dask cluster, called past its scheduler.

    Parameters
    ----------
    client : distributed.Client
        The user's. A client of our own is opened beside it: one that calls workers directly.
    """

    def __init__(self, client: Any) -> None:
        try:
            self._client: Any = _distributed().Client(
                client.scheduler.address,
                direct_to_workers=True,
                set_as_default=False,
                security=client.security,
                timeout=_ANSWER,
            )
        except OSError:
            raise ClusterError(_silent(client.scheduler.address)) from None

    def alive(self) -> list[str]:
        client = self._client
        try:
            if client.status != "running":
                raise OSError
            found = client.sync(client.scheduler.ncores, callback_timeout=_ANSWER)
        except (OSError, TimeoutError):
            raise ClusterError(_silent(client.scheduler.address)) from None
        return sorted(found)

    def start(self, address: str, kind: type) -> _Actor:
        key = f"dplateau-{secrets.token_hex(8)}"
        future = self._client.submit(
            *(Post, kind),
            actor=True,
            workers=[address],
            allow_other_workers=False,
            pure=False,
            key=key,
        )
        # Should it die in between, whoever calls it will notice.
        with contextlib.suppress(Exception):
            _distributed().wait([future], timeout=_ANSWER)
        return _Actor(key, address, self._client, future)

    def close(self) -> None:
        self._client.close()


@contextmanager
def on_workers(
    X: Any,
    y: Any,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    prepare: Prepare | None = None,
) -> Iterator[ClusterTeam]:
    """The rows of Dask collections on the workers of the current client, while they are needed.

    Dask's setting ``dplateau.retries`` says how many lost answers a step may have.
    """
    partitions = as_partitions(X, y, sample_weight, groups)
    client = current_client()
    warn_of_open_network(client.scheduler.address)
    workers = DaskWorkers(client)
    try:
        retries = int(import_module("dask").config.get("dplateau.retries", RETRIES))
        yield ClusterTeam(partitions, workers, prepare=prepare, retries=retries)
    finally:
        workers.close()


def current_client() -> Any:
    """The client that the user has opened; none is started silently."""
    try:
        return _distributed().default_client()
    except ValueError:
        raise PlanError(
            "X lies in Dask partitions and no cluster was named. Connect to one first: "
            "client = dask.distributed.Client('tcp://SCHEDULER:8786'), or on this machine "
            "Client(LocalCluster()); or gather the rows here yourself: X.compute()."
        ) from None


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The client of the cluster at this address."""
    try:
        client = _distributed().Client(address, timeout=_ANSWER)
    except (OSError, ValueError):
        raise ClusterError(_silent(address)) from None
    try:
        yield client
    finally:
        client.close()


def _distributed() -> Any:
    """The extra that clusters need."""
    try:
        return import_module("distributed")
    except ImportError:
        raise PlanError(
            "training on a cluster needs Dask: pip install 'dplateau[cluster]'."
        ) from None


def _silent(address: str) -> str:
    return (
        f"the scheduler at {address} does not answer. Check the address, and that it runs: dask "
        f"scheduler. {NOTHING}"
    )


def warn_of_open_network(address: str) -> None:
    """Warn of rows and iterates that would cross a network in the clear.

    Examples
    --------
    >>> warn_of_open_network("tcp://127.0.0.1:8786")
    """
    parts = urlsplit(address)
    if parts.scheme in _SAFE or _on_this_host(parts.hostname or ""):
        return
    warnings.warn(
        f"the scheduler at {address} is on another host and does not use TLS: rows, iterates and "
        "sums would cross the network unprotected. Give scheduler, workers and client "
        "certificates (distributed.comm.tls in Dask's configuration, or dask scheduler "
        "--tls-ca-file --tls-cert --tls-key) and connect to tls://.",
        PrivacyWarning,
        stacklevel=2,
    )


def _on_this_host(host: str) -> bool:
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None)}
        own = {each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return False
    return all(each in own or ipaddress.ip_address(each).is_loopback for each in found)
