package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"sluice/internal/spelling"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/schedule"
	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// lint checks what the types alone do not say.
func (c *Config) lint(d *decoder) {
	d.noteUnread()
	report := func(path, hint, format string, args ...any) {
		if !d.unread[path] {
			d.problem(d.place(path), path, hint, format, args...)
		}
	}
	c.lintConnections(report)
	c.lintBounds(report)
	c.lintMemory(report)
	c.lintRegistry(report)
	descriptors := c.lintTables(report)
	d.tables = slices.Sorted(maps.Keys(c.Tables))
	find := c.findTable(descriptors)
	c.lintPipelines(d, report, find)
	c.lintJobs(d, report, find)
	c.warnOfColumns(d)
	c.lintJoins(d, report, find)
	c.lintBackups(d, report)
	c.lintGC(d, report)
	c.lintBuckets(d, report)
	c.lintHBase(d, report)
	c.lintFlight(d, report)
	if c.DrainTimeout >= c.Kafka.SessionTimeout {
		report("drain_timeout", "a new owner may begin when the session is over", "drain_timeout (%v) must be shorter than kafka.session_timeout (%v)", c.DrainTimeout, c.Kafka.SessionTimeout)
	}
	if c.DrainTimeout > c.ShutdownTimeout {
		report("drain_timeout", "", "drain_timeout (%v) is longer than shutdown_timeout (%v)", c.DrainTimeout, c.ShutdownTimeout)
	}
}

type reporter func(path, hint, format string, args ...any)

// isAddress reports whether text is the host and port of a server, without a user.
func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	n, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil && host != "" && n > 0 && !strings.Contains(text, "@")
}

