"""Reads an Iceberg table with DuckDB's extension, and prints the rows of every snapshot as JSON.

usage: icebergduckdb.py [--numbers] OUT JOB
       icebergduckdb.py --catalog URI TOKEN TABLE

With --numbers it prints the columns key and number as text, of the current snapshot, too, and
how many keys are r4 or later. With --catalog it prints the columns key and n of a table of a
daemon's catalog.

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


def open_duckdb(*extensions):
    c = duckdb.connect()
    for name in extensions:
        c.load_extension(extension(name))
    return c


def print_of_catalog(uri, token, table):
    c = open_duckdb("httpfs", "avro", "iceberg")
    c.execute(f"CREATE SECRET lake (TYPE iceberg, TOKEN '{token}')")
    c.execute(f"ATTACH 'sluice' AS lake (TYPE iceberg, ENDPOINT '{uri}', SECRET lake)")
    tables = c.execute("SELECT schema, name FROM (SHOW ALL TABLES)").fetchall()
    assert tables == [("sluice", table)], tables
    print("RESULT", json.dumps(sorted(c.execute(f"SELECT key, n FROM lake.sluice.{table}").fetchall())))


def main():
    if sys.argv[1] == "--catalog":
        return print_of_catalog(*sys.argv[2:])
    numbers = sys.argv[1] == "--numbers"
    out, job = sys.argv[-2:]
    c = open_duckdb("avro", "iceberg")
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
