"""Reads Iceberg tables with PyIceberg and prints what it found, as JSON.

usage: iceberg.py METADATA [PROPERTY=VALUE ...]
"""

import base64
import datetime
import decimal
import json
import sys

import pyarrow
from pyiceberg.table import StaticTable


def plain(v):
    """A value as JSON: numbers as text, so that none is rounded."""
    if v is None or isinstance(v, (str, bool)):
        return v
    if isinstance(v, bytes):
        return "base64:" + base64.b64encode(v).decode()
    if isinstance(v, datetime.datetime):
        return v.astimezone(datetime.timezone.utc).isoformat()
    if isinstance(v, list):  # a map
        return {k: plain(x) for k, x in v}
    if isinstance(v, (int, float, decimal.Decimal)):
        return str(v)
    raise TypeError(type(v))


def rows(table: pyarrow.Table):
    return sorted(({k: plain(v) for k, v in r.items()} for r in table.to_pylist()), key=lambda r: json.dumps(r, sort_keys=True))


def main():
    table = StaticTable.from_metadata(sys.argv[1], dict(p.split("=", 1) for p in sys.argv[2:]))
    out = {"current": rows(table.scan().to_arrow()), "snapshots": []}
    for s in table.snapshots():
        out["snapshots"].append({
            "run": s.summary["sluice.run-id"],
            "operation": s.summary.operation.value,
            "rows": rows(table.scan(snapshot_id=s.snapshot_id).to_arrow()),
            # What each manifest entry says, deleted ones too, by path.
            "entries": sorted([e.status.name, e.data_file.file_path.rsplit("/run=", 1)[1].split("/", 1)[1], str(e.sequence_number)]
                              for m in s.manifests(table.io) for e in m.fetch_manifest_entry(table.io, discard_deleted=False)),
        })
    out["count"] = table.scan().count()
    out["filtered"] = rows(table.scan(row_filter="key >= 'r4'").to_arrow())
    out["planned"] = len(list(table.scan(row_filter="key >= 'r4'").plan_files()))
    out["order"] = [f.direction.name for f in table.sort_order().fields]
    out["history"] = len(table.history())
    json.dump(out, sys.stdout)


main()
