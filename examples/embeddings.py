"""A private linear probe on embeddings: unit vectors of a public encoder, twenty topics.

The vectors are made up here; with real ones (a sentence or image encoder trained on public data),
replace `made_up_embeddings`.
"""

from __future__ import annotations

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import dplateau as dp

TOPICS = 20


def made_up_embeddings(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy copies of twenty directions in 256 dimensions."""
    topics = np.random.default_rng(7).normal(size=(TOPICS, 256))
    rng = np.random.default_rng(seed)
    y = rng.integers(TOPICS, size=rows)
    return topics[y] + 2.5 * rng.normal(size=(rows, 256)), y


def main() -> None:
    """Ask for the plan first, then train."""
    X, y = made_up_embeddings(6_000, seed=0)
    probe = dp.PrivateLogisticRegression(
        epsilon=2.0,
        delta=1e-6,
        data_norm=1.0,  # Normalizer scales every row by itself: no privacy is spent
        classes=range(TOPICS),
    )
    print(probe.explain(*X.shape))
    model = make_pipeline(Normalizer(), probe).fit(X, y)
    X_test, y_test = made_up_embeddings(2_000, seed=1)
    print(f"accuracy {model.score(X_test, y_test):.1%} in {TOPICS} topics")
    print(probe.certificate_.statement)


if __name__ == "__main__":
    main()
