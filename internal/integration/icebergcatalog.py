"""Reads a table by the catalog of a daemon with PyIceberg, and prints its rows as JSON.

usage: icebergcatalog.py URI TOKEN TABLE
"""

import json
import sys

from pyiceberg.catalog import load_catalog


def main():
    uri, token, table = sys.argv[1:]
    catalog = load_catalog("lake", type="rest", uri=uri, token=token)
    assert catalog.list_namespaces() == [("sluice",)], catalog.list_namespaces()
    assert catalog.list_tables("sluice") == [("sluice", table)], catalog.list_tables("sluice")
    assert catalog.table_exists("sluice." + table) and not catalog.table_exists("sluice.none")
    rows = catalog.load_table("sluice." + table).scan().to_arrow().to_pylist()
    print("RESULT", json.dumps(sorted([r["key"], r["n"]] for r in rows)))


main()