// isBearer reports whether token comes out of a request's Authorization as it went in: HTTP
// has no control characters there, and drops blanks at the end.
func isBearer(token string) bool {
	control := strings.ContainsFunc(token, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
	return !control && token == strings.TrimRight(token, " \t")
}

func (c *Config) lintConnections(report reporter) {
	for i, b := range c.Kafka.Brokers {
		for part := range strings.SplitSeq(b, ",") {
			if !isAddress(strings.TrimSpace(part)) {
				report(fmt.Sprintf("kafka.brokers[%d]", i), "write host:port, such as 127.0.0.1:9092", "not the address of a broker")
			}
		}
	}
	if len(c.Kafka.Addresses()) == 0 {
		report("kafka.brokers", "", "kafka.brokers is empty: name at least one broker")
	}
	if c.Memory < 16<<20 {
		report("memory", "", "memory is %v, must be at least 16MiB", c.Memory)
	}
	if !isListen(c.Serve.Listen) {
		report("serve.listen", "write host:port, such as 127.0.0.1:8087", "serve.listen is not an address to listen on")
	}
	if !isBearer(string(c.Serve.Token)) {
		report("serve.token", "", "serve.token ends in a blank or has control characters, which no request can carry")
	}
	for i, h := range c.Serve.AllowedHosts {
		if net.ParseIP(h) == nil && (h == "" || strings.ContainsAny(h, ":/*, ")) {
			report(fmt.Sprintf("serve.allowed_hosts[%d]", i), "write the name alone, such as sluice.example.com, without scheme or port", "%q is no name of a host", h)
		}
	}
	if c.Store.Dir == "" {
		report("store.dir", "", "store.dir is empty: name the data directory")
	}
	c.Kafka.TLS.lint("kafka.tls", report)
	sasl := &c.Kafka.SASL
	if sasl.Mechanism != "none" {
		const hint = "write password: ${VAR}, or ${file:/path}"
		switch {
		case sasl.User == "":
			report("kafka.sasl.user", hint, "%s needs user and password", sasl.Mechanism)
		case sasl.Password == "":
			report("kafka.sasl.password", hint, "%s needs user and password", sasl.Mechanism)
		}
	}
	if sasl.Mechanism == "none" && sasl.User != "" {
		report("kafka.sasl", "add mechanism: scram-sha-512, or another", "there is a user and no mechanism")
	}
	if m := c.Kafka.MaxDecompressed; m != 0 && (m < 1<<20 || m > maxMaxDecompressed) {
		report("kafka.max_decompressed", "", "max_decompressed is %v, must be 1MiB to %v, or 0", m, Size(maxMaxDecompressed))
	}
	if 3*c.Kafka.HeartbeatInterval > c.Kafka.SessionTimeout {
		report("kafka.heartbeat_interval", "", "heartbeat_interval (%v) must be at most a third of session_timeout (%v)", c.Kafka.HeartbeatInterval, c.Kafka.SessionTimeout)
	}
}

// The most that the bounds of a record batch may be.
const (
	maxMaxDecompressed = 4 << 30
	maxMaxBatchBytes   = 1 << 30
)

// lintMemory reports bounds of a record batch that would never be met, as there is no
// memory for one as large.
func (c *Config) lintMemory(report reporter) {
	if c.Memory < 16<<20 {
		return // reported
	}
	stored, unfolded := c.largestBatch(c.Memory)
	check := func(path, key, what string, v, most Size, of func(memory Size) Size) {
		if v > most {
			need := Size(sort.Search(1<<20, func(n int) bool { return of(Size(n)<<20) >= v })) << 20
			report(path, fmt.Sprintf("leave it out, or raise memory to %v", need), "%s is %v, and memory (%v) has %v for one %s", key, v, c.Memory, most, what)
		}
	}
	check("kafka.max_decompressed", "max_decompressed", "record batch", c.Kafka.MaxDecompressed, unfolded, func(m Size) Size { _, n := c.largestBatch(m); return n })
	for _, name := range c.PipelineNames() {
		p, path := c.Pipelines[name], join("pipelines", name)
		check(join(path, "fetch.max_batch_bytes"), "fetch.max_batch_bytes", "record batch", p.Fetch.MaxBatchBytes, stored, func(m Size) Size { n, _ := c.largestBatch(m); return n })
		if p.Decode.Unpacks() {
			check(join(path, "decode.max_bytes"), "decode.max_bytes", "payload", Size(p.Decode.MaxBytes), c.largestPayload(&p, c.Memory), func(m Size) Size { return c.largestPayload(&p, m) })
		}
	}
}

// largestPayload is what a payload of p may unfold to with a memory, in whole MiB; 0 where
// no pipeline unpacks payloads.
func (c *Config) largestPayload(p *Pipeline, m Size) Size {
	budget, err := c.memory(m)
	if err != nil || budget.Unpacked() == nil {
		return 0
	}
	return Size(p.Decode.LargestPayload(budget.Unpacked())) &^ (1<<20 - 1)
}

// largestBatch is kafka.LargestBatch of a memory, in whole MiB.
func (c *Config) largestBatch(m Size) (stored, unfolded Size) {
	budget, err := c.memory(m)
	if err != nil {
		return 0, 0 // none at all
	}
	s, u := kafka.LargestBatch(budget)
	return Size(s) &^ (1<<20 - 1), Size(u) &^ (1<<20 - 1)
}

func (t *TLS) lint(path string, report reporter) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		report(path, "", "cert_file and key_file go together")
	}
	if !t.Enable && (t.CAFile != "" || t.CertFile != "" || t.ServerName != "" || t.InsecureSkipVerify) {
		report(path, "add enable: true", "TLS is configured and not enabled")
	}
}

// lintTables reports what is wrong with the tables and returns the good ones. A
// table that has a mistake gets a descriptor without the attributes at fault, so
// that rules which use it are not reported for it.
func (c *Config) lintTables(report reporter) map[string]*store.TableDescriptor {
	good := map[string]*store.TableDescriptor{}
	for name, t := range c.Tables {
		spec, err := c.tableSpec(name)
		if err == nil {
			good[name] = spec.Descriptor
			continue
		}
		lenient := &store.TableDescriptor{Name: name}
		for family, attributes := range t.Families {
			f := store.NewFamily(family)
			for attribute, value := range attributes {
				path := join(join(join(join("tables", name), "families"), family), attribute)
				if err := f.SetAttribute(attribute, value); err == nil {
					continue
				}
				if known := store.FamilyAttributeNames(); !slices.Contains(known, strings.ToUpper(attribute)) {
					report(path, didYouMean(attribute, known), "unknown attribute %q of a column family", attribute)
				} else {
					var bad error = f.SetAttribute(attribute, value)
					report(path, "", "%s", trimPrefixes(bad.Error()))
				}
			}
			lenient.Families = append(lenient.Families, f)
		}
		good[name] = lenient
		var at *pathError
		if errors.As(err, &at) && !strings.Contains(at.path, ".families.") {
			path := at.path
			if len(t.Families) == 0 && path == join("tables", name) {
				path = join(path, "families") // which may be one that cannot be read
			}
			report(path, "", "%s", trimPrefixes(err.Error()))
		}
	}
	return good
}

