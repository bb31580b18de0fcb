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
from numba import config as _config
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

config: Any = _config  # whose settings come from the environment, so that no checker knows them

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
    before = config.CACHE_DIR
    config.CACHE_DIR = str(directory)
    try:
        yield
    finally:
        config.CACHE_DIR = before


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


def strictly_inlined(function: Callable[..., Any]) -> Any:
    """`inlined`, with every sum in the order in which it is written."""
    return njit(inline="always", **STRICT)(function)


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


_FLUSH = 0x8040  # x86's two bits for "subnormal numbers are 0": results, and what is read


def _mode(builder: Any, name: str, room: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, kind, f"llvm.x86.sse.{name}"
    )
    builder.call(function, [builder.bitcast(room, cgutils.voidptr_t)])


@intrinsic
def flush_subnormals(context):  # type: ignore[no-untyped-def]
    """Take subnormal numbers for 0, so that no record is slower than others; the mode before.

    An operation on a subnormal number takes some hundred cycles. Only x86 is slow in this way.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        if not builder.module.triple.startswith("x86_64"):
            return ir.IntType(32)(0)
        room = cgutils.alloca_once(builder, ir.IntType(32))  # type: ignore[no-untyped-call]
        _mode(builder, "stmxcsr", room)
        before = builder.load(room)
        builder.store(builder.or_(before, ir.IntType(32)(_FLUSH)), room)
        _mode(builder, "ldmxcsr", room)
        return before

    return types.int32(), generate


@intrinsic
def restore_mode(context, mode):  # type: ignore[no-untyped-def]
    """Undo `flush_subnormals`."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        if builder.module.triple.startswith("x86_64"):
            room = cgutils.alloca_once(builder, ir.IntType(32))  # type: ignore[no-untyped-call]
            builder.store(arguments[0], room)
            _mode(builder, "ldmxcsr", room)
        return context.get_dummy_value()

    return types.void(types.int32), generate
