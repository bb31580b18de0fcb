"""How the loops of this package are compiled: options, a cache that is never stale, two intrinsics.

numba's cache notices a change of the file that a function stands in, not of the functions that it
calls. Every compiled function here is therefore stamped with all files of this directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.ir as ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

# Sums may be regrouped (that is what vectorises them); NaN and infinity keep their meaning.
OPTIONS: Any = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz"},
}


@cache
def _stamp() -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of every file that compiled code can come from."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files)


def compiled(function: Callable[..., Any]) -> Any:
    """`numba.njit` with our options, cached on disk where some directory can be written."""
    try:
        dispatcher = njit(cache=True, **OPTIONS)(function)
        dispatcher._cache._cache_file._source_stamp = _stamp()
    except (RuntimeError, AttributeError, OSError):  # no such directory, another numba, no sources
        return njit(**OPTIONS)(function)
    return dispatcher


def inlined(function: Callable[..., Any]) -> Any:
    """The same, written into its callers: a problem or bench is a hundred arguments to a call."""
    return njit(inline="always", **OPTIONS)(function)


@intrinsic
def wide_vectors(context):  # type: ignore[no-untyped-def]
    """Let the calling function use the processor's widest vectors.

    LLVM keeps to 256 bits by default, because code that is seldom in wide instructions runs at a
    lower clock for them. The products of a batch are nothing but such instructions: 512 bits save
    a quarter of their time. Where there are none, this changes nothing.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        with contextlib.suppress(AttributeError, TypeError):  # llvmlite admits no attribute of ours
            set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


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
