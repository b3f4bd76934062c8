"""Reads a published export with other implementations than ours.

    python readers.py DIR/_manifest.json [--spark]

prints one JSON object: for pyarrow, pandas, DuckDB, Polars and, where it is asked for,
Spark on the Parquet files, and for pyarrow and Polars on the Arrow files
(whatever of these the run has) the number of rows and, for each column, its
name, type, nullability where the reader says it, nulls and checksum. The files
are read in the manifest's order. The checksum is that of Checksum in package
jobs/columnar, so equal data has equal sums in every reader.

Under "footers" is what pyarrow finds in the footers of the Parquet files, after
it was compared with the values and the manifest: the columns that row groups say they
are sorted by, in which order, which their rows are from the first file to the last, and
for each column in how many row groups it has bounds and a dictionary,
its encodings and its codecs. A footer that is wrong ends the program with what is wrong.

Versions are in requirements.txt, and of Spark in requirements-spark.txt.
"""

import decimal
import hashlib
import json
import math
import os
import re
import struct
import sys

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.compute
import pyarrow.ipc
import pyarrow.parquet


class Column:
    """Adds up the values of one column, over all files."""

    def __init__(self, name, kind, nullable):
        self.name, self.kind, self.nullable = name, kind, nullable
        self.rows = self.nulls = 0
        self.hash = hashlib.sha256()

    def add(self, values):
        for value in values:
            self.rows += 1
            self.nulls += value is None
            self.hash.update(checked(value))

    def result(self):
        return {
            "name": self.name,
            "type": self.kind,
            "nullable": self.nullable,
            "nulls": self.nulls,
            "sha256": self.hash.hexdigest(),
        }


def checked(value):
    if value is None:
        return b"\0"
    text = encode(value)
    return b"\1" + struct.pack(">I", len(text)) + text


def encode(value):
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list):  # a map, whose keys and values follow each other
        return b"".join(checked(key) + checked(item) for key, item in value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f").encode()
    if isinstance(value, bool):  # before int, of which it is one
        return b"true" if value else b"false"
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, str):
        return value.encode()
    return bytes(value)


# Types by the names that the manifest uses. What has no name here has that of kind.
ARROW = {
    "string": "string",
    "int64": "int64",
    "double": "float64",
    "bool": "bool",
    "timestamp[us, tz=UTC]": "timestamp",
    "binary": "bytes",
    "extension<arrow.json>": "json",
}
DUCKDB = {
    "VARCHAR": "string",
    "BIGINT": "int64",
    "DOUBLE": "float64",
    "BOOLEAN": "bool",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "BLOB": "bytes",
    "JSON": "json",
}
POLARS = {
    "String": "string",
    "Int64": "int64",
    "Float64": "float64",
    "Boolean": "bool",
    "Datetime(time_unit='us', time_zone='UTC')": "timestamp",
    "Binary": "bytes",
    "Extension('arrow.json', String, '')": "json",
}
SPARK = {
    "string": "string",
    "bigint": "int64",
    "double": "float64",
    "boolean": "bool",
    "timestamp": "timestamp",
    "binary": "bytes",
}


def kind(types, name):
    """Returns the manifest's name of a reader's type."""
    if name in types:
        return types[name]
    if found := re.fullmatch(r"decimal(?:128)?\((?:precision=)?(\d+), ?(?:scale=)?(\d+)\)", name, re.IGNORECASE):
        return f"decimal({found[1]},{found[2]})"
    # pyarrow adds the name of the entries where it is not its own.
    if found := re.fullmatch(r"map[<(](\w+), ?(\w+)(?: \('.*'\))?[>)]", name, re.IGNORECASE):
        key, value = types.get(found[1], found[1]), types.get(found[2], found[2])
        if key == "string":
            return "map" if value == "bytes" else f"map({value})"
    return name


def merge(columns, found):
    """Checks that a further file has the columns of those before it."""
    if columns is None:
        return found
    was = [(c.name, c.kind, c.nullable) for c in columns]
    now = [(c.name, c.kind, c.nullable) for c in found]
    if was != now:
        raise SystemExit(f"columns differ between files: {was} and {now}")
    return columns


def read_arrow_tables(tables):
    columns = None
    for table in tables:
        table.validate(full=True)
        found = [Column(f.name, kind(ARROW, str(f.type)), f.nullable) for f in table.schema]
        columns = merge(columns, found)
        for column, field in zip(columns, table.schema):
            values = table.column(field.name)
            if column.kind == "timestamp":
                values = values.cast(pyarrow.int64())
            column.add(values.to_pylist())
    return columns


def read_pandas(path):
    # In Arrow's types: numpy has no null among numbers, and makes them inexact.
    frame = pandas.read_parquet(path, engine="pyarrow", dtype_backend="pyarrow", partitioning=None)
    return pyarrow.Table.from_pandas(frame, preserve_index=False)


