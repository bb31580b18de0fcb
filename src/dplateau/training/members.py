"""Workers of a cluster as the rule for failures sees them, whatever runs them."""

from __future__ import annotations

from typing import Any, Protocol

from dplateau.training.shares import Reply


class Pending(Protocol):
    """An answer that is awaited."""

    def result(self, timeout: float) -> Reply:
        """The answer; ``TimeoutError`` while there is none, any other error if it is lost."""


class Member(Protocol):
    """Something on a worker that can be called."""

    @property
    def address(self) -> str:
        """The worker that it is on."""

    @property
    def lost(self) -> bool:
        """Whether it is known to be gone, though its worker may live."""

    def call(self, method: str, *arguments: Any) -> Pending:
        """Call a method there, without waiting for its answer."""


class Workers(Protocol):
    """The workers of a cluster, as the rule for failures sees them."""

    def alive(self) -> list[str]:
        """The addresses of the workers that the scheduler counts among its own."""

    def start(self, address: str, kind: type) -> Member:
        """Put such an object on that worker."""

    def close(self) -> None:
        """Give back what the workers hold for us."""
