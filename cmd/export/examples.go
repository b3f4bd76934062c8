package main

// Examples are shown by the --help of each command.
func (*commands) Examples() string {
	return `
export run -c sluice.yaml events
export run -c sluice.yaml --resume events
export run -c sluice.yaml --daemon --wait events
export join -c sluice.yaml views_of_users
export backfill -c sluice.yaml --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z events
export plan -c sluice.yaml events
export derive -c sluice.yaml events
export count -c sluice.yaml --family e events
export list -c sluice.yaml -n 10
export sql --for duckdb ./sluice-export/events | duckdb
export sql -c sluice.yaml s3://bucket/exports/events
export gc -c sluice.yaml --dry-run
export history -c sluice.yaml -n 50 events
export pause -c sluice.yaml events
export cancel -c sluice.yaml events 4f1c2a
export resume -c sluice.yaml events
export backup -c sluice.yaml --keep-runs 7 ./backups
export restore ./backups ./new-data
export verify ./sluice-export/events
export verify ./backups
export copy --from pebble:./sluice-data --to hbase://gw1:9090,gw2:9090
export copy --from hbase://gw1:9090 --to pebble:./new-data --resume
export copy-table -c sluice.yaml --verify events events2
export import -c sluice.yaml ./sluice-export/events events2
export import -c sluice.yaml --as users --time 2026-01-31T00:00:00Z ./users.parquet users
export verify-table -c sluice.yaml --in ./restored events
export version
`
}