def read_arrow_file(path):
    with pyarrow.memory_map(path) as source:
        return pyarrow.ipc.open_file(source).read_all()


def read_duckdb(paths):
    connection = duckdb.connect()
    columns = None
    for path in paths:
        # The directory's name is run=..., which is no column of ours.
        relation = "read_parquet(?, hive_partitioning = false)"
        described = connection.execute(f"DESCRIBE SELECT * FROM {relation}", [path]).fetchall()
        found = [Column(d[0], kind(DUCKDB, d[1]), None) for d in described]
        columns = merge(columns, found)
        for column in columns:
            quoted = '"' + column.name.replace('"', '""') + '"'
            if column.kind == "timestamp":
                quoted = f"epoch_us({quoted})"
            rows = connection.execute(f"SELECT {quoted} FROM {relation}", [path])
            while chunk := rows.fetchmany(10000):
                column.add(value for (value,) in chunk)
    return columns


def read_polars(frames):
    columns = None
    for frame in frames:
        found = [Column(name, kind(POLARS, str(t)), None) for name, t in frame.schema.items()]
        columns = merge(columns, found)
        for column in columns:
            values = frame.get_column(column.name)
            if column.kind == "timestamp":
                values = values.cast(polars.Int64)
            column.add(values.to_list())
    return columns


def read_spark(paths):
    from pyspark.sql import SparkSession, functions

    # One core and one partition a file, so that rows come in the file's order.
    builder = SparkSession.builder.master("local[1]").appName("readers")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.files.maxPartitionBytes": str(1 << 30),
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    columns = None
    for path in paths:
        frame = session.read.parquet("file://" + path)
        if frame.rdd.getNumPartitions() > 1:
            raise SystemExit(f"{path}: Spark reads it in {frame.rdd.getNumPartitions()} pieces, whose order is not said")
        found = [Column(name, kind(SPARK, t), None) for name, t in frame.dtypes]
        columns = merge(columns, found)
        selected = []
        for i, column in enumerate(columns):
            value = functions.col("`" + column.name.replace("`", "``") + "`")
            if column.kind == "timestamp":
                value = functions.unix_micros(value)
            if column.kind.startswith("decimal"):
                # In Python they come by their engineering notation: 1E-10 as 100E-12.
                value = value.cast("string")
            selected.append(value.alias(f"c{i}"))
        for row in frame.select(*selected).toLocalIterator():
            for column, value in zip(columns, row):
                column.add([value])
    version = session.version
    session.stop()
    return columns, version


def check(holds, path, what):
    if not holds:
        raise SystemExit(f"{path}: {what}")


def declared_order(manifest):
    """Returns by what rows are sorted: (column, descending, nulls first)."""
    order = [(name, False, False) for name in manifest["sorted_by"]]
    for i, by in enumerate(manifest.get("sort", [])):
        order[i] = (by["column"], by["order"] == "descending", by["nulls"] == "first")
    return order


def comparable(value):
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):  # NaN is the largest number
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def compare_rows(order, a, b):
    """Returns -1, 0 or 1 for rows with the values a and b of the columns of order."""
    for x, y, (_, descending, nulls_first) in zip(a, b, order):
        if x is None and y is None:
            continue
        if x is None or y is None:
            return -1 if (x is None) == nulls_first else 1
        x, y = comparable(x), comparable(y)
        if x != y:
            return -1 if (x < y) != descending else 1
    return 0


def read_footers(paths, sorted_by):
    """Compares the footers with the values, and returns what they say."""
    groups, columns, last = 0, {}, None
    for path in paths:
        file = pyarrow.parquet.ParquetFile(path)
        # A column of maps has two leaves: NAME.key_value.key and NAME.key_value.value.
        row_groups = [file.metadata.row_group(g) for g in range(file.num_row_groups)]
        names = [file.metadata.schema.column(i).path for i in range(file.metadata.num_columns)]
        coded = [name for i, name in enumerate(names) if name in file.schema_arrow.names and any(g.column(i).has_dictionary_page for g in row_groups)]
        by_dictionary = pyarrow.parquet.ParquetFile(path, read_dictionary=coded)
        tables = [file.read_row_group(g) for g in range(file.num_row_groups)]
        unbounded = {name for name in names if any(has_nan(leaf(table, name)[0]) for table in tables)}
        for g, (group, table) in enumerate(zip(row_groups, tables)):
            groups += 1
            order = [(names[s.column_index], s.descending, s.nulls_first) for s in group.sorting_columns or ()]
            check(order == sorted_by, path, f"row group {g} is sorted by {order}, not by {sorted_by}")
            for row in zip(*(table.column(name).to_pylist() for name, _, _ in sorted_by)):
                check(last is None or compare_rows(sorted_by, last, row) <= 0, path, f"in row group {g}, {row} is behind {last}: not sorted by {sorted_by}")
                last = row
            dictionaries = by_dictionary.read_row_group(g)
            for i, name in enumerate(names):
                chunk, values, nulls = group.column(i), *leaf(table, name)
                seen = columns.setdefault(name, {"bounds": 0, "dictionaries": 0, "encodings": set(), "codecs": set()})
                seen["encodings"].update(chunk.encodings)
                seen["codecs"].add(chunk.compression)
                check_bounds(path, g, name, chunk, values, nulls, seen, name in unbounded)
                if chunk.has_dictionary_page:
                    seen["dictionaries"] += 1
                    check(chunk.dictionary_page_offset < chunk.data_page_offset, path, f"{name} in row group {g}: its dictionary is behind its values")
                    check("RLE_DICTIONARY" in chunk.encodings, path, f"{name} in row group {g}: a dictionary, and encodings {chunk.encodings}")
                if name in coded:
                    read = dictionaries.column(name)
                    check(read.cast(plain(values).type).equals(plain(values)), path, f"{name} in row group {g} has other values by its dictionary")
    for seen in columns.values():
        seen["encodings"], seen["codecs"] = sorted(seen["encodings"]), sorted(seen["codecs"])
    return {"row_groups": groups, "sorted_by": sorted_by, "columns": columns}