// trimPrefixes takes package names off a message: the reader of a configuration
// file knows none.
func trimPrefixes(message string) string {
	for _, prefix := range []string{"store: invalid argument: ", "store: invalid schema: ", "store: ", "region: ", "cell: ", "columnar: ", "jobs: ", "mapping: "} {
		message = strings.TrimPrefix(message, prefix)
	}
	return message
}

func (c *Config) lintPipelines(d *decoder, report reporter, find func(string) *store.TableDescriptor) {
	groups := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Pipelines)) {
		p := c.Pipelines[name]
		path := join("pipelines", name)
		if strings.Contains(name, pipeline.GenerationMark) {
			report(path, "", "the name of a pipeline holds no %s: a rebuild of its counters is named by that", pipeline.GenerationMark)
		}
		if !isName(name) {
			report(path, "", "the name of a pipeline is 1 to %d bytes of printable text, and not . or ..: paths, metrics and rows have it", maxName)
		}
		c.lintTopics(d, report, name, &p)
		if p.Group == "" && d.has(join(path, "group")) {
			report(join(path, "group"), "name a consumer group that no other pipeline has", "group is empty")
		}
		if other, ok := groups[p.Group]; ok && p.Group != "" {
			report(join(path, "group"), "give each pipeline its own group", "pipelines %s and %s share the consumer group %s", other, name, p.Group)
		}
		groups[p.Group] = name
		p.lintPartitions(path, report)
		p.lintBounds(path, report)
		p.lintPolicies(d, path, report)
		c.lintRules(d, path, report, &p, find)
		c.Pipelines[name] = p // with its schema
		p.lintTests(path, report, d.has)
	}
}

// lintTopics checks what a pipeline reads, and where its dead letters go.
func (c *Config) lintTopics(d *decoder, report reporter, name string, p *Pipeline) {
	path := join("pipelines", name)
	if len(p.Topics) == 0 && d.has(join(path, "topics")) {
		report(join(path, "topics"), "", "topics is empty: name at least one")
	}
	seen := map[string]bool{}
	for i, t := range p.Topics {
		at := fmt.Sprintf("%s[%d]", join(path, "topics"), i)
		switch err := kafka.CheckTopicName(t); {
		case err != nil:
			report(at, "", "%v", err)
		case seen[t]:
			report(at, "", "topic %s is named twice", t)
		case t == p.DeadLetters.Topic:
			report(join(path, "dead_letters.topic"), "", "the dead-letter topic %s is read by the same pipeline: refused records would go round for ever", t)
		}
		seen[t] = true
	}
	if t := p.DeadLetters.Topic; t != "" {
		if err := kafka.CheckTopicName(t); err != nil {
			report(join(path, "dead_letters.topic"), "", "%v", err)
		}
		if round := c.deadLettersRound(name); round != nil {
			report(join(path, "dead_letters.topic"), "", "the dead-letter topic %s comes back to this pipeline by way of %s: records that all refuse would go round for ever", t, strings.Join(round, ", "))
		}
	}
}

// lintPartitions checks the partitions that a pipeline is to read.
func (p *Pipeline) lintPartitions(path string, report reporter) {
	if len(p.Partitions) > 0 && p.Assign != "static" {
		report(join(path, "partitions"), "add assign: static", "partitions are named, but the group assigns them")
	}
	for i, n := range p.Partitions {
		at := fmt.Sprintf("%s[%d]", join(path, "partitions"), i)
		switch {
		case n < 0 || n > math.MaxInt32:
			report(at, "", "%d is no partition", n)
		case slices.Contains(p.Partitions[:i], n):
			report(at, "", "partition %d is named twice", n)
		}
	}
}

