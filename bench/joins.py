"""Joins Parquet files by DuckDB, for bench joins: see joinAsked and joinAnswered."""

import json
import resource
import sys
import time

import duckdb

asked = json.load(sys.stdin)


def files(names):
    quoted = ", ".join("'" + n.replace("'", "''") + "'" for n in names)
    return f"read_parquet([{quoted}], hive_partitioning = false)"


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


connection = duckdb.connect()
connection.execute(f"SET threads = {int(asked['threads'])}")
joined = f"""SELECT e.key, e.page, e.ms, u.country, u.age
FROM {files(asked["events"])} e JOIN {files(asked["users"])} u ON e.user = u.name"""
out = asked["out"].replace("'", "''")
begun, before = time.perf_counter(), cpu()
connection.execute(f"COPY ({joined}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
seconds, used = time.perf_counter() - begun, cpu() - before


def digest(names):
    # A sum of hashes: the order of the rows is nothing to a join.
    return connection.execute(f"SELECT count(*), sum(hash(key, page, ms, country, age)::HUGEINT) FROM {files(names)}").fetchone()


theirs = digest([asked["out"]])
print(json.dumps({"seconds": seconds, "cpu": used, "rows": theirs[0], "same": theirs == digest(asked["ours"]), "version": duckdb.__version__}))
