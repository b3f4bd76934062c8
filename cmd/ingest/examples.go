package main

// Examples are shown by the --help of each command.
func (*commands) Examples() string {
	return `
ingest run -c sluice.yaml
ingest demo
ingest demo --input access.log --format combined
ingest produce -c sluice.yaml --topic views views.ndjson
ingest produce -c sluice.yaml --topic views --key-field user -
ingest lint -c sluice.yaml
ingest test -c sluice.yaml
ingest explain -c sluice.yaml --sample 20
ingest explain -c sluice.yaml --file access.log
ingest offsets -c sluice.yaml
ingest offsets verify -c sluice.yaml --deep
ingest offsets skip -c sluice.yaml --pipeline views --topic views --partition 3 --from 1200 --to 1260 --reason corrupt
ingest dlq ls -c sluice.yaml --class json --since 2h
ingest dlq show -c sluice.yaml views/3/1234
ingest dlq redrive -c sluice.yaml --dry-run
ingest dlq redrive -c sluice.yaml views/3/1234
ingest dlq purge -c sluice.yaml --before 720h --yes
ingest breaker close -c sluice.yaml views
ingest counters remove -c sluice.yaml --family hour --stop-column 2025110100 page_counts
ingest replay rebuild -c sluice.yaml views
ingest replay rebuild -c sluice.yaml --switch views
ingest version
`
}
