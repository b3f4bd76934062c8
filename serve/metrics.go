package serve

import (
	"errors"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const namespace = "sluice_"

// describe makes a description without the namespace in name.
func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+name, help, labels, nil)
}

// collector turns the status values of Options' functions into metrics when
// Prometheus asks. Nothing is counted here but the server's own requests, so that
// a package's numbers have one home.
type collector struct {
	s *Server
	d *descriptions
}

type descriptions struct {
	build, requests, checkpoints, pipelineReady, unreachable       *prometheus.Desc
	lag, lagSeconds, position, floor, logStart, end, records, lost *prometheus.Desc
	fetchBytes, fetchErrors, rebalances, assigned, generation      *prometheus.Desc
	late, fetchSeconds, flushOps, fenced, backpressure             *prometheus.Desc
	memoryBytes, memoryLimit, unreadable                           *prometheus.Desc
	bufferBytes, bufferLimit, flushSeconds, flushConflicts, pauses *prometheus.Desc
	deadLetters, relayed, relayErrors, outbox, breaker             *prometheus.Desc
	redriven, purged, partitionState                               *prometheus.Desc
	exportRuns, exportRows, exportBytes, exportSeconds, exportLast *prometheus.Desc
	exportTimes, exportNext, exportPaused, exportWorking           *prometheus.Desc
	exportOrdered, exportOrders, exportHeld                        *prometheus.Desc
	flightHeld, flightOpened, flightSending, flightStreams         *prometheus.Desc
	flightRows, flightBytes, flightRefused                         *prometheus.Desc
	exportYielding, exportYielded                                  *prometheus.Desc
	commits, commitEvents, commitSeconds, diskBytes, diskFree      *prometheus.Desc
	backfill, backfills, bulkCommits                               *prometheus.Desc
	memTable, cacheHits, cacheMisses, compactions, writeStalls     *prometheus.Desc
	corruptions, lateIncrements, commitErrors, commitsRefused      *prometheus.Desc
	loopHeld, loopHolds                                            *prometheus.Desc
	rewrites, rewriteRetries, rewrittenKeys                        *prometheus.Desc
	reclaimedKeys, reclaimedBytes, rewriteHold, rewriteHoldMax     *prometheus.Desc
	garbageLooks, garbageLookSeconds, garbageBytes                 *prometheus.Desc
	checkpointsMade, checkpointHold, checkpointHoldMax             *prometheus.Desc
}

