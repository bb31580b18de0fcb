"""Large tables on one machine: from files to a model, under a memory limit, batches laid out.

Every question is asked in a process of its own, which reports its peak resident memory. Tables are
made once, in a directory of the temporary one (``DPLATEAU_LARGE`` names another).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.store import Json, Task

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"files": 1, "rows": 20_000, "matrix": 50_000, "steps": 20},
    "quick": {"files": 2, "rows": 500_000, "matrix": 5_000_000, "steps": 200},
    "full": {"files": 6, "rows": 1_000_000, "matrix": 100_000_000, "steps": 2000},
}
NUMBERS, FEATURES, BATCH = 18, 20, 1000
KINDS = ("full", "cyclic", "poisson", "presampled")
LIMIT = 2 << 30  # bytes of memory for the matrix

_CHILD = """
import json, resource, sys, time
import numpy as np
import dplateau as dp
asked = json.loads(sys.argv[1])

def clock():
    return np.array([time.perf_counter(), time.process_time()])

def tell(**found):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**found, "peak_bytes": peak}))
"""
_READ = """
from dplateau.tables.reading import checked_files
began = clock()
rows = sum(len(part) for file in checked_files(asked["path"])[0]
           for part in file.batches(asked["columns"]))
wall, cpu = clock() - began
tell(rows=rows, seconds=wall, cpu_seconds=cpu)
"""
_TRAIN = """
from dplateau.tables import streaming
from dplateau.tables.table_model import TableModel
encode, took = streaming.TableStream.encoded, {}

def timed(self, *facts):
    began = clock()
    found = encode(self, *facts)
    took["encoded"], took["rows"] = clock() - began, len(found[1])
    return found

streaming.TableStream.encoded = timed
began = clock()
table = streaming.open_table(asked["path"], asked["columns"], 21, scratch=asked["scratch"])
TableModel.train(table, asked["schema"], "ill", scaling="public", epsilon=1.0, delta=1e-9,
                 batches="full", steps=20, hidden_state=False, radius=5.0)
wall, cpu = clock() - began
tell(rows=took["rows"], encode_seconds=took["encoded"][0], encode_cpu_seconds=took["encoded"][1],
     seconds=wall, cpu_seconds=cpu)