def leaf(table, path):
    """Returns the values of a leaf, and how often there is none: for a null, and in maps for an empty one."""
    name, *of_map = path.split(".")
    values = table.column(name)
    if not of_map:
        return values, values.null_count
    check(of_map in (["key_value", "key"], ["key_value", "value"]), path, "maps have other groups")
    maps = values.combine_chunks()
    empty = sum(1 for value in maps.to_pylist() if not value)
    return pyarrow.chunked_array([maps.keys if of_map[1] == "key" else maps.items]), empty


def plain(values):
    """Returns the texts of JSON."""
    if isinstance(values.type, pyarrow.BaseExtensionType):
        return pyarrow.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    return values


def has_nan(values):
    return pyarrow.types.is_floating(values.type) and pyarrow.compute.any(pyarrow.compute.is_nan(values)).as_py() is True


def check_bounds(path, g, name, chunk, values, nulls, seen, unbounded):
    bounds = chunk.statistics
    check(bounds is not None and bounds.has_null_count, path, f"{name} in row group {g} has no statistics")
    check(bounds.null_count == nulls, path, f"{name} in row group {g} has {nulls} nulls, not {bounds.null_count}")
    values = plain(values)
    if values.null_count == len(values):
        check(not bounds.has_min_max, path, f"{name} in row group {g} has bounds and no values")
        return
    if unbounded:
        check(not bounds.has_min_max and chunk.has_column_index != has_nan(values), path, f"{name} in row group {g} has bounds, and the file has NaN")
        return
    check(bounds.has_min_max, path, f"{name} in row group {g} has no bounds")
    seen["bounds"] += 1
    least = pyarrow.compute.min(values).as_py(), pyarrow.compute.max(values).as_py()
    found = bounds.min, bounds.max
    if isinstance(found[0], bytes) and isinstance(least[0], str):  # of JSON
        found = found[0].decode(), found[1].decode()
    if isinstance(least[0], (str, bytes)):  # of long ones the beginning
        least = tuple(found[i] if len(x) > 256 and (found[i] <= x, found[i] >= x)[i] else x for i, x in enumerate(least))
    check(found == least, path, f"{name} in row group {g} is within {least}, not {found}")


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--spark"]):
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        manifest = json.load(f)
    directory = os.path.dirname(os.path.abspath(sys.argv[1]))
    paths = {}
    for f in manifest["files"]:
        paths.setdefault(f["format"], []).append(os.path.join(directory, f["path"]))
    versions = {"pyarrow": pyarrow.__version__, "pandas": pandas.__version__, "duckdb": duckdb.__version__, "polars": polars.__version__}
    read = {}
    if "parquet" in paths:
        read["pyarrow_parquet"] = read_arrow_tables(pyarrow.parquet.ParquetFile(p).read() for p in paths["parquet"])
        read["pandas_parquet"] = read_arrow_tables(read_pandas(p) for p in paths["parquet"])
        read["duckdb_parquet"] = read_duckdb(paths["parquet"])
        read["polars_parquet"] = read_polars(polars.read_parquet(p, glob=False, hive_partitioning=False) for p in paths["parquet"])
        if sys.argv[2:]:
            read["spark_parquet"], versions["spark"] = read_spark(paths["parquet"])
    if "arrow" in paths:
        read["pyarrow_arrow"] = read_arrow_tables(read_arrow_file(p) for p in paths["arrow"])
        read["polars_arrow"] = read_polars(polars.read_ipc(p) for p in paths["arrow"])
    result = {name: {"rows": columns[0].rows, "columns": [c.result() for c in columns]} for name, columns in read.items()}
    if "parquet" in paths:
        result["footers"] = read_footers(paths["parquet"], declared_order(manifest))
    result["versions"] = versions
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
