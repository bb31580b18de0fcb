"""The two products of a model and a block of dense rows, in the processor's vectors.

Compilers vectorise a loop at a time. Near the processor's peak a product needs more: as many sums
as registers hold, so that every number loaded serves several multiplications, and the rows of the
next block called from memory while this one is worked on. So these two loops are written in LLVM's
vectors, which it translates for whatever processor there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import llvmlite.ir as ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dplateau.training.native.compilation import config

TILE = 4  # rows whose products with the weights are summed together


def _has(feature: str) -> bool:
    """Whether the processor that numba compiles for has a feature."""
    if config.CPU_FEATURES is not None:
        return f"+{feature}" in config.CPU_FEATURES.split(",")
    return bool(llvmlite.binding.get_host_cpu_features().get(feature))


_WIDE = _has("avx512f")
_LANES = 8 if _WIDE else 4  # numbers in a vector
_SUMS = 20 if _WIDE else 10  # vectors that stay in registers, with room for what they are made of
_MOST_STRIPS = 4
_LINE = 64  # bytes that memory hands over at once
_SOON = (0, 2, 1)  # llvm.prefetch: to be read, into the second cache, of data

_BIT32, _BIT64, _NUMBER = ir.IntType(32), ir.IntType(64), ir.DoubleType()
_VECTOR = ir.VectorType(_NUMBER, _LANES)
_PLACES = ir.VectorType(_BIT64, _LANES)


def _call(builder: Any, name: str, kind: Any, arguments: Sequence[Any], **options: Any) -> Any:
    """Call one of LLVM's own functions, named with the types that it is wanted for."""
    signature = ir.FunctionType(kind, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, signature, name
    )
    return builder.call(function, arguments, **options)