"""
_MATRIX = """
import os
resource.setrlimit(resource.RLIMIT_DATA, (asked["limit"], asked["limit"]))
n, d, steps, size = asked["records"], asked["features"], asked["steps"], asked["batch"]
X = np.memmap(asked["path"], dtype=np.float32, mode="r", shape=(n, d))
y = np.zeros(n, np.int8)
y[::2] = 1
kinds = {"full": dp.FullBatch(), "cyclic": dp.Cyclic(n // 100), "poisson": dp.Poisson(size),
         "presampled": dp.Poisson(size)}
steps = {"full": 3, "cyclic": 100, "poisson": asked["few"]}.get(asked["kind"], steps)
plan = dp.Plan(records=n, batches=kinds[asked["kind"]], iterations=steps, step_size=0.5,
               noise_multiplier=5.0, loss=dp.Logistic(), data_norm=1.0, domain=dp.L2Ball(3.0))
from dplateau.training import data
from dplateau.training.native.engine import NativeEngine
NativeEngine.build(plan, data.load(plan, plan.loss, X, y))  # compiles
few = plan.replace(records=10, batches=dp.FullBatch(), iterations=1)
dp.run(few, few.loss, np.ones((10, d)), y[:10])  # loads what every run needs once
file = os.open(asked["path"], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
laid = np.zeros(2)
source = (X, y)
if asked["kind"] == "presampled":
    began = clock()
    source = (dp.presample(plan, source, where=asked["scratch"]),)
    laid = clock() - began
began = clock()
dp.run(plan, plan.loss, *source)
wall, cpu = clock() - began
tell(steps=steps, lay_seconds=laid[0], lay_cpu_seconds=laid[1], seconds=wall, cpu_seconds=cpu)
"""


def home() -> Path:
    """Where the tables lie."""
    place = Path(os.environ.get("DPLATEAU_LARGE", Path(tempfile.gettempdir()) / "dplateau-large"))
    place.mkdir(exist_ok=True)
    return place


def schema() -> Json:
    """The public facts about the tables that are made."""
    numbers = {
        f"x{j}": {"type": "number", "bounds": [0, 100], "missing": False} for j in range(NUMBERS)
    }
    jobs = {"type": "category", "categories": ["clerk", "nurse", "smith"],
            "missing": False, "other": False}  # fmt: skip
    return {"columns": {**numbers, "job": jobs, "ill": {"type": "category",
                                                        "categories": ["no", "yes"]}}}  # fmt: skip


def make_tables(files: int, rows: int) -> dict[str, Path]:
    """The same rows as one CSV file and as Parquet files; made unless they are there."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    place = home() / f"{files}x{rows}"
    found = {"csv": place / "table.csv", "parquet": place / "parts"}
    if found["csv"].exists():
        return found
    found["parquet"].mkdir(parents=True)
    rng, writer = np.random.default_rng(0), None
    for k in range(files):
        X = rng.normal(50, 15, (rows, NUMBERS)).round(4)
        table = pa.table({
            **{f"x{j}": X[:, j] for j in range(NUMBERS)},
            "job": np.array(["clerk", "nurse", "smith", "baker"])[rng.integers(0, 4, rows)],
            "ill": np.where(X[:, 0] + rng.normal(0, 10, rows) > 50, "yes", "no"),
        })  # fmt: skip
        writer = writer or csv.CSVWriter(place / "part", table.schema)
        writer.write_table(table)
        parquet.write_table(table, found["parquet"] / f"{k:03d}.parquet")
    assert writer is not None
    writer.close()
    (place / "part").replace(found["csv"])
    return found


def make_matrix(records: int) -> Path:
    """A file of float32 rows of norm about 1; made unless it is there."""
    path = home() / f"{records}x{FEATURES}.float32"
    if not path.exists():
        rng, part = np.random.default_rng(1), path.with_suffix(".part")
        block = rng.normal(0, 0.2, (min(records, 1_000_000), FEATURES)).astype(np.float32)
        with open(part, "wb") as file:
            for lower in range(0, records, len(block)):
                np.roll(block, lower // len(block), axis=1)[: records - lower].tofile(file)
        part.replace(path)
    return path


def ask(script: str, **facts: Any) -> Json:
    """What a fresh process finds."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD + script, json.dumps(facts)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return dict(json.loads(done.stdout.splitlines()[-1]))


def from_files(kind: str, files: int, rows: int) -> Json:
    """A bare read, then the way to a model with twenty full steps."""
    path = make_tables(files, rows)[kind]
    facts = {"path": str(path), "columns": list(schema()["columns"])}
    read = ask(_READ, **facts)
    trained = ask(_TRAIN, **facts, schema=schema(), scratch=str(home()))
    stored = [path] if path.is_file() else list(path.iterdir())
    return {"bytes": sum(p.stat().st_size for p in stored), "read": read, "trained": trained}


def from_matrix(kind: str, records: int, steps: int) -> Json:
    """Steps on a memory map under the limit, from a cold disk."""
    return ask(
        _MATRIX, path=str(make_matrix(records)), records=records, features=FEATURES, kind=kind,
        steps=steps, few=max(steps // 20, 5), batch=BATCH, limit=LIMIT, scratch=str(home()),
    )  # fmt: skip


def tasks(size: str) -> Iterator[Task]:
    grid = SIZES[size]
    files, rows = grid["files"], grid["rows"]
    for kind in ("csv", "parquet"):
        for part in sorted({max(files // 3, 1), files}):
            yield Task("large", f"{kind} {part} x {rows}", {"kind": kind, "rows": part * rows},
                       lambda k=kind, f=part: from_files(k, f, rows))  # fmt: skip
    for kind in KINDS:
        facts = {"kind": kind, "records": grid["matrix"], "steps": grid["steps"], "limit": LIMIT}
        yield Task("large", f"matrix {kind}", facts,
                   lambda k=kind: from_matrix(k, grid["matrix"], grid["steps"]))  # fmt: skip


# -- the page --------------------------------------------------------------------------------------


def section(records: list[Json], table: Callable[[list[str], list[list[str]]], str]) -> str:
    """The part of the page on one machine."""
    found = {r["name"]: r["numbers"] for r in records if r["status"] == "ok"}
    files = {k: v for k, v in found.items() if "trained" in v}
    matrix = {k.removeprefix("matrix "): v for k, v in found.items() if k.startswith("matrix ")}
    loads = [r["load"] for r in records if r["status"] == "ok"] or [0.0]
    parts = ["## Large tables"]
    if files:
        parts += [
            f"From files to a model: {NUMBERS} numbers, a category and the target, encoded into "
            "scratch space as float32, then twenty full steps. Rows per second of processor time; "
            "the bare read parses the same columns and throws them away. Other work ran beside it "
            f"(a load of {min(loads):.0f} to {max(loads):.0f}).",
            table(
                ["table", "size", "read", "to float32", "to the model", "peak memory"],
                [_of_files(name, numbers) for name, numbers in sorted(files.items())],
            ),
        ]
    if matrix:
        size = next(r["parameters"] for r in records if r["name"].startswith("matrix "))
        parts += [
            f"A memory map of {size['records']:,} x {FEATURES} float32 "
            f"({size['records'] * FEATURES * 4 / 1e9:.1f} GB), the process limited to "
            f"{size['limit'] / 2**30:g} GiB (RLIMIT_DATA; pages of the map can be taken back), the "
            f"disk's cache emptied first. Random batches have {BATCH:,} rows.",
            table(
                ["batches", "steps", "pass before", "a step", "peak memory"],
                [_of_matrix(kind, matrix[kind]) for kind in KINDS if kind in matrix],
            ),
            *_on_paper(matrix, size["records"]),
        ]
    return "\n\n".join(parts)


def _of_files(name: str, numbers: Json) -> list[str]:
    read, trained = numbers["read"], numbers["trained"]
    rates = [
        read["rows"] / read["cpu_seconds"],
        trained["rows"] / trained["encode_cpu_seconds"],
        trained["rows"] / trained["cpu_seconds"],
    ]
    return [
        f"{name.split()[0]}, {trained['rows'] / 1e6:g} million rows",
        f"{numbers['bytes'] / 1e9:.1f} GB",
        *(f"{rate:,.0f}" for rate in rates),
        f"{trained['peak_bytes'] / 1e9:.2f} GB",
    ]


def _of_matrix(kind: str, numbers: Json) -> list[str]:
    before, each = numbers["lay_seconds"], numbers["seconds"] / numbers["steps"]
    return [
        {"poisson": "Poisson, step by step", "presampled": "Poisson, presampled"}.get(kind, kind),
        f"{numbers['steps']:,}",
        f"{before:.1f} s" if before else "–",
        f"{each:.3g} s" if each >= 1 else f"{1000 * each:.3g} ms",
        f"{numbers['peak_bytes'] / 1e9:.2f} GB",
    ]


def _on_paper(matrix: dict[str, Json], records: int) -> list[str]:
    """10^9 rows of 100 features, from the rates measured here."""
    if not {"full", "presampled"} <= matrix.keys():
        return []
    full, laid = matrix["full"], matrix["presampled"]
    times = 10**9 * 100 / (records * FEATURES)
    step = full["seconds"] / full["steps"] * times
    one = laid["lay_seconds"] * times
    each = 1000 * laid["seconds"] / laid["steps"]
    return [
        f"On paper, 10⁹ rows of 100 float32 (400 GB) on this machine, by these rates: a full step "
        f"{step / 60:.0f} minutes; presampled, one pass of {one / 60:.0f} minutes and then "
        f"{each * 100 / FEATURES:.0f} ms for {BATCH:,} rows a step. Two bytes are kept of each row."
    ]
