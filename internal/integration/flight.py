"""Reads a flight in parallel and compares it with the Parquet files of a run.

Usage: flight.py ADDRESS ENDPOINT_FILE JOB DIRECTORY_OF_THE_JOB

It takes the instant, prints OPENED, and goes on when it reads a line: meanwhile the
caller exports the same instant into the directory, and writes to the table.
"""

import glob
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import duckdb
import polars
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq

address, endpoint_file, job, directory = sys.argv[1:]
token = json.load(open(endpoint_file))["token"]
client = flight.connect("grpc://" + address)
options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + token.encode())])
listed = {i.descriptor.path[0].decode(): i for i in client.list_flights(options=options)}
info = client.get_flight_info(flight.FlightDescriptor.for_path(job), options)
assert info.ordered and info.schema == listed[job].schema, info
print("OPENED", flush=True)
sys.stdin.readline()

with ThreadPoolExecutor(8) as pool:
    for _ in range(2):
        parts = list(pool.map(lambda e: client.do_get(e.ticket, options).read_all(), info.endpoints))
        table = pa.concat_tables(parts)
        (run,) = glob.glob(directory + "/run=*")
        manifest = json.load(open(run + "/_manifest.json"))
        files = [run + "/" + f["path"] for f in manifest["files"] if f["format"] == "parquet"]
        want = pa.concat_tables([pq.read_table(f, partitioning=None) for f in files])
        assert table.num_rows == want.num_rows > 0, (table.num_rows, want.num_rows)
        assert table.schema.names == want.schema.names
        for name in want.schema.names:
            got = table[name].cast(want[name].type) if table[name].type != want[name].type else table[name]
            assert got.combine_chunks().equals(want[name].combine_chunks()), name
about = json.loads(info.app_metadata)
assert about["sequence"] == manifest["sequence"] and about.get("offsets", []) == manifest["offsets"], about
rows = [json.loads(e.app_metadata) for e in info.endpoints]
assert [r["part"] for r in rows] == list(range(len(rows)))
assert rows[0]["start_row"] == rows[-1]["stop_row"] == ""
assert [r["stop_row"] for r in rows[:-1]] == [r["start_row"] for r in rows[1:]]
assert polars.from_arrow(table).height == table.num_rows == len(table.to_pandas())
events = table  # which DuckDB finds by its name
assert duckdb.sql("SELECT count(*) FROM events").fetchall() == [(table.num_rows,)]
list(client.do_action(flight.Action("release", info.endpoints[0].ticket.ticket), options))
try:
    client.do_get(info.endpoints[0].ticket, options).read_all()
    raise SystemExit("a released flight was read")
except KeyError as e:
    assert "GetFlightInfo" in str(e), e
print("READ", table.num_rows, len(parts))