func newDescriptions() *descriptions {
	partition := []string{"pipeline", "topic", "partition"}
	return &descriptions{
		build:         describe("build_info", "Version of the running binary; the value is 1.", "version", "commit", "go"),
		requests:      describe("http_requests_total", "HTTP requests answered, by class of status.", "code"),
		checkpoints:   describe("checkpoints", "Checkpoints that are leased."),
		unreadable:    describe("certificates_unreadable", "Certificates, CAs and passwords that have been replaced on disk and cannot be read: connections go on with the ones before."),
		pipelineReady: describe("pipeline_ready", "1 where the pipeline has its partitions, or stands by for them.", "pipeline"),

		lag:        describe("kafka_consumer_lag_records", "Records that are not applied yet, up to the end of what may be read.", partition...),
		lagSeconds: describe("kafka_consumer_lag_seconds", "Age of the oldest record that is not applied, by its timestamp; 0 where all are. Where it is not known, since that was last so; of a partition that is not read, since the end of its log was last looked at.", partition...),
		position:   describe("kafka_position_offset", "Next offset to fetch.", partition...),
		floor:      describe("kafka_floor_offset", "Stored offset: every record before it has had its effect.", partition...),
		logStart:   describe("kafka_log_start_offset", "First offset that Kafka still has.", partition...),
		end:        describe("kafka_end_offset", "End of what may be read.", partition...),
		records:    describe("kafka_records_total", "Records by what became of them when it was their turn: each is in one outcome, and they add up to the offsets.", append(partition, "outcome")...),
		lost:       describe("kafka_records_lost_total", "Offsets that were passed over without having been read: Kafka no longer had them (retention), they were given up by hand (skipped), or the topic was created anew (recreated).", append(partition, "reason")...),

		partitionState: describe("kafka_partition_state", "1 in the state that the partition is in, 0 in the others: starting, running, paused, tripped (its breaker is open), failed (with its pipeline; the other series are as they were last known).", append(partition, "state")...),

		late: describe("late_records_total", "Records of events later than allowed_lateness, which were added all the same.", partition...),

		backfill:     describe("kafka_backfill", "1 while the partition is so far behind that it is applied in bulk.", partition...),
		backfills:    describe("backfills_total", "Times that a partition began to be applied in bulk.", "pipeline"),
		fetchBytes:   describe("kafka_fetch_bytes_total", "Bytes of record batches received, compressed as they came.", "pipeline"),
		fetchErrors:  describe("kafka_fetch_errors_total", "Fetches that failed, by Kafka's error code.", "pipeline", "code"),
		fetchSeconds: describe("kafka_fetch_duration_seconds", "Time from a fetch request to its answer, the wait for records at the broker included.", "pipeline"),
		unreachable:  describe("kafka_unreachable", "1 while the pipeline waits for a broker, as none answers.", "pipeline"),
		rebalances:   describe("kafka_rebalances_total", "Generations of the consumer group joined.", "pipeline"),
		assigned:     describe("kafka_assigned_partitions", "Partitions that this process owns, without those that failed.", "pipeline"),
		generation:   describe("kafka_generation", "Current generation of the consumer group.", "pipeline"),

		bufferBytes:    describe("write_buffer_bytes", "Memory of buffered records, of all pipelines of the process together."),
		bufferLimit:    describe("write_buffer_limit_bytes", "Memory at which nothing more is buffered, of all pipelines of the process together: a part of sluice_memory_limit_bytes."),
		memoryBytes:    describe("memory_bytes", "Memory that the pipelines hold, by part: fetched (and asked for), decoded, unpacked, buffered.", "part"),
		memoryLimit:    describe("memory_limit_bytes", "Memory that all parts never exceed together."),
		flushSeconds:   describe("flush_duration_seconds", "Time from handing a batch to the store to its durable commit.", "pipeline"),
		flushConflicts: describe("flush_conflicts_total", "Batches dropped because the stored offset was another one.", "pipeline"),
		flushOps:       describe("flush_mutations_total", "Changes that were stored, by kind; increments of one counter in one batch are one.", "pipeline", "kind"),
		fenced:         describe("fenced_writes_total", "Batches that were not sent to the store, as the partition had another owner.", "pipeline"),
		backpressure:   describe("backpressure_seconds_total", "Time that partitions read nothing as the store or the memory was busy, all added up.", "pipeline"),
		pauses:         describe("pauses_total", "Times that a partition waited for the store.", "pipeline"),
		deadLetters:    describe("dead_letters_total", "Records refused, by stage and class of error.", "pipeline", "stage", "error_class"),
		relayed:        describe("dead_letters_relayed_total", "Dead letters that the dead-letter topic has taken.", "pipeline"),
		relayErrors:    describe("dead_letters_relay_errors_total", "Times that the dead-letter topic did not take them.", "pipeline"),

		redriven: describe("dead_letters_redriven_total", "Dead letters that had their effect after all; they stay in the outcome dead_letter.", partition...),
		purged:   describe("dead_letters_purged_total", "Dead letters that were removed from the outbox while they were dead; they stay in the outcome dead_letter.", partition...),

		outbox:  describe("dlq_outbox_records", "Records in the outbox that had no effect yet, of the partitions that the process has.", "pipeline"),
		breaker: describe("breaker_open", "1 where a partition waits, as too many of its records could not be applied.", partition...),

		exportRuns:     describe("export_runs_total", "Runs of export jobs, by result.", "export", "result"),
		exportRows:     describe("export_rows_total", "Rows exported.", "export"),
		exportBytes:    describe("export_bytes_total", "Bytes of exported files.", "export"),
		exportSeconds:  describe("export_duration_seconds", "Time of export runs.", "export"),
		exportTimes:    describe("export_scheduled_total", "Times of a job's schedule, by what became of them.", "export", "result"),
		exportNext:     describe("export_next_timestamp_seconds", "Next time of a job's schedule, seconds since the epoch.", "export"),
		exportPaused:   describe("export_paused", "1 while a job's schedule is paused.", "export"),
		exportYielding: describe("export_yielding", "1 while a run of the job by this daemon pauses so that ingest can catch up.", "export"),
		exportYielded:  describe("export_yield_seconds_total", "For how long runs of the job by this daemon have paused so that ingest could catch up.", "export"),
		exportWorking:  describe("export_working", "1 while a scheduled run of the job is at work.", "export"),
		exportOrdered:  describe("export_ordered_total", "Runs that somebody has ordered of a job with a schedule, or made by hand, by cause and by what became of them.", "export", "cause", "result"),
		exportOrders:   describe("export_ordered_pending", "Runs that somebody has ordered and that have not ended.", "export"),
		exportHeld:     describe("export_directory_held_seconds", "For how long a look at the job's directory has gone on; 0 where none does. A disk that does not answer holds it up.", "export"),
		exportLast:     describe("export_last_success_timestamp_seconds", "End of the last good run, seconds since the epoch.", "export"),

		flightHeld:    describe("flight_held", "Flights of the Arrow Flight server that are held, each with an instant of the store."),
		flightOpened:  describe("flight_opened_total", "Flights that were opened."),
		flightSending: describe("flight_sending", "Parts of flights that are being sent."),
		flightStreams: describe("flight_streams_total", "Parts of flights that were sent, by result: ok, cancelled (by the client, or as the flight ended), failed.", "result"),
		flightRows:    describe("flight_rows_total", "Rows sent in flights."),
		flightBytes:   describe("flight_bytes_total", "Bytes of record batches sent in flights."),
		flightRefused: describe("flight_refused_total", "Calls of the Arrow Flight server that were refused, by reason: token, ticket (unknown, or over), job (unknown), flights and streams (as many as may be).", "reason"),

		commits:        describe("store_commits_total", "Commits to disk."),
		bulkCommits:    describe("store_bulk_commits_total", "Commits past the log, as tables of their own."),
		commitEvents:   describe("store_commit_events_total", "Mutations, counters and records committed."),
		commitErrors:   describe("store_commit_errors_total", "Commits that failed."),
		commitsRefused: describe("store_commits_refused_total", "Commits that were not tried, for want of disk space, as memtables cannot be written to the disk, or as it does not answer."),
		commitSeconds:  describe("store_commit_duration_seconds", "Time of a commit, fsync included."),
		diskBytes:      describe("store_disk_bytes", "Disk space of the data directory."),
		diskFree:       describe("store_disk_free_bytes", "Free space of its file system."),
		memTable:       describe("store_mem_table_bytes", "Memory of memtables."),
		cacheHits:      describe("store_cache_hits_total", "Blocks found in the cache."),
		cacheMisses:    describe("store_cache_misses_total", "Blocks read from disk."),
		compactions:    describe("store_compactions_total", "Compactions finished."),
		writeStalls:    describe("store_write_stalls_total", "Times that writes waited for compactions."),
		corruptions:    describe("store_corruptions_total", "Reads of stored bytes that failed their checksum."),

		lateIncrements: describe("store_late_increments_total", "Increments of counters that were left out, because their family's TTL had passed."),

		loopHeld:  describe("store_loop_held_seconds", "For how long the commit loop has been at the commit, or what else it does; 0 where it is idle. Nothing else is committed meanwhile."),
		loopHolds: describe("store_loop_hold_duration_seconds", "Time that the commit loop was held for anything but commits, by kind.", "kind"),

		rewrites:           describe("store_rewrites_total", "Spans replaced to drop what no read can see."),
		rewriteRetries:     describe("store_rewrite_retries_total", "Rewrites begun again, because too much was written meanwhile."),
		rewrittenKeys:      describe("store_rewritten_keys_total", "Keys that rewrites have read."),
		reclaimedKeys:      describe("store_reclaimed_keys_total", "Keys that rewrites have left out."),
		reclaimedBytes:     describe("store_reclaimed_bytes_total", "Their keys and values, not compressed."),
		rewriteHold:        describe("store_rewrite_hold_seconds_total", "Time that commits waited for the replacement of spans."),
		rewriteHoldMax:     describe("store_rewrite_hold_max_seconds", "The longest of those waits."),
		checkpointsMade:    describe("store_checkpoints_total", "Checkpoints that were made for exports and backups."),
		checkpointHold:     describe("store_checkpoint_hold_seconds_total", "Time that commits waited for checkpoints."),
		checkpointHoldMax:  describe("store_checkpoint_hold_max_seconds", "The longest of those waits for a checkpoint."),
		garbageLooks:       describe("store_garbage_looks_total", "Times that the store looked for garbage."),
		garbageLookSeconds: describe("store_garbage_look_seconds_total", "Time that it took, rewriting included."),
		garbageBytes:       describe("store_garbage_bytes", "Garbage on disk, as the last look has estimated, that is not worth a rewrite yet."),
	}
}

