"""JAX: a jitted loop of the same steps written by hand, and with jax_privacy's clipped_grad."""

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


def _by_hand(weights, rows, targets):
    """The sum of the gradients in closed form (rows of norm one need no clipping)."""
    slopes = jax.vmap(jax.grad(_score_loss))(rows @ weights, targets)
    return rows.T @ slopes


def _by_library(weights, rows, targets):
    def one(weights, row, target):
        return _score_loss(row[0] @ weights, target[0])

    return clipped_grad(one, l2_clip_norm=1.5, batch_argnums=(1, 2))(weights, rows, targets)


def _loop(gradient, X, y, batch: int, step_size: float, noise_scale: float):
    """One compiled loop of any number of steps: draw rows, gradient, noise, projection."""

    @jax.jit
    def loop(weights, key, steps):
        def step(_, state):
            weights, key = state
            key, for_rows, for_noise = jax.random.split(key, 3)
            picked = jax.random.randint(for_rows, (batch,), 0, len(X))
            noise = noise_scale * jax.random.normal(for_noise, weights.shape)
            total = gradient(weights, X[picked], y[picked]) + noise
            weights = weights - step_size * total / batch
            return weights * jnp.minimum(1.0, BALL / jnp.linalg.norm(weights)), key

        return jax.lax.fori_loop(0, steps, step, (weights, key))

    return loop


def speed(records: int, features: int, outputs: int, batch: int, seconds: float, mode: str) -> dict:
    """Steps per second of the compiled loop, and the memory that it adds."""
    X, y = unit_rows(records, features, outputs)
    memory = Memory()
    X, y = jnp.asarray(X), jnp.asarray(y)
    gradient = {"jitted loop": _by_hand, "jax_privacy": _by_library}[mode]

    loop = _loop(gradient, X, y, batch, 1.0, 1.0)
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
    loop = _loop(_by_hand, X, y, batch, step_size, 2**0.5 if outputs > 1 else 1.0)
    start = jnp.zeros((X.shape[1], outputs), jnp.float32)

    def train(steps: int) -> np.ndarray:
        return np.asarray(loop(start, jax.random.key(0), steps)[0])

    train(2)  # compiles
    return until_loss(train, rows, labels, target)


if __name__ == "__main__":
    serve({"speed": speed, "time_to_loss": time_to_loss}, ("jax", "jax-privacy"))
