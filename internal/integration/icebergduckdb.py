"""Reads an Iceberg table with DuckDB's extension, and prints the rows of every snapshot as JSON.

usage: icebergduckdb.py [--numbers] OUT JOB

With --numbers it prints the columns key and number as text, of the current snapshot, too, and
how many keys are r4 or later.

PYTHONPATH has the packages of requirements-duckdb.txt: the extension comes for one version of
DuckDB, which need not be that of requirements.txt.
"""

import glob
import importlib.util
import json
import os
import sys

import duckdb


def extension(name):
    """Where the package of an extension has it."""
    package = importlib.util.find_spec("duckdb_extension_" + name).submodule_search_locations[0]
    return glob.glob(os.path.join(glob.escape(package), "extensions", "*", name + ".duckdb_extension"))[0]


def main():
    numbers = sys.argv[1] == "--numbers"
    out, job = sys.argv[-2:]
    c = duckdb.connect()
    for name in ("avro", "iceberg"):
        c.load_extension(extension(name))
    plain = lambda v: v.decode() if isinstance(v, bytes) else v
    table = os.path.join(out, job)

    def read(*snapshot):
        of = "iceberg_scan(?, snapshot_from_id => ?)" if snapshot else "iceberg_scan(?)"
        columns = "key, number::VARCHAR" if numbers else "*"
        rows = sorted([plain(v) for v in r] for r in c.execute(f"SELECT {columns} FROM {of}", [table, *snapshot]).fetchall())
        return sorted(json.dumps(r) for r in rows) if numbers else rows

    snapshots = [read(i) for (i,) in c.execute("SELECT snapshot_id FROM iceberg_snapshots(?) ORDER BY sequence_number", [table]).fetchall()]
    assert read() == snapshots[-1]
    if not numbers:
        print("RESULT", json.dumps(snapshots))
        return
    filtered = c.execute("SELECT count(*) FROM iceberg_scan(?) WHERE key >= 'r4'", [table]).fetchone()[0]
    print("RESULT", json.dumps({"current": read(), "snapshots": snapshots, "filtered": filtered}))


main()