// metricsHandler makes /metrics. The registry is the server's own: no globals.
func (s *Server) metricsHandler() (http.Handler, error) {
	r := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{s: s, d: newDescriptions()},
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorLog: promLog{s}}), nil
}

// promLog passes promhttp's errors on. That who has asked is gone is none of the daemon's.
type promLog struct{ s *Server }

func (l promLog) Println(v ...any) {
	for _, x := range v {
		var broken *net.OpError
		if err, ok := x.(error); ok && errors.As(err, &broken) {
			l.s.o.Logger.Debug("metrics were not sent", "err", err)
			return
		}
	}
	l.s.o.Logger.Error("metrics cannot be gathered", "err", v)
}

// Describe sends nothing: an unchecked collector, as the series depend on the
// topics.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	e := emitter{ch}
	c.server(e)
	if f := c.s.o.Pipelines; f != nil {
		for _, p := range f() {
			c.pipeline(e, &p)
		}
	}
	if f := c.s.o.Exports; f != nil {
		for _, x := range f() {
			c.export(e, &x)
		}
	}
	if f := c.s.o.Unreadable; f != nil {
		e.gauge(c.d.unreadable, float64(f()))
	}
	if f := c.s.o.Flight; f != nil {
		c.flight(e, f())
	}
	if f := c.s.o.Memory; f != nil {
		m := f()
		e.gauge(c.d.memoryLimit, float64(m.Limit))
		for _, p := range m.Parts {
			e.gauge(c.d.memoryBytes, float64(p.Bytes), p.Part)
			if p.Part == "buffered" {
				e.gauge(c.d.bufferBytes, float64(p.Bytes))
				e.gauge(c.d.bufferLimit, float64(p.Limit))
			}
		}
	}
	if f := c.s.o.StoreStatus; f != nil {
		st := f()
		c.store(e, &st)
	}
}

