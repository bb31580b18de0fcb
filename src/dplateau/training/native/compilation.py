"""How the loops of this package are compiled: options, a cache that is never stale, intrinsics.

numba's cache notices a change of the file that a function stands in, not of the functions that it
calls. The compiled code of this package is therefore kept in a directory named after the content of
all its files: another version of any of them never meets it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.ir as ir  # type: ignore[import-untyped]
import numba
from numba import njit, types
from numba.extending import intrinsic

# Sums may be regrouped (that is what vectorises them); NaN and infinity keep their meaning.
OPTIONS: Any = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz"},
}
STRICT: Any = {**OPTIONS, "fastmath": {"contract"}}  # where the order of operations is the point


@cache
def _cache_directory() -> Path | None:
    """Where compiled code is kept: beside the sources, else in the user's cache; None: nowhere."""
    here = Path(__file__).parent
    content = hashlib.sha256()
    for path in [*sorted(here.glob("*.py")), here.parents[1] / "plan" / "subsets.py"]:
        content.update(path.read_bytes())
    name = f"native-{content.hexdigest()[:16]}"
    kept = os.environ.get("NUMBA_CACHE_DIR")
    homes = [Path(kept)] if kept else [here / "__pycache__", _user_cache()]
    for home in homes:
        try:
            (home / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(home / name, os.W_OK):
            return home / name
    return None


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dplateau"


@contextmanager
def _kept_in(directory: Path) -> Iterator[None]:
    """numba looks up its setting when a function is decorated: lend it ours for that moment."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(directory)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def compiled(function: Callable[..., Any], options: Any = OPTIONS) -> Any:
    """`numba.njit` with our options, cached on disk where some directory can be written."""
    try:
        directory = _cache_directory()
        if directory is None:
            return njit(**options)(function)
        with _kept_in(directory):
            return njit(cache=True, **options)(function)
    except (OSError, RuntimeError):  # no sources to name the directory after, no home
        return njit(**options)(function)


def strictly_compiled(function: Callable[..., Any]) -> Any:
    """The same with every sum in the order in which it is written."""
    return compiled(function, STRICT)


def inlined(function: Callable[..., Any]) -> Any:
    """The same, written into its callers: a problem or bench is a hundred arguments to a call."""
    return njit(inline="always", **OPTIONS)(function)


@intrinsic
def as_bits(context, number):  # type: ignore[no-untyped-def]
    """The 64 bits of a float."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def as_number(context, bits):  # type: ignore[no-untyped-def]
    """The float with these 64 bits."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate
