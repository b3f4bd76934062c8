"""What the scripts for DuckDB begin with: see askDuckDB."""

import json
import resource
import sys
import time

import duckdb

asked = json.load(sys.stdin)


def read(names):
    quoted = ", ".join("'" + n.replace("'", "''") + "'" for n in names)
    return f"read_parquet([{quoted}], hive_partitioning = false)"


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


connection = duckdb.connect()
connection.execute("SET enable_progress_bar = false")  # it is printed to where the answer is
