"""Reads an Iceberg table with Spark, and prints what it found as JSON.

usage: icebergspark.py WAREHOUSE TABLE [COLUMN]
       icebergspark.py --snapshots WAREHOUSE TABLE

Spark fetches Iceberg's runtime from Maven's central repository. With COLUMN, which tells
rows apart, it counts the changes between the first two snapshots. With --snapshots it prints
the rows of every snapshot alone.
"""

import json
import sys

from pyspark.sql import SparkSession

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def open_lake(warehouse):
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars.packages", RUNTIME)
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", warehouse)
        .getOrCreate()
    )


def plain(v):
    return v.decode() if isinstance(v, (bytes, bytearray)) else v


def print_snapshots(warehouse, table):
    spark = open_lake(warehouse)
    ids = [r.snapshot_id for r in spark.sql(f"SELECT snapshot_id FROM lake.{table}.snapshots ORDER BY committed_at").collect()]
    read = lambda i: sorted([plain(v) for v in r] for r in spark.sql(f"SELECT * FROM lake.{table} VERSION AS OF {i}").collect())
    print("RESULT", json.dumps([read(i) for i in ids]))


def main():
    if sys.argv[1] == "--snapshots":
        return print_snapshots(*sys.argv[2:])
    warehouse, table = sys.argv[1:3]
    spark = open_lake(warehouse)
    snapshots = [r.snapshot_id for r in spark.sql(f"SELECT snapshot_id FROM lake.{table}.snapshots ORDER BY committed_at").collect()]
    # Nulls stay, and every value as Spark's own text.
    rows = lambda df: sorted(json.dumps([None if v is None else str(v) for v in r]) for r in df.collect())
    out = {
        "current": rows(spark.sql(f"SELECT key, number FROM lake.{table}")),
        "snapshots": [rows(spark.sql(f"SELECT key, number FROM lake.{table} VERSION AS OF {s}")) for s in snapshots],
        "filtered": spark.sql(f"SELECT * FROM lake.{table} WHERE key >= 'r4'").count(),
        "ancestors": spark.sql(f"SELECT * FROM lake.{table}.history WHERE is_current_ancestor").count(),
    }
    if len(sys.argv) > 3:
        spark.sql(
            f"CALL lake.system.create_changelog_view(table => '{table}', changelog_view => 'changes', identifier_columns => array('{sys.argv[3]}'), "
            f"options => map('start-snapshot-id', '{snapshots[0]}', 'end-snapshot-id', '{snapshots[1]}'))"
        )
        out["changes"] = {r[0]: r[1] for r in spark.sql("SELECT _change_type, count(*) FROM changes GROUP BY 1").collect()}
    print("RESULT", json.dumps(out))


main()
