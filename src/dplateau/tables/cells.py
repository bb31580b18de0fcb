"""What a cell of a table says: its label, its number, its day, whether it is a yes or a no.

A cell is read by itself, whatever the others hold, and compared by value rather than by spelling:
software that cannot store a gap among whole numbers writes ``1`` as ``1.0``. No cell raises.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Hashable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TRUE = {"true", "t", "yes", "y"}
_FALSE = {"false", "f", "no", "n"}
_EPOCH = datetime.date(1970, 1, 1)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?")
_PLAIN = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?$"
_MIDNIGHT = re.compile(
    r"\d{8}|\d{4}-\d\d-\d\d([T ]00:00(:00(\.0+)?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)


def is_missing(cell: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, NaT, NA or blank text.

    Examples
    --------
    >>> [is_missing(cell) for cell in (None, float("nan"), " ", 0, False)]
    [True, True, True, False, False]
    """
    if cell is None:
        return True
    if isinstance(cell, str):
        return not cell.strip()
    try:
        return not bool(cell == cell)  # NaN and NaT differ from themselves
    except (TypeError, ArithmeticError):  # NA, and numbers that signal
        return True
    except ValueError:  # an array in a cell
        return False


def as_label(cell: Any) -> str:
    """A cell as text; missing values as the empty text.

    Examples
    --------
    >>> as_label(3.0), as_label(" a "), as_label(None), as_label(float("nan"))
    ('3', 'a', '', '')
    """
    if is_missing(cell):
        return ""
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return str(int(cell))
    return str(cell).strip()


def forms(cell: Any) -> Iterator[Hashable]:
    """What a cell may be compared by: its text, then its value as a number, yes or no, or a day.

    Examples
    --------
    >>> set(forms("02")) & set(forms(2.0)) == {("number", Decimal(2))}
    True
    """
    label = as_label(cell)
    yield label
    number = exact_number(cell)
    if number is not None:
        yield "number", number
    sign = sign_of(cell)
    if sign:
        yield "truth", sign > 0
    day = _midnight(cell, label)
    if day is not None:
        yield "day", day


def exact_number(cell: Any) -> Decimal | None:
    """The number that a cell spells, without rounding; None where it spells none.

    Examples
    --------
    >>> exact_number("01.0") == exact_number(1), exact_number("one"), exact_number("1,000")
    (True, None, None)
    """
    if isinstance(cell, (bool, np.bool_)):
        return None
    if isinstance(cell, (int, np.integer)):
        return Decimal(int(cell))
    if isinstance(cell, (float, np.floating, Decimal)):
        return Decimal(str(cell)) if math.isfinite(cell) else None
    text = cell.strip() if isinstance(cell, str) else ""
    return Decimal(text) if len(text) <= 100 and _NUMBER.fullmatch(text) else None


def sign_of(cell: Any) -> float:
    """1 for yes, -1 for no, 0 for neither.

    Examples
    --------
    >>> [sign_of(cell) for cell in (True, "1.0", "No", 0, "2", "maybe")]
    [1.0, 1.0, -1.0, -1.0, 0.0, 0.0]
    """
    number = exact_number(cell)
    if number is not None:
        return float(number == 1) - float(number == 0)
    label = as_label(cell).lower()
    return float(label in _TRUE) - float(label in _FALSE)


def day_of(cell: Any) -> float:
    """Days since 1970, NaN where a cell is no date; a whole number may spell one, as 19700102.

    Examples
    --------
    >>> day_of("1970-01-03T12:00"), day_of(datetime.date(1970, 1, 2)), day_of("soon")
    (2.0, 1.0, nan)
    >>> day_of(19700103), day_of("19700103")
    (2.0, 2.0)
    """
    if isinstance(cell, (int, float, np.number)):
        cell = as_label(cell)
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[D]").item()
    if isinstance(cell, datetime.datetime):
        cell = None if is_missing(cell) else cell.date()
    elif isinstance(cell, str):
        try:
            cell = datetime.date.fromisoformat(cell.strip()[:10])
        except ValueError:
            cell = None
    return float((cell - _EPOCH).days) if isinstance(cell, datetime.date) else math.nan


def _midnight(cell: Any, label: str) -> float | None:
    """The day that a cell names, unless it names an hour of it."""
    if not _MIDNIGHT.fullmatch(label):
        return None
    day = day_of(label)
    return None if math.isnan(day) else day


# -- whole columns -----------------------------------------------------------------------------