const (
	// freeAge is how old what is known of the free space may be.
	freeAge = time.Second
	// freePatience is how long it is waited for: file systems of a network, and some disks,
	// may not say for hours.
	freePatience = 2 * time.Second
)

type emitter struct{ ch chan<- prometheus.Metric }

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) counter(d *prometheus.Desc, v float64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// histogram emits h, unless nobody has filled it in.
func (e emitter) histogram(d *prometheus.Desc, h *Histogram, labels ...string) {
	if len(h.Bounds) == 0 {
		return
	}
	buckets := make(map[float64]uint64, len(h.Bounds))
	for i, bound := range h.Bounds {
		if i < len(h.Counts) {
			buckets[bound] = h.Counts[i]
		}
	}
	e.ch <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum, buckets, labels...)
}

func (c *collector) server(e emitter) {
	v := c.s.o.Version
	if v.Go == "" {
		v.Go = runtime.Version()
	}
	e.gauge(c.d.build, 1, v.Version, v.Commit, v.Go)
	for class := range c.s.requests {
		if class > 0 {
			e.counter(c.d.requests, float64(c.s.requests[class].Load()), strconv.Itoa(class)+"xx")
		}
	}
	leased := 0
	if c.s.checkpoints != nil {
		leased = len(c.s.checkpoints.List())
	}
	e.gauge(c.d.checkpoints, float64(leased))
	if c.s.o.Dir != "" {
		free := c.s.free.Ask(freeAge, freePatience, func() int64 { return c.s.diskFree(c.s.o.Dir) })
		if free >= 0 && c.s.free.Known() {
			e.gauge(c.d.diskFree, float64(free))
		}
	}
}

