"""Reads a published export with other implementations than ours.

    python readers.py DIR/_manifest.json

prints one JSON object: for pyarrow on the Parquet files, pyarrow on the Arrow
files and DuckDB on the Parquet files (whatever of these the run has) the number
of rows and, for each column, its name, type, nullability where the reader says
it, nulls and checksum. The files are read in the manifest's order. The checksum
is that of Checksum in package jobs/columnar, so equal data has equal sums in
every reader. Versions are in requirements.txt.
"""

import hashlib
import json
import os
import struct
import sys

import duckdb
import pyarrow
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
            if value is None:
                self.nulls += 1
                self.hash.update(b"\0")
                continue
            text = encode(value)
            self.hash.update(b"\1" + struct.pack(">I", len(text)) + text)

    def result(self):
        return {
            "name": self.name,
            "type": self.kind,
            "nullable": self.nullable,
            "nulls": self.nulls,
            "sha256": self.hash.hexdigest(),
        }


def encode(value):
    if isinstance(value, bool):  # before int, of which it is one
        return b"true" if value else b"false"
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, str):
        return value.encode()
    return bytes(value)


# Types by the names that the manifest uses.
ARROW = {
    "string": "string",
    "int64": "int64",
    "double": "float64",
    "bool": "bool",
    "timestamp[us, tz=UTC]": "timestamp",
    "binary": "bytes",
}
DUCKDB = {
    "VARCHAR": "string",
    "BIGINT": "int64",
    "DOUBLE": "float64",
    "BOOLEAN": "bool",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "BLOB": "bytes",
}


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
        found = [Column(f.name, ARROW.get(str(f.type), str(f.type)), f.nullable) for f in table.schema]
        columns = merge(columns, found)
        for column, field in zip(columns, table.schema):
            values = table.column(field.name)
            if column.kind == "timestamp":
                values = values.cast(pyarrow.int64())
            column.add(values.to_pylist())
    return columns


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
        found = [Column(d[0], DUCKDB.get(d[1], d[1]), None) for d in described]
        columns = merge(columns, found)
        for column in columns:
            quoted = '"' + column.name.replace('"', '""') + '"'
            if column.kind == "timestamp":
                quoted = f"epoch_us({quoted})"
            rows = connection.execute(f"SELECT {quoted} FROM {relation}", [path])
            while chunk := rows.fetchmany(10000):
                column.add(value for (value,) in chunk)
    return columns


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        manifest = json.load(f)
    directory = os.path.dirname(os.path.abspath(sys.argv[1]))
    paths = {}
    for f in manifest["files"]:
        paths.setdefault(f["format"], []).append(os.path.join(directory, f["path"]))
    read = {}
    if "parquet" in paths:
        read["pyarrow_parquet"] = read_arrow_tables(pyarrow.parquet.ParquetFile(p).read() for p in paths["parquet"])
        read["duckdb_parquet"] = read_duckdb(paths["parquet"])
    if "arrow" in paths:
        read["pyarrow_arrow"] = read_arrow_tables(read_arrow_file(p) for p in paths["arrow"])
    result = {name: {"rows": columns[0].rows, "columns": [c.result() for c in columns]} for name, columns in read.items()}
    result["versions"] = {"pyarrow": pyarrow.__version__, "duckdb": duckdb.__version__}
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
