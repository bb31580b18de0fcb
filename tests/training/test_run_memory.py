"""How much memory a run needs besides its data, measured in a process of its own."""

import subprocess
import sys

import pytest

MIB = 1 << 20

PREAMBLE = """
import sys, threading, time
import numpy as np
import dplateau as dp
from dplateau import run

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024

peak = 0
def watch():
    global peak
    while True:
        peak = max(peak, resident())
        time.sleep(0.005)

def plan_for(records, features, batches, loss, iterations):
    return dp.Plan(records=records, batches=batches, iterations=iterations, step_size=0.5,
                   noise_multiplier=1.0, loss=loss, data_norm=1.0, domain=dp.L2Ball(1.0))

def measure(X, y, batches, loss, iterations):
    global peak
    small = plan_for(8, X.shape[1], batches.__class__(*([4] if batches.kind != "full" else [])),
                     loss, 2)
    run(small, loss, np.array(X[:8]), y[:8])
    before, peak = resident(), 0
    threading.Thread(target=watch, daemon=True).start()
    run(plan_for(len(X), X.shape[1], batches, loss, iterations), loss, X, y)
    print(peak - before)
"""


def growth(body, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + body, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        timeout=1500,
    )
    return int(done.stdout.split()[-1])


IN_MEMORY = """
kind, order, loss = sys.argv[1:]
records, features = 200_000, 250
X = np.zeros((records, features), dtype=np.float32, order=order)
X[:, ::3] = 0.1
y = np.arange(records) % 2
batches = {"full": dp.FullBatch(), "cyclic": dp.Cyclic(5000), "poisson": dp.Poisson(5000)}[kind]
losses = {"logistic": dp.Logistic(intercept=1.0), "softmax": dp.Softmax(classes=3)}
measure(X, y, batches, losses[loss], 20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "cyclic", "poisson"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_a_run_needs_a_fifth_of_its_data_at_most(kind, order, loss):
    data = 200_000 * 250 * 4
    assert growth(IN_MEMORY, kind, order, loss) <= 0.2 * data + 200 * MIB


MAPPED = """
path, kind = sys.argv[1:]
records, features = 1_048_576, 1024
batches = {"cyclic": dp.Cyclic(65_536), "poisson": dp.Poisson(4096), "full": dp.FullBatch()}[kind]
X = np.memmap(path, dtype=np.float32, mode="r", shape=(records, features))
y = np.arange(records) % 2
measure(X, y, batches, dp.Logistic(), {"cyclic": 20, "poisson": 50, "full": 1}[kind])
"""


@pytest.fixture(scope="module")
def four_gibibytes(tmp_path_factory):
    """A sparse file: 4 GiB to read, nothing on the disk.

    It has been read in order before, so that a page fault maps as much at once as it ever does.
    """
    path = tmp_path_factory.mktemp("map") / "X"
    with open(path, "wb") as file:
        file.truncate(4 << 30)
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass
    yield path
    path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cyclic", "poisson", "full"])
def test_a_memory_map_of_four_gibibytes_trains_within_one(four_gibibytes, kind):
    assert growth(MAPPED, four_gibibytes, kind) <= 1024 * MIB