func (c *collector) pipeline(e emitter, p *PipelineStatus) {
	d := c.d
	flag := func(desc *prometheus.Desc, on bool, labels ...string) {
		v := 0.0
		if on {
			v = 1
		}
		e.gauge(desc, v, labels...)
	}
	flag(d.pipelineReady, p.Ready, p.Name)
	flag(d.unreachable, p.Unreachable, p.Name)
	dead, owned := int64(0), 0
	for i := range p.Partitions {
		t := &p.Partitions[i]
		l := []string{p.Name, t.Topic, strconv.Itoa(int(t.Partition))}
		for _, state := range PartitionStates() {
			flag(d.partitionState, state == t.State, append(l, state)...)
		}
		if t.State != "failed" {
			owned++
		}
		age := 0.0
		if t.Since > 0 {
			age = max(0, c.s.o.Now().Sub(time.UnixMilli(t.Since)).Seconds())
		}
		e.gauge(d.lagSeconds, age, l...)
		if !t.Begun {
			continue // zeroes would be taken for counters that were reset
		}
		e.gauge(d.lag, float64(max(0, t.End-t.Floor)), l...)
		e.gauge(d.position, float64(t.Position), l...)
		e.gauge(d.floor, float64(t.Floor), l...)
		e.gauge(d.logStart, float64(t.LogStart), l...)
		e.gauge(d.end, float64(t.End), l...)
		flag(d.backfill, t.Backfill, l...)
		for _, o := range []struct {
			outcome string
			n       int64
		}{{"applied", t.Applied}, {"filtered", t.Filtered}, {"duplicate", t.Duplicate}, {"unmet", t.Unmet}, {"dead_letter", t.Dead}, {"dropped", t.Dropped}, {"control", t.Control}, {"aborted", t.Aborted}} {
			e.counter(d.records, float64(o.n), append(l, o.outcome)...)
		}
		e.counter(d.late, float64(t.Late), l...)
		e.counter(d.redriven, float64(t.Redriven), l...)
		e.counter(d.purged, float64(t.Purged), l...)
		open := 0.0
		if t.Tripped != "" {
			open = 1
		}
		e.gauge(d.breaker, open, l...)
		dead += t.Dead - t.Redriven - t.Purged
		for reason, n := range t.Lost {
			e.counter(d.lost, float64(n), append(l, reason)...)
		}
	}
	e.counter(d.fetchBytes, float64(p.FetchBytes), p.Name)
	for code, n := range p.FetchErrors {
		e.counter(d.fetchErrors, float64(n), p.Name, code)
	}
	e.histogram(d.fetchSeconds, &p.FetchSeconds, p.Name)
	e.counter(d.rebalances, float64(p.Rebalances), p.Name)
	e.gauge(d.assigned, float64(owned), p.Name)
	e.gauge(d.generation, float64(p.Generation), p.Name)
	e.counter(d.pauses, float64(p.Pauses), p.Name)
	e.counter(d.backfills, float64(p.Backfills), p.Name)
	e.histogram(d.flushSeconds, &p.FlushSeconds, p.Name)
	e.counter(d.flushConflicts, float64(p.FlushConflicts), p.Name)
	e.counter(d.fenced, float64(p.FencedWrites), p.Name)
	e.counter(d.backpressure, p.BackpressureSeconds, p.Name)
	for kind, n := range p.FlushOps {
		e.counter(d.flushOps, float64(n), p.Name, kind)
	}
	for _, dl := range p.DeadLetters {
		e.counter(d.deadLetters, float64(dl.Count), p.Name, dl.Stage, dl.Class)
	}
	e.gauge(d.outbox, float64(dead), p.Name)
	e.counter(d.relayed, float64(p.Relayed), p.Name)
	e.counter(d.relayErrors, float64(p.RelayErrors), p.Name)
}

