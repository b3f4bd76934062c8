"""Reads an Iceberg table as its specification says (Scan Planning, format version 2), by
PyIceberg's reader of metadata and by pyarrow, and prints the rows of every snapshot as JSON.

PyIceberg itself refuses tables with equality deletes.

usage: icebergscan.py OUT JOB
"""

import glob
import json
import os
import sys

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table import StaticTable

FILE_PATH, POS = 2147483546, 2147483545


def read(path):
    """The columns of a file, lists by field id."""
    # The directory is no part of the data, though it says run=….
    table = pq.ParquetFile(path.removeprefix("file://")).read()
    return {int(f.metadata[b"PARQUET:field_id"]): table.column(i).to_pylist() for i, f in enumerate(table.schema)}


def rows(table, snapshot):
    schema, specs = table.schemas()[snapshot.schema_id], table.specs()
    entries = []
    for manifest in snapshot.manifests(table.io):
        for e in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            assert e.status != ManifestEntryStatus.DELETED
            entries.append((e.sequence_number, manifest.partition_spec_id, e.data_file))
    deletes = [(n, spec, f, read(f.file_path)) for n, spec, f in entries if f.content != DataFileContent.DATA]
    for n, spec, f in entries:
        if f.content != DataFileContent.DATA:
            continue
        columns = read(f.file_path)
        partition = dict(zip([p.source_id for p in specs[spec].fields], f.partition))
        ids = [c.field_id for c in schema.fields]
        all_columns = {i: columns[i] if i in columns else [partition[i]] * f.record_count for i in ids}
        shown = [True] * f.record_count
        for m, other, d, gone in deletes:
            applies = not specs[other].fields or (other == spec and d.partition == f.partition)
            if d.content == DataFileContent.EQUALITY_DELETES and n < m and applies:
                assert len(d.equality_ids) == 1
                key = d.equality_ids[0]
                values = set(gone[key])
                lower, upper = (d.lower_bounds or {}).get(key), (d.upper_bounds or {}).get(key)
                for v in values if lower is not None else []:
                    v = v.encode() if isinstance(v, str) else v
                    assert lower <= v <= upper, (lower, v, upper)
                shown = [s and v not in values for s, v in zip(shown, all_columns[key])]
            if d.content == DataFileContent.POSITION_DELETES and n <= m and other == spec and d.partition == f.partition:
                assert gone[POS] == sorted(gone[POS])
                for path, row in zip(gone[FILE_PATH], gone[POS]):
                    if path == f.file_path:
                        shown[row] = False
        for i in range(f.record_count):
            if shown[i]:
                yield [all_columns[c][i] for c in ids]


def main():
    out, job = sys.argv[1:3]
    with open(os.path.join(out, job, "metadata", "version-hint.text")) as f:
        version = f.read()
    assert glob.glob(os.path.join(glob.escape(out), job, "metadata", f"v{version}.metadata.json"))
    table = StaticTable.from_metadata(f"file://{out}/{job}/metadata/v{version}.metadata.json")
    plain = lambda v: v.decode() if isinstance(v, bytes) else v
    print("RESULT", json.dumps([sorted([plain(v) for v in r] for r in rows(table, s)) for s in sorted(table.snapshots(), key=lambda s: s.sequence_number)]))


main()
