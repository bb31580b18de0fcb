"""dplateau itself, asked in a fresh process like everybody else."""

import time

import numpy as np
from protocol import Memory, serve, timed
from synthetic import rate, unit_rows, until_loss

import dplateau as dp
from dplateau.training.noise import training_streams
from dplateau.training.session import Session

RECORDS = 1_000_000
BALL = 100.0  # wide enough never to bind: the peers have no projection


def plan(steps: int, sampling: float, noise: float, method: str) -> dp.Plan:
    """The sampled Gaussian mechanism, iterates public (composition) or hidden in a ball.

    Hidden: logistic loss on unit rows, step size 4, weights in a ball of radius 5.
    """
    hidden = method == "hidden state"
    batches = dp.FullBatch() if sampling == 1 else dp.Poisson(sampling * RECORDS)
    return dp.Plan(
        records=RECORDS,
        batches=batches,
        iterations=steps,
        step_size=4.0 if hidden else 1.0,
        noise_multiplier=noise,
        lipschitz=1.0,
        smoothness=0.25,
        domain=dp.L2Ball(5.0) if hidden else dp.Everywhere(),
        neighboring_relation="add_or_remove_one",
        hidden_state=hidden,
    )


def epsilon(steps: int, sampling: float, noise: float, delta: float, method: str) -> dict:
    return timed(lambda: dp.account(plan(steps, sampling, noise, method)).epsilon(delta))


def calibrate(steps: int, sampling: float, target: float, delta: float, method: str) -> dict:
    start = plan(steps, sampling, 1.0, method)
    return timed(lambda: dp.calibrate(start, target, delta).noise_multiplier.largest(1))


def training_plan(records: int, outputs: int, batch: int, step_size: float) -> tuple:
    """Poisson batches, noise multiplier 1, weights in a ball, hidden iterates; and its loss."""
    loss = dp.Softmax(classes=outputs) if outputs > 1 else dp.Logistic()
    plan = dp.Plan(
        records=records,
        batches=dp.Poisson(batch, max_overflow=1.0),
        iterations=1,
        step_size=step_size,
        noise_multiplier=1.0,
        loss=loss,
        data_norm=1.0,
        domain=dp.L2Ball(BALL),
        neighboring_relation="add_or_remove_one",
    )
    return plan, loss


def speed(records: int, features: int, outputs: int, batch: int, seconds: float, mode: str) -> dict:
    """Steps per second of the loop behind `dplateau.run`, and the memory that training adds.

    Like the peers' set-up, ours (reading the data once to bound its rows) is done before; what it
    takes is told beside.
    """
    X, y = unit_rows(records, features, outputs)
    plan, loss = training_plan(records, outputs, batch, 1.0)
    memory = Memory()
    dp.run(plan.replace(iterations=2), loss, X, y)  # compiles
    begin = time.process_time()
    session = Session(plan.replace(iterations=10**12), loss, X, y)
    set_up = time.process_time() - begin
    (streams,) = training_streams(None, 1)
    found = rate(lambda steps: session.advance(steps, streams), seconds)
    return {**found, "set_up_seconds": set_up, "added_memory_mib": memory.added_mib()}


def time_to_loss(data: str, outputs: int, batch: int, step_size: float, target: float) -> dict:
    """Seconds of the shortest run, among doubled lengths, whose training loss meets the target."""
    with np.load(data) as stored:
        X, y = stored["X_train"], stored["y_train"].astype(np.int64)
    plan, loss = training_plan(len(X), outputs, batch, step_size)

    def train(steps: int) -> np.ndarray:
        return dp.run(plan.replace(iterations=steps), loss, X, y, random_state=0)

    train(2)  # compiles
    return until_loss(train, X, y, target)


if __name__ == "__main__":
    serve(
        {
            "epsilon": epsilon,
            "calibrate": calibrate,
            "speed": speed,
            "time_to_loss": time_to_loss,
        },
        ("dplateau",),
    )