// lintBounds checks the numbers of a pipeline.
func (p *Pipeline) lintBounds(path string, report reporter) {
	for _, n := range []struct {
		key          string
		v, low, high int64
	}{
		{"in_flight", int64(p.InFlight), 1, 8},
		{"flush.records", int64(p.Flush.Records), 1, 1 << 20},
		{"flush.bytes", int64(p.Flush.Bytes), 1 << 16, 1 << 30},
		{"dead_letters.retries", int64(p.DeadLetters.Retries), 1, 1000},
		{"dead_letters.trip_at", int64(p.DeadLetters.TripAt), 0, 99},
		{"dead_letters.window", int64(p.DeadLetters.Window), 1, 1 << 20},
		{"backfill.lag", int64(p.Backfill.Lag), 0, 1 << 40},
		{"backfill.records", int64(p.Backfill.Records), 1, 1 << 20},
		{"fetch.min_bytes", int64(p.Fetch.MinBytes), 1, 1 << 30},
		{"fetch.max_partition_bytes", int64(p.Fetch.MaxPartitionBytes), 1 << 10, 1 << 30},
		{"fetch.max_bytes", int64(p.Fetch.MaxBytes), 1 << 10, 1 << 30},
		{"fetch.max_batch_bytes", int64(p.Fetch.MaxBatchBytes), 0, maxMaxBatchBytes},
		{"fetch.buffer", int64(p.Fetch.Buffer), 1 << 10, 1 << 40},
	} {
		if n.v < n.low || n.v > n.high {
			report(join(path, n.key), "", "%s is %d, must be %d..%d", n.key, n.v, n.low, n.high)
		}
	}
}

// lintPolicies checks what becomes of records that are refused.
func (p *Pipeline) lintPolicies(d *decoder, path string, report reporter) {
	for _, class := range slices.Sorted(maps.Keys(p.DeadLetters.Policies)) {
		at := join(join(path, "dead_letters.policies"), class)
		if known := pipeline.Classes(); !slices.Contains(known, class) {
			report(at, didYouMean(class, known), "no record is refused with the class %q", class)
		} else if why := p.Spec.Never(class); why != "" {
			d.warn(at, "remove the policy, if it is not one that pipelines share", "this pipeline refuses no record with the class %s: %s", class, why)
		}
		if name := p.DeadLetters.Policies[class]; !slices.Contains(pipeline.PolicyNames(), name) {
			report(at, didYouMean(name, pipeline.PolicyNames()), "not a policy: write dlq, drop, fail or retry")
		}
	}
}

// lintRules compiles the rules of a pipeline, after reading the schema of its records.
func (c *Config) lintRules(d *decoder, path string, report reporter, p *Pipeline, find func(string) *store.TableDescriptor) {
	if err := c.readSchema(&p.Decode); err != nil {
		report(join(path, "decode.schema_file"), "a relative path starts at the configuration file", "%v", err)
	} else if plan, err := mapping.Compile(c.rules(p), find); err != nil {
		d.specErrors(path, err)
	} else {
		for _, h := range plan.Hidden() {
			d.warn(join(path, h.Path), hiddenHint(h.Name), "%s is of the record here, and %s has a field %s, too", h.Name, p.Decode.Format, h.Name)
		}
		for _, u := range plan.Unlike() {
			what, hint := "boolean", fmt.Sprintf(`write %s == "true" or "false"`, u.Field)
			if u.Number {
				what, hint = "number", fmt.Sprintf("write int(%s) or float(%s)", u.Field, u.Field)
			}
			d.warn(join(path, u.Path), hint, "the field %s of %s is a text, which no %s is equal to: %s %s … is %t of every record", u.Field, p.Decode.Format, what, u.Field, u.Operator, u.Operator == "!=")
		}
	}
}

