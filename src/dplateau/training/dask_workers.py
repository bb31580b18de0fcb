"""Dask's workers: one actor on each, called directly, and what must not leave through Dask.

Rows live in actors only. They are not results of tasks, so Dask has none to show the size of, to
move or to spill; asks, iterates and sums travel between this process and a worker, past the
scheduler. Names of keys are random.
"""

from __future__ import annotations

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

from dplateau.errors import ClusterError, PlanError, PrivacyWarning
from dplateau.training.cluster import RETRIES, ClusterTeam, Pending
from dplateau.training.partitions import NOTHING, as_partitions
from dplateau.training.shares import Prepare

_ANSWER = 20.0  # seconds that the scheduler, or a worker that is to hold rows, may take
_SAFE = ("tls", "wss", "inproc")


@dataclass(frozen=True)
class _Actor:
    """An object on a worker; it can be handed to another worker, which then calls it."""

    actor: Any
    address: str
    future: Any = None

    def __reduce__(self) -> Any:
        return _Actor, (self.actor, self.address)

    @property
    def lost(self) -> bool:
        return self.actor is None or (self.future is not None and self.future.status != "finished")

    def call(self, method: str, *arguments: Any) -> Pending:
        try:
            pending: Pending = _Gone() if self.lost else getattr(self.actor, method)(*arguments)
        except RuntimeError:  # Dask knows already that its worker is lost
            return _Gone()
        return pending


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
        future = self._client.submit(
            kind,
            actor=True,
            workers=[address],
            allow_other_workers=False,
            pure=False,
            key=f"dplateau-{secrets.token_hex(8)}",
        )
        try:
            return _Actor(future.result(timeout=_ANSWER), address, future)
        except Exception:  # it died in between: whoever calls it will notice
            return _Actor(None, address, future)

    def close(self) -> None:
        self._client.close()


@contextmanager
def on_workers(
    X: Any, y: Any, sample_weight: Any = None, *, prepare: Prepare | None = None
) -> Iterator[ClusterTeam]:
    """The rows of Dask collections on the workers of the current client, while they are needed.

    Dask's setting ``dplateau.retries`` says how many lost answers a step may have.
    """
    partitions = as_partitions(X, y, sample_weight)
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


__all__ = ["DaskWorkers", "connected", "current_client", "on_workers", "warn_of_open_network"]