def _spread(builder: Any, value: Any, kind: Any) -> Any:
    """A vector of one value."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, _BIT32(0))
    everywhere = ir.Constant(ir.VectorType(_BIT32, _LANES), [0] * _LANES)
    return builder.shuffle_vector(first, nothing, everywhere)


class _Table:
    """An array in the generated code: where its rows begin, and vectors read from them."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.builder, self.start = builder, array.data
        self.stride = cgutils.unpack_tuple(builder, array.strides)[0]  # type: ignore[no-untyped-call]
        self.columns = cgutils.unpack_tuple(builder, array.shape)[-1]  # type: ignore[no-untyped-call]
        self.bytes = kind.dtype.bitwidth // 8
        self.vector = ir.VectorType(context.get_data_type(kind.dtype), _LANES)
        self._suffix = f"v{_LANES}f{kind.dtype.bitwidth}.p0"

    def entry(self, i: Any) -> Any:
        """Entry ``i`` of a list."""
        return self.builder.load(self.builder.gep(self.start, [i]))

    def row(self, i: Any) -> Any:
        """Where row ``i`` begins."""
        return cgutils.pointer_add(  # type: ignore[no-untyped-call]
            self.builder, self.start, self.builder.mul(i, self.stride)
        )

    def _place(self, row: Any, j: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(row, [j]), self.vector.as_pointer())

    def read(self, row: Any, j: Any, mask: Any) -> Any:
        """The row's numbers from column ``j``, as doubles; 0 where there is a mask and it is 0."""
        place = self._place(row, j)
        if mask is None:
            found = self.builder.load(place, align=1)
        else:
            zeros = ir.Constant(self.vector, None)
            name = f"llvm.masked.load.{self._suffix}"
            found = _call(self.builder, name, self.vector, [place, _BIT32(1), mask, zeros])
        return found if self.vector == _VECTOR else self.builder.fpext(found, _VECTOR)

    def write(self, numbers: Any, row: Any, j: Any, mask: Any) -> None:
        """Write the row's numbers from column ``j``, those that the mask admits."""
        place = self._place(row, j)
        if mask is None:
            self.builder.store(numbers, place, align=1)
        else:
            name = f"llvm.masked.store.{self._suffix}"
            _call(self.builder, name, ir.VoidType(), [numbers, place, _BIT32(1), mask])

    def call_for(self, row: Any, j: Any, count: int) -> None:
        """Ask memory for so many numbers of the row."""
        for offset in range(0, count * self.bytes, _LINE):
            column = self.builder.add(j, _BIT64(offset // self.bytes))
            place = self.builder.bitcast(self.builder.gep(row, [column]), cgutils.voidptr_t)
            how = [_BIT32(word) for word in _SOON]
            _call(self.builder, "llvm.prefetch.p0", ir.VoidType(), [place, *how])


class _Sums:
    """Vectors that the generated code adds to; LLVM keeps them in registers."""

    def __init__(self, builder: Any, count: int) -> None:
        self.builder = builder
        self._rooms = [
            cgutils.alloca_once(builder, _VECTOR)  # type: ignore[no-untyped-call]
            for _ in range(count)
        ]

    def put(self, k: int, vector: Any) -> None:
        self.builder.store(vector, self._rooms[k])

    def get(self, k: int) -> Any:
        return self.builder.load(self._rooms[k])

    def add_product(self, k: int, x: Any, y: Any) -> None:
        self.put(k, _call(self.builder, f"llvm.fma.v{_LANES}f64", _VECTOR, [x, y, self.get(k)]))


def _strips(builder: Any, columns: Any, width: int) -> Iterator[tuple[list[Any], Any]]:
    """Loop over columns: so many whole vectors at a time, then the rest one by one, masked.

    Generates two loops; what is generated at each of the two turns is the body of one.
    """
    step = _BIT64(_LANES * width)
    whole = builder.mul(builder.sdiv(columns, step), step)
    with _loop(builder, _BIT64(0), whole, step) as j:
        yield [builder.add(j, _BIT64(_LANES * v)) for v in range(width)], None
    with _loop(builder, whole, columns, _BIT64(_LANES)) as j:
        left = _spread(builder, builder.sub(columns, j), _PLACES)
        lanes = ir.Constant(_PLACES, list(range(_LANES)))
        yield [j], builder.icmp_signed("<", lanes, left)


@contextmanager
def _loop(builder: Any, start: Any, stop: Any, step: Any) -> Iterator[Any]:
    with cgutils.for_range_slice(builder, start, stop, step, _BIT64) as (j, _):
        yield j


@intrinsic
def score_tile(typing, rows, index, first, weights, k, outputs, out, to):  # type: ignore[no-untyped-def]
    """Products of the rows ``index[first : first + TILE]`` with ``outputs`` rows of the weights.

    Those from row ``k`` on; they are written to ``out[to + m, first + t]``. ``outputs`` is a
    literal.
    """
    if not isinstance(outputs, types.IntegerLiteral):  # numba then asks again with the literal
        return None
    count = outputs.literal_value
    width = max(_SUMS // (TILE * count), 1)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        table, chosen, model, found = (
            _Table(context, builder, signature.args[i], arguments[i]) for i in (0, 1, 3, 6)
        )
        first, k, to = arguments[2], arguments[4], arguments[7]
        places = [builder.add(first, _BIT64(t)) for t in range(TILE)]
        tile = [table.row(chosen.entry(place)) for place in places]
        weights = [model.row(builder.add(k, _BIT64(m))) for m in range(count)]
        sums = _Sums(builder, count * TILE * width)
        for s in range(count * TILE * width):
            sums.put(s, ir.Constant(_VECTOR, None))
        for strips, mask in _strips(builder, table.columns, width):
            for v, j in enumerate(strips):
                numbers = [table.read(row, j, mask) for row in tile]
                for m, of_model in enumerate(weights):
                    weight = model.read(of_model, j, mask)
                    for t in range(TILE):
                        sums.add_product((m * TILE + t) * width + v, numbers[t], weight)
        for m in range(count):
            target = found.row(builder.add(to, _BIT64(m)))
            for t in range(TILE):
                start = (m * TILE + t) * width
                total = sums.get(start)
                for v in range(1, width):
                    total = builder.fadd(total, sums.get(start + v))
                name = f"llvm.vector.reduce.fadd.v{_LANES}f64"
                score = _call(builder, name, _NUMBER, [_NUMBER(-0.0), total], fastmath=["reassoc"])
                builder.store(score, builder.gep(target, [places[t]]))
        return context.get_dummy_value()

    return types.void(rows, index, first, weights, k, outputs, out, to), generate


@intrinsic
def accumulate_block(typing, rows, index, start, stop, slopes, of, outputs, out, k, ahead):  # type: ignore[no-untyped-def]
    """Add the rows ``index[start:stop]``, times ``slopes[of + m]``, to ``out[k + m]``.

    For all ``m < outputs``, a literal. ``ahead`` is None, or names as many rows that are needed
    next.
    """
    if not isinstance(outputs, types.IntegerLiteral):  # numba then asks again with the literal
        return None
    count = outputs.literal_value
    width = max(min(_SUMS // count, _MOST_STRIPS), 1)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        table, chosen, factors, total = (
            _Table(context, builder, signature.args[i], arguments[i]) for i in (0, 1, 4, 7)
        )
        start, stop, of, k = (arguments[i] for i in (2, 3, 5, 8))
        of_model = [factors.row(builder.add(of, _BIT64(m))) for m in range(count)]
        target = [total.row(builder.add(k, _BIT64(m))) for m in range(count)]
        sums = _Sums(builder, count * width)
        for strips, mask in _strips(builder, table.columns, width):
            for m in range(count):
                for v, j in enumerate(strips):
                    sums.put(m * width + v, total.read(target[m], j, mask))
            with _loop(builder, start, stop, _BIT64(1)) as r:
                row = table.row(chosen.entry(r))
                if not isinstance(ahead, types.NoneType):
                    needed = _Table(context, builder, signature.args[9], arguments[9])
                    soon = table.row(needed.entry(r))
                    table.call_for(soon, strips[0], _LANES * len(strips))
                numbers = [table.read(row, j, mask) for j in strips]
                for m in range(count):
                    slope = builder.load(builder.gep(of_model[m], [r]))
                    spread = _spread(builder, slope, _VECTOR)
                    for v in range(len(strips)):
                        sums.add_product(m * width + v, numbers[v], spread)
            for m in range(count):
                for v, j in enumerate(strips):
                    total.write(sums.get(m * width + v), target[m], j, mask)
        return context.get_dummy_value()

    return types.void(rows, index, start, stop, slopes, of, outputs, out, k, ahead), generate
