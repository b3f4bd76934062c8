"""Reads an Iceberg table with DuckDB's extension, and prints the rows of every snapshot as JSON.

usage: icebergduckdb.py OUT JOB

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
    out, job = sys.argv[1:3]
    c = duckdb.connect()
    for name in ("avro", "iceberg"):
        c.load_extension(extension(name))
    plain = lambda v: v.decode() if isinstance(v, bytes) else v
    table = os.path.join(out, job)
    read = lambda *snapshot: sorted([plain(v) for v in r] for r in c.execute(f"SELECT * FROM iceberg_scan(?{', snapshot_from_id => ?' if snapshot else ''})", [table, *snapshot]).fetchall())
    snapshots = [read(i) for (i,) in c.execute("SELECT snapshot_id FROM iceberg_snapshots(?) ORDER BY sequence_number", [table]).fetchall()]
    assert read() == snapshots[-1]
    print("RESULT", json.dumps(snapshots))


main()
