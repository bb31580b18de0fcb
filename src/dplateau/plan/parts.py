"""Losses, domains and batch kinds as parts of a plan: stored by the name of their kind.

A part is one class that knows its own facts. Defining one outside the package registers it, so that
a stored plan can be read back by whoever has imported the class; see CONTRIBUTING.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

from dplateau.errors import PlanError


class Part:
    """A piece of a plan: frozen, and stored as its fields and the name of its ``kind``.

    A subclass that states a ``kind`` of its own is registered under it. ``compiled`` names the
    compiled routine that does exactly what the class does in numpy; None: there is none, and numpy
    does the work. Neither is inherited, because a subclass may do something else.
    """

    kind: ClassVar[str]
    compiled: ClassVar[str | None] = None
    family: ClassVar[str]
    kinds: ClassVar[dict[str, type[Any]]]

    def __init_subclass__(cls, *, family: str | None = None, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if family is not None:
            cls.family, cls.kinds = family, {}
        if "compiled" not in vars(cls):
            cls.compiled = None
        if "kind" in vars(cls):
            _register(cls)

    def check_kind(self) -> None:
        """Refuse a class that would be stored under another's name."""
        if self.kinds.get(getattr(self, "kind", "")) is not type(self):
            raise PlanError(
                f"{type(self).__name__} has no kind of its own and could not be read back. Give "
                f"the class a kind: ClassVar[str] that no other {self.family} has."
            )

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values, with the ``kind`` that `from_dict` reads."""
        self.check_kind()
        stored = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in stored.items()}
        return {"kind": self.kind, **plain}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; an unknown kind is refused by name."""
        if not isinstance(stored, dict):
            raise PlanError(
                f"a stored {cls.family} is a JSON object with its kind; found {stored!r:.40}."
            )
        rest = dict(stored)
        kind = rest.pop("kind", None)
        try:
            found: type[Self] = cls.kinds[kind]
        except (KeyError, TypeError):
            raise PlanError(
                f"unknown {cls.family} kind {kind!r}; known are {sorted(cls.kinds)}. If it is your "
                "own, import the module that defines it first."
            ) from None
        try:
            return found._restored(rest)
        except (TypeError, KeyError) as trouble:
            raise PlanError(
                f"a stored {cls.family} of kind {kind!r} has the wrong fields: {trouble}."
            ) from None

    @classmethod
    def _restored(cls, fields: dict[str, Any]) -> Self:
        """The part of these stored fields; overridden where they are more than JSON values."""
        return cls(**fields)


def _register(cls: type[Part]) -> None:
    known = cls.kinds.get(cls.kind)
    if known is not None and _address(known) != _address(cls):
        raise PlanError(
            f"the {cls.family} kind {cls.kind!r} is taken by {known.__name__}. Choose another name."
        )
    cls.kinds[cls.kind] = cls


def _address(cls: type[Any]) -> tuple[str, str]:
    """Where a class is defined: the same cell of a notebook may define it again."""
    return cls.__module__, cls.__qualname__
