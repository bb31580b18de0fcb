"""Training on a cluster: two workers of this machine, each with rows that the other never sees.

With ``Client("tls://scheduler:8786")`` in place of the local cluster the rest stays as it is.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster

import dplateau as dp


def made_up_rows(block: int, rows: int) -> np.ndarray:
    """Features of norm 1 and, in the last column, a label that follows them."""
    rng = np.random.default_rng(block)
    X = rng.normal(size=(rows, 10))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    label = (X @ np.linspace(1, -1, 10) + rng.normal(0, 0.1, rows) > 0).astype(float)
    return np.column_stack([X, label])


def main() -> None:
    """Start workers, train on partitions that they make themselves, and predict here."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        table = da.map_blocks(
            lambda block_info=None: made_up_rows(block_info[None]["chunk-location"][0], 5_000),
            chunks=((5_000,) * 4, (11,)),
            dtype=float,
            meta=np.empty((0, 0)),
        )
        model = dp.PrivateLogisticRegression(epsilon=1.0, delta=1e-7, data_norm=1.0, classes=[0, 1])
        model.fit(table[:, :10], table[:, 10].astype(int))
    test = made_up_rows(99, 5_000)
    print(f"accuracy {np.mean(model.predict(test[:, :10]) == test[:, 10]):.1%}")
    print(model.certificate_.statement)


if __name__ == "__main__":
    main()
