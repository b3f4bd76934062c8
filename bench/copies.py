# Writes rows to a Parquet file by DuckDB, for bench copies: see copyAsked and copyAnswered.
# duckdb.py stands before it.

import os

connection.execute("SET threads = 1")
connection.execute(f"CREATE TABLE rows AS SELECT * FROM {read([asked['rows']])}")
out = asked["out"].replace("'", "''")
begun, before = time.perf_counter(), cpu()
connection.execute(f"COPY rows TO '{out}' (FORMAT parquet, {asked['compression']})")
seconds, used = time.perf_counter() - begun, cpu() - before


def digest(names):
    # A sum of hashes of whole rows; the order of the rows is not looked at.
    return connection.execute(f"SELECT count(*), sum(hash(r)::HUGEINT) FROM {read(names)} r").fetchone()


theirs = digest([asked["out"]])
answer = {"seconds": seconds, "cpu": used, "rows": theirs[0], "same": theirs == digest([asked["rows"]])}
print(json.dumps(answer | {"bytes": os.path.getsize(asked["out"]), "version": duckdb.__version__}))
