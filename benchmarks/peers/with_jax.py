"""JAX: jitted loops of the same steps, written by hand or with jax_privacy's clipped_grad.

"Poisson loop" runs the plan that we run: every record enters a batch by a coin of its own.
"jitted loop" and "jax_privacy" do an easier job: rows are drawn with replacement, which no plan of
ours and no accountant covers.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy import clipped_grad
from protocol import Memory, serve
from synthetic import rate, unit_rows, until_loss

BALL = 100.0


def _score_loss(scores, target):
    """Cross-entropy of one record's scores; one score means two classes."""
    if scores.shape[-1] == 1:
        return jax.nn.softplus(jnp.where(target == 1, -1.0, 1.0) * scores[0])
    return -jax.nn.log_softmax(scores)[target]


def _by_hand(weights, rows, targets, present):
    """The sum of the gradients in closed form (rows of norm one need no clipping)."""
    slopes = jax.vmap(jax.grad(_score_loss))(rows @ weights, targets)
    return rows.T @ (slopes if present is None else slopes * present[:, None])


def _by_library(weights, rows, targets, present):
    def one(weights, row, target):
        return _score_loss(row[0] @ weights, target[0])

    return clipped_grad(one, l2_clip_norm=1.5, batch_argnums=(1, 2))(weights, rows, targets)


def _with_replacement(records: int, batch: int):
    """A batch of exact size whose rows may repeat."""

    def draw(key):
        return jax.random.randint(key, (batch,), 0, records), None

    return draw


def _by_coins(records: int, batch: int):
    """Independent coins, one per record, in O(batch): geometric gaps between those that enter.

    JAX needs a fixed shape, so batches are padded (and masked) to five standard deviations above
    the mean: less room, so less work for JAX, than our own cap allows.
    """
    room = min(int(batch + 5 * math.sqrt(batch)), records)

    def draw(key):
        places = jnp.cumsum(jax.random.geometric(key, batch / records, (room,), jnp.int32)) - 1
        present = places < records
        return jnp.where(present, places, 0), present

    return draw


def _loop(gradient, draw, X, y, batch: int, step_size: float, noise_scale: float):
    """One compiled loop of any number of steps: draw rows, gradient, noise, projection."""

    @jax.jit
    def loop(weights, key, steps):
        def step(_, state):
            weights, key = state
            key, for_rows, for_noise = jax.random.split(key, 3)
            picked, present = draw(for_rows)
            noise = noise_scale * jax.random.normal(for_noise, weights.shape)
            total = gradient(weights, X[picked], y[picked], present) + noise
            weights = weights - step_size * total / batch
            return weights * jnp.minimum(1.0, BALL / jnp.linalg.norm(weights)), key

        return jax.lax.fori_loop(0, steps, step, (weights, key))

    return loop


def speed(records: int, features: int, outputs: int, batch: int, seconds: float, mode: str) -> dict:
    """Steps per second of the compiled loop, and the memory that it adds."""
    X, y = unit_rows(records, features, outputs)
    memory = Memory()
    X, y = jnp.asarray(X), jnp.asarray(y)
    gradient = _by_library if mode == "jax_privacy" else _by_hand
    draw = (_by_coins if mode == "Poisson loop" else _with_replacement)(records, batch)
    loop = _loop(gradient, draw, X, y, batch, 1.0, 1.0)
    state = [jnp.zeros((features, max(outputs, 1)), jnp.float32), jax.random.key(0)]

    def advance(steps: int) -> None:
        state[:] = jax.block_until_ready(loop(state[0], state[1], steps))

    advance(2)
    return {**rate(advance, seconds), "added_memory_mib": memory.added_mib()}


def time_to_loss(data: str, outputs: int, batch: int, step_size: float, target: float) -> dict:
    """Seconds of the shortest run, among doubled lengths, whose training loss meets the target."""
    with np.load(data) as stored:
        rows, labels = stored["X_train"], stored["y_train"].astype(np.int32)
    X, y = jnp.asarray(rows), jnp.asarray(labels)
    noise_scale = 2**0.5 if outputs > 1 else 1.0
    loop = _loop(_by_hand, _by_coins(len(X), batch), X, y, batch, step_size, noise_scale)
    start = jnp.zeros((X.shape[1], outputs), jnp.float32)

    def train(steps: int) -> np.ndarray:
        return np.asarray(loop(start, jax.random.key(0), steps)[0])

    train(2)  # compiles
    return until_loss(train, rows, labels, target)


if __name__ == "__main__":
    serve({"speed": speed, "time_to_loss": time_to_loss}, ("jax", "jax-privacy"))