func (c *collector) export(e emitter, x *ExportStatus) {
	for result, n := range x.Runs {
		e.counter(c.d.exportRuns, float64(n), x.Name, result)
	}
	e.counter(c.d.exportRows, float64(x.Rows), x.Name)
	e.counter(c.d.exportBytes, float64(x.Bytes), x.Name)
	e.histogram(c.d.exportSeconds, &x.Seconds, x.Name)
	e.gauge(c.d.exportHeld, x.DirectoryHeldSeconds, x.Name)
	flag := func(d *prometheus.Desc, on bool) {
		v := 0.0
		if on {
			v = 1
		}
		e.gauge(d, v, x.Name)
	}
	flag(c.d.exportYielding, x.Yielding != "")
	e.counter(c.d.exportYielded, x.YieldSeconds, x.Name)
	if !x.LastSuccess.IsZero() {
		e.gauge(c.d.exportLast, float64(x.LastSuccess.UnixMilli())/1000, x.Name)
	}
	if x.Schedule == nil {
		return
	}
	for result, n := range x.Schedule.Results {
		e.counter(c.d.exportTimes, float64(n), x.Name, result)
	}
	if len(x.Schedule.Next) > 0 {
		e.gauge(c.d.exportNext, float64(x.Schedule.Next[0].Unix()), x.Name)
	}
	pending := int64(0)
	for i := range x.Schedule.Orders {
		pending += x.Schedule.Orders[i].Times - x.Schedule.Orders[i].Ended
	}
	e.gauge(c.d.exportOrders, float64(pending), x.Name)
	for cause, results := range x.Schedule.Ordered {
		for result, n := range results {
			e.counter(c.d.exportOrdered, float64(n), x.Name, cause, result)
		}
	}
	flag(c.d.exportPaused, x.Schedule.Paused)
	flag(c.d.exportWorking, !x.Schedule.Working.IsZero())
}

func (c *collector) flight(e emitter, f FlightStatus) {
	e.gauge(c.d.flightHeld, float64(f.Held))
	e.counter(c.d.flightOpened, float64(f.Opened))
	e.gauge(c.d.flightSending, float64(f.Sending))
	for result, n := range f.Streams {
		e.counter(c.d.flightStreams, float64(n), result)
	}
	e.counter(c.d.flightRows, float64(f.Rows))
	e.counter(c.d.flightBytes, float64(f.Bytes))
	for reason, n := range f.Refused {
		e.counter(c.d.flightRefused, float64(n), reason)
	}
}

func (c *collector) store(e emitter, s *StoreStatus) {
	d := c.d
	e.counter(d.commits, float64(s.Commits))
	e.counter(d.bulkCommits, float64(s.BulkCommits))
	e.counter(d.commitEvents, float64(s.CommitEvents))
	e.counter(d.commitErrors, float64(s.CommitErrors))
	e.counter(d.commitsRefused, float64(s.CommitsRefused))
	e.histogram(d.commitSeconds, &s.CommitSeconds)
	e.gauge(d.diskBytes, float64(s.DiskBytes))
	e.gauge(d.memTable, float64(s.MemTableBytes))
	e.counter(d.cacheHits, float64(s.CacheHits))
	e.counter(d.cacheMisses, float64(s.CacheMisses))
	e.counter(d.compactions, float64(s.Compactions))
	e.counter(d.writeStalls, float64(s.WriteStalls))
	e.counter(d.corruptions, float64(s.Corruptions))
	e.counter(d.lateIncrements, float64(s.LateIncrements))
	e.gauge(d.loopHeld, s.LoopHeldSeconds)
	for kind, h := range s.LoopHolds {
		e.histogram(d.loopHolds, &h, kind)
	}
	r := &s.Rewrites
	e.counter(d.rewrites, float64(r.Spans))
	e.counter(d.rewriteRetries, float64(r.Retries))
	e.counter(d.rewrittenKeys, float64(r.Keys))
	e.counter(d.reclaimedKeys, float64(r.ReclaimedKeys))
	e.counter(d.reclaimedBytes, float64(r.ReclaimedBytes))
	e.counter(d.rewriteHold, r.HoldSeconds)
	e.gauge(d.rewriteHoldMax, r.HoldMaxSeconds)
	e.counter(d.checkpointsMade, float64(s.Checkpoints.Made))
	e.counter(d.checkpointHold, s.Checkpoints.HoldSeconds)
	e.gauge(d.checkpointHoldMax, s.Checkpoints.HoldMaxSeconds)
	e.counter(d.garbageLooks, float64(r.Looks))
	e.counter(d.garbageLookSeconds, r.LookSeconds)
	e.gauge(d.garbageBytes, float64(r.GarbageBytes))
}
