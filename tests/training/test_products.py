"""The products of rows with weights and slopes, written in vectors, against numpy's."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from dplateau.training.native.rows import (
    accumulate,
    accumulate_one,
    reach,
    scores,
    scores_of_one,
)

BLOCK = 12

pytestmark = pytest.mark.xdist_group("compiled")


@njit
def both_products(rows, index, weights, found, slopes, total, gathered, positions):
    block, order, ahead = reach(rows, index, index, BLOCK, gathered, positions)
    scores(block, order, BLOCK, weights, found)
    accumulate(block, order, BLOCK, slopes, total, ahead)


@njit
def products_of_one(rows, index, weights, found, slopes, total):
    scores_of_one(rows, index, 4, 8, weights, 1, found, 0)
    accumulate_one(rows, index, 4, 8, slopes, 0, total, 1)


def laid_out(numbers, layout):
    """The same numbers, contiguous by rows, by columns, or as a view with gaps."""
    if layout == "gaps":
        wide = np.full((len(numbers), 2 * numbers.shape[1]), np.nan, numbers.dtype)
        wide[:, ::2] = numbers
        return wide[:, ::2]
    return np.asarray(numbers, order=layout)


@pytest.mark.parametrize(
    ("dtype", "layout"),
    [
        ("float32", "C"),
        *(("float64", layout) for layout in ("C", "F", "gaps")),
        *(pytest.param("float32", layout, marks=pytest.mark.slow) for layout in ("F", "gaps")),
    ],
)
def test_products_agree_with_numpy_for_every_width(dtype, layout):
    rng = np.random.default_rng(5)
    for features in (1, 2, 7, 8, 9, 16, 17, 31, 33, 64, 100):
        rows = laid_out(rng.normal(size=(40, features)).astype(dtype), layout)
        index = rng.integers(0, 40, BLOCK)
        exact = rows[index].astype(float)
        for outputs in (1, 4, 5, 10, 16):
            weights = rng.normal(size=(outputs, features + 1))
            slopes = rng.normal(size=(outputs, BLOCK))
            found, total = np.zeros((outputs, BLOCK)), np.ones((outputs, features + 1))
            room = np.zeros((BLOCK, features))
            both_products(rows, index, weights, found, slopes, total, room, np.arange(BLOCK))
            np.testing.assert_allclose(found, weights[:, :-1] @ exact.T, rtol=0, atol=1e-12)
            np.testing.assert_allclose(total[:, :-1], 1 + slopes @ exact, rtol=0, atol=1e-12)
            assert (total[:, -1] == 1).all()  # the intercept's column is not the rows' business


@pytest.mark.parametrize("layout", ["C", "F", "gaps"])
def test_products_of_one_model_touch_nothing_else(layout):
    rng = np.random.default_rng(6)
    for features in (3, 8, 21):
        rows = laid_out(rng.normal(size=(40, features)), layout)
        index, weights = rng.integers(0, 40, BLOCK), rng.normal(size=(3, features))
        slopes, found, total = (
            rng.normal(size=(2, BLOCK)),
            np.zeros((2, BLOCK)),
            np.zeros((3, features)),
        )
        products_of_one(rows, index, weights, found, slopes, total)
        part = rows[index[4:8]]
        np.testing.assert_allclose(found[0, 4:8], part @ weights[1], rtol=0, atol=1e-12)
        np.testing.assert_allclose(total[1], slopes[0, 4:8] @ part, rtol=0, atol=1e-12)
        assert np.count_nonzero(found) == 4
        assert not total[[0, 2]].any()


def test_products_agree_on_a_processor_with_narrow_vectors(tmp_path):
    """Compiled for a processor of 2013, in a process of its own with a cache of its own."""
    only = f"{__file__}::test_products_agree_with_numpy_for_every_width[float32-C]"
    environment = os.environ | {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+sse2,+cx16,+popcnt",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", only]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