def as_numbers(cells: Any) -> Array:
    """Floats, NaN where a cell is not one; infinities are kept, to be clipped.

    Examples
    --------
    >>> as_numbers(["1", 2, None, "many", "$5"]).tolist()
    [1.0, 2.0, nan, nan, nan]
    """
    if isinstance(cells, np.ndarray) and cells.ndim == 1 and cells.dtype.kind in "fiub":
        return np.asarray(cells, dtype=np.float64)
    if hasattr(cells, "type") and hasattr(cells, "null_count"):
        import pyarrow as pa

        if pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type):
            return np.asarray(cells.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
        if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
            return _numbers_in_text(cells)
    if getattr(getattr(cells, "dtype", None), "kind", "O") in "fiub" and hasattr(cells, "to_numpy"):
        return np.asarray(cells.to_numpy(dtype=np.float64, na_value=math.nan), dtype=np.float64)
    return mapped(cells, _as_number, np.float64)


def _numbers_in_text(cells: Any) -> Array:
    """Plain decimal numbers by arrow, which rounds as Python does; other text cell by cell."""
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    try:  # what arrow takes for a number has the value that Python gives it
        numbers = cells.cast(pa.float64())
        return np.array(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    except pa.ArrowInvalid:
        pass
    plain = compute.match_substring_regex(cells, _PLAIN).fill_null(False)
    numbers = compute.if_else(plain, cells, None).cast(pa.float64())
    found = np.array(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    other = compute.and_(compute.invert(plain), cells.is_valid())
    rest = np.flatnonzero(other.to_numpy(zero_copy_only=False))
    if rest.size:
        found[rest] = mapped(cells.take(pa.array(rest)), _as_number, np.float64)
    return found


def mapped(cells: Any, read: Callable[[Any], Any], dtype: Any) -> NDArray[Any]:
    """``read`` of every cell, called once for equal ones: most columns repeat themselves.

    Examples
    --------
    >>> mapped(["a", "b", "a"], ord, int).tolist()
    [97, 98, 97]
    """
    different, which = distinct(cells)
    found = np.empty(len(different), dtype=dtype)
    for k, cell in enumerate(different):
        found[k] = read(cell)
    return found[which]


def distinct(cells: Any) -> tuple[list[Any], NDArray[np.intp]]:
    """The different cells, and which of them stands in every place.

    Examples
    --------
    >>> values, which = distinct(["a", None, "a", 1, True])
    >>> values, which.tolist()
    (['a', None, 1, True], [0, 1, 0, 2, 3])
    """
    arrow = _as_arrow(cells)
    if arrow is not None:
        encoded = arrow.dictionary_encode()
        values = listed(encoded.dictionary)
        if str(arrow.type) in ("float", "halffloat"):  # their shortest spelling is what was meant
            values = list(encoded.dictionary.to_numpy())
        which = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
        return [*values, None], which.astype(np.intp)
    places: dict[Any, int] = {}
    objects = listed(cells)
    try:
        # The type belongs to the key: 1, 1.0 and True are equal, and differ as labels.
        codes = [places.setdefault((type(cell), cell), len(places)) for cell in objects]
    except TypeError:  # a list or an array in a cell
        return objects, np.arange(len(objects))
    return [cell for _, cell in places], np.array(codes, dtype=np.intp)


def listed(cells: Any) -> list[Any]:
    """The cells as Python objects, from arrow, pandas, numpy or any sequence."""
    if hasattr(cells, "to_pylist"):
        try:
            found = cells.to_pylist()
        except UnicodeDecodeError:  # one cell that is no text must raise nothing
            found = _bytes(cells)
        except (OverflowError, ValueError):  # nor a day that no calendar of Python's has
            found = [_or_missing(cell) for cell in cells]
    else:
        found = cells.tolist() if hasattr(cells, "tolist") else cells
    # Text that was stored without saying so, as numpy and older writers of Parquet do.
    return [cell.decode("utf-8", "replace") if type(cell) is bytes else cell for cell in found]


def _or_missing(cell: Any) -> Any:
    """An arrow cell as Python's, None where that is none."""
    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        return None


def _bytes(cells: Any) -> list[bytes | None]:
    """Arrow text as the bytes that it was stored as."""
    import pyarrow as pa

    large = pa.types.is_large_string(cells.type)
    return list(cells.cast(pa.large_binary() if large else pa.binary()).to_pylist())


def _as_arrow(cells: Any) -> Any:
    """An arrow array of one plain type, where the cells have one already; else None.

    Cells of mixed types are not converted: the type of one would depend on the others.
    """
    import pyarrow as pa

    if isinstance(cells, np.ndarray):
        if cells.ndim != 1 or cells.dtype.kind not in "fiubM":
            return None
        cells = pa.array(cells)
    elif hasattr(cells, "dtype") and str(cells.dtype) != "object":  # pandas
        try:
            cells = pa.array(cells, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError):
            return None
    if not isinstance(cells, (pa.Array, pa.ChunkedArray)):
        return None
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_timestamp(cells.type):  # nanoseconds are none of Python's
        cells = cells.cast(pa.timestamp("us", cells.type.tz), safe=False)
    if pa.types.is_nested(cells.type) or pa.types.is_null(cells.type):
        return None
    if isinstance(cells.type, pa.BaseExtensionType):  # pandas' periods and intervals
        return None
    return cells


def _as_number(cell: Any) -> float:
    try:
        return math.nan if isinstance(cell, str) and "_" in cell else float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


__all__ = [
    "as_label",
    "as_numbers",
    "day_of",
    "distinct",
    "exact_number",
    "forms",
    "is_missing",
    "listed",
    "mapped",
    "sign_of",
]
