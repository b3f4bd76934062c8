# Joins Parquet files by DuckDB, for bench joins: see joinAsked and joinAnswered.
# duckdb.py stands before it.

connection.execute(f"SET threads = {int(asked['threads'])}")
joined = f"""SELECT e.key, e.page, e.ms, u.country, u.age
FROM {read(asked["events"])} e JOIN {read(asked["users"])} u ON e.user = u.name"""
out = asked["out"].replace("'", "''")
begun, before = time.perf_counter(), cpu()
connection.execute(f"COPY ({joined}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
seconds, used = time.perf_counter() - begun, cpu() - before


def digest(names):
    # A sum of hashes: the order of the rows is nothing to a join.
    return connection.execute(f"SELECT count(*), sum(hash(key, page, ms, country, age)::HUGEINT) FROM {read(names)}").fetchone()


theirs = digest([asked["out"]])
print(json.dumps({"seconds": seconds, "cpu": used, "rows": theirs[0], "same": theirs == digest(asked["ours"]), "version": duckdb.__version__}))
