"""List every locked package, whether its files are pinned by hash, and its known advisories.

Advisories come from a database that speaks OSV's batch query: OSV itself, or the one whose address
the environment variable ADVISORIES names. Where it does not answer, that is said: silence about
advisories is no clean bill.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"
SECONDS = 20
OSV = "https://api.osv.dev/v1/querybatch"


def locked(text: str) -> dict[str, tuple[str, int]]:
    """Name -> (version, number of hashes)."""
    joined = text.replace("\\\n", " ")
    found = {}
    for line in joined.splitlines():
        pin = re.match(r"([A-Za-z0-9_.\-\[\]]+)==(\S+)", line)
        if pin:
            found[pin[1]] = (pin[2], line.count("--hash=sha256:"))
    return found


def advisories(packages: dict[str, tuple[str, int]], address: str) -> dict[str, list[str]]:
    """Name -> identifiers of what is known about the locked version."""
    queries = [
        {"package": {"name": name.split("[")[0], "ecosystem": "PyPI"}, "version": version}
        for name, (version, _) in packages.items()
    ]
    request = urllib.request.Request(
        address,
        json.dumps({"queries": queries}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        results = json.load(answer)["results"]
    return {
        name: [found["id"] for found in result.get("vulns", [])]
        for name, result in zip(packages, results, strict=True)
    }


def main() -> int:
    packages = locked(LOCK.read_text(encoding="utf-8"))
    unhashed = [name for name, (_, hashes) in packages.items() if not hashes]
    known, reason = {}, ""
    try:
        known = advisories(packages, os.environ.get("ADVISORIES") or OSV)
    except (OSError, ValueError, KeyError) as trouble:
        reason = f"the database did not answer ({type(trouble).__name__})"
    for name, (version, hashes) in packages.items():
        found = ", ".join(known.get(name, ())) or ("" if reason else "no advisory")
        print(f"{name:<32}{version:<16}{hashes:>2} hashes  {found}".rstrip())
    print(f"{len(packages)} packages, {len(unhashed)} without a hash.")
    if reason:
        print(f"No advisory database is reachable: {reason}. Nothing is known about advisories.")
    return 1 if unhashed or any(known.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