// deadLettersRound returns the other pipelines, in order, through which letters of the one
// with this name come back to it: each reads the dead-letter topic of the one before it. nil
// where they do not.
func (c *Config) deadLettersRound(name string) []string {
	before := map[string]string{} // pipeline → by way of which it was reached first
	queue := []string{name}
	for len(queue) > 0 {
		from := queue[0]
		queue = queue[1:]
		topic := c.Pipelines[from].DeadLetters.Topic
		if topic == "" {
			continue
		}
		if from != name && slices.Contains(c.Pipelines[name].Topics, topic) {
			var round []string
			for ; from != name; from = before[from] {
				round = append(round, from)
			}
			slices.Reverse(round)
			return round
		}
		for _, next := range slices.Sorted(maps.Keys(c.Pipelines)) {
			if _, seen := before[next]; next != name && !seen && slices.Contains(c.Pipelines[next].Topics, topic) {
				before[next] = from
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// maxName bounds the name of a pipeline.
const maxName = 255

// isName reports whether a pipeline can be named so.
func isName(name string) bool {
	other := func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }
	return name != "" && len(name) <= maxName && name != "." && name != ".." && strings.TrimSpace(name) == name && strings.IndexFunc(name, other) < 0
}

func (c *Config) lintJobs(d *decoder, report reporter, find func(string) *store.TableDescriptor) {
	for _, name := range slices.Sorted(maps.Keys(c.Jobs)) {
		spec := c.Jobs[name]
		path := join("jobs", name)
		t := find(spec.Table)
		if t == nil && spec.Table != "" && len(c.Tables) > 0 {
			report(join(path, "table"), didYouMean(spec.Table, slices.Sorted(maps.Keys(c.Tables))), "table %q is not in this file", spec.Table)
		}
		if _, err := jobs.Compile(name, &spec, t); err != nil {
			d.specErrors(path, err)
		}
		if s, at := spec.Incremental, join(path, "incremental"); d.has(at) && s.FullEvery == 0 && s.Hold == 0 && (s.Expired == "" || s.Expired == jobs.IgnoreExpired) && !d.has(join(at, "full_every")) {
			report(at, "write full_every: 7, say, for one full run in 7, or leave incremental out", "full_every is missing: every run would be full")
		}
	}
}

// has reports whether the file has a setting at path.
func (d *decoder) has(path string) bool {
	_, ok := d.places[path]
	return ok
}

// specErrors turns the mistakes that a compiler of another package found into
// problems at the settings below base that they name.
func (d *decoder) specErrors(base string, err error) {
	d.specErrorsBut(base, err, func(string) bool { return false })
}

// specErrorsBut is specErrors without the mistakes at settings that but names.
func (d *decoder) specErrorsBut(base string, err error, but func(path string) bool) {
	var path, message, hint string
	offset := 0
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			d.specErrorsBut(base, inner, but)
		}
		return
	case *mapping.SpecError:
		path, message, hint, offset = e.Path, e.Err.Error(), e.Hint, e.At
	case *columnar.SpecError:
		path, message = e.Path, e.Problem
	case *schedule.SpecError:
		path, message = e.Path, e.Problem
	default:
		if inner := errors.Unwrap(err); inner != nil {
			d.specErrorsBut(base, inner, but)
			return
		}
		message = err.Error()
	}
	if but(path) {
		return
	}
	switch {
	case path == "":
		path = base
	case strings.HasPrefix(path, "["):
		path = base + path
	default:
		path = join(base, path)
	}
	if d.unread[path] {
		return
	}
	at := d.place(path)
	message = trimPrefixes(message)
	if d.has(path) {
		if hint == "" && strings.Contains(message, "unexpected token EOF") {
			hint = d.cutHint(at)
		}
		at = at.within(offset)
	}
	var unknown *mapping.NoTableError
	if errors.As(err, &unknown) {
		if near := spelling.Hint(unknown.Table, d.tables); near != "" {
			hint = near
		}
	}
	// What is not in the file has the place of what is around it, which does not say
	// what "it" is.
	if key := d.absent(path); key != "" && strings.HasPrefix(message, "it is ") {
		message = key + strings.TrimPrefix(message, "it")
	}
	d.problem(at, path, hint, "%s", message)
}

// absent returns what of path is not in the file, from the setting on that place
// returns; "" where the file has all of it, or an element of a list is missing.
func (d *decoder) absent(path string) string {
	at := path
	for !d.has(at) {
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			return path
		}
		at = at[:i]
	}
	key, _ := strings.CutPrefix(path[len(at):], ".")
	if strings.HasPrefix(key, "[") {
		return ""
	}
	return key
}
