// Package config reads the one YAML file that configures Sluice, finds every
// mistake in it at once, and turns it into the Options of the other packages.
//
// The file is strict: an unknown key, a key given twice, a value of the wrong
// type and a rule that does not compile are Problems with line, column and,
// where one is near, the name that was meant. ${VAR}, ${VAR:-default},
// ${VAR:?message} and ${file:/path} bring in what does not belong into a file;
// see docs/config.md, which is generated from the types of this package.
//
// A Config is plain data. It is safe for concurrent reading and belongs to
// whoever loaded it. The package is also where a data directory is opened
// (OpenEngine, OpenStore), because it alone may know every storage engine; it
// reads the environment only through the function it is given, starts no
// goroutines of its own and keeps nothing.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"time"

	"github.com/goccy/go-yaml"

	"sluice/jobs"
	"sluice/pipeline"
	"sluice/pipeline/decode"
	"sluice/pipeline/mapping"
)

// Config is a whole file.
type Config struct {
	// Store is where tables are kept.
	Store Store `yaml:"store"`
	// Kafka is how to reach the brokers; all pipelines share it.
	Kafka Kafka `yaml:"kafka"`
	// SchemaRegistry is where the schemas of payloads are, for pipelines whose
	// decode.framing is confluent.
	SchemaRegistry SchemaRegistry `yaml:"schema_registry"`
	// Serve is the HTTP server of the daemon.
	Serve Serve `yaml:"serve"`
	// Flight is the Arrow Flight server of the daemon, from which the rows of export
	// jobs are read without files: docs/flight.md.
	Flight Flight `yaml:"flight"`
	// Tables are created when they do not exist yet. A table that exists is
	// never altered: a difference is an error that names it. A name that ends
	// with * is a template: of it, pipelines create the tables that records need
	// whose names begin so, such as events_* for tables by day. Those that it made
	// are not compared with it: alter them where rules write a family that is new.
	Tables map[string]Table `yaml:"tables"`
	// Pipelines read topics and write tables, by name. The name is part of the
	// stored offsets: a renamed pipeline starts anew.
	Pipelines map[string]Pipeline `yaml:"pipelines"`
	// Jobs export tables into files, by name.
	Jobs map[string]jobs.Spec `yaml:"jobs"`
	// Joins join what two jobs export, or published exports, by name. No join
	// has the name of a job.
	Joins map[string]jobs.JoinSpec `yaml:"joins"`
	// Backups are copies of the whole store that the daemon makes by a schedule, by
	// name; of engine pebble. No backup has the name of a job or a join.
	Backups map[string]jobs.BackupSpec `yaml:"backups"`
	// GC has the daemon tidy up by a schedule.
	GC GC `yaml:"gc,omitempty"`
	// S3 is where the buckets are of jobs, joins and backups whose out is s3://BUCKET/PREFIX.
	S3 S3 `yaml:"s3"`
	// ShutdownTimeout bounds the whole shutdown after the first SIGTERM; what
	// is not done by then is given up and read again at the next start.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" default:"30s"`
	// DrainTimeout bounds, at the end and when a partition moves to another
	// process, the wait for the commits of what is buffered. It is shorter
	// than kafka.session_timeout; 0 does not wait.
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"5s"`
	// Memory bounds what all pipelines together hold of records: a sixth is
	// for what is fetched ahead, a sixth for what that unfolds to, and the rest
	// for what it becomes until the store has it. At the bound fetching pauses.
	// A record batch that takes more than a quarter of it as it is stored, or
	// more than half of it decoded, pauses its partition with an error. Where a
	// pipeline has decode.compression, or framing container, another sixth is for what
	// its payloads unfold to; then five twelfths of memory is the most that a batch takes
	// decoded.
	Memory Size `yaml:"memory" default:"512MiB"`
	// Log is what the process writes to standard error.
	Log Log `yaml:"log"`

	file    string
	places  map[string]position
	secrets map[string]string // of those that are in files, by path, the references

	interpolate func(text string) (string, error)
	// renewed is shared by the copies of a Config.
	renewed *Renewed

	warnings Problems
}

// Store is where tables are kept.
type Store struct {
	// Engine is the storage engine: pebble keeps tables in a directory of this
	// machine; mem keeps them in the memory of one process, for trials of the
	// shell, and ingest run takes no pipelines with it; hbase is a real HBase,
	// which several daemons may share; docs/guarantees.md says what is weaker
	// there.
	Engine string `yaml:"engine" default:"pebble" values:"pebble|mem|hbase"`
	// HBase is how to reach an HBase, for engine hbase.
	HBase HBase `yaml:"hbase"`
	// Dir is the data directory. One process at a time has it open; others
	// work through that process.
	Dir string `yaml:"dir" default:"./sluice-data"`
	// Cache is the size of the block cache. Scans of a process
	// of their own, as those of export run, and scheduled runs have 8MiB at most.
	Cache Size `yaml:"cache" default:"256MiB"`
	// MemTable is the size of one memtable, 1MiB to 2GiB; up to four exist. With less than
	// four times the bytes of the largest commits, 20,000 events or so, ingest slows down.
	MemTable Size `yaml:"mem_table" default:"64MiB"`
	// MinFree is the free disk space below which ingest pauses.
	MinFree Size `yaml:"min_free" default:"128MiB"`
	// Sync says when an acknowledged commit is on disk: commits = before it is
	// acknowledged; never = when the operating system likes, so that a crash
	// loses the newest commits and ingest reads their records again.
	Sync string `yaml:"sync" default:"commits" values:"commits|never"`
	// CounterCache is how many counters are kept in memory, about 200 bytes
	// each.
	CounterCache int `yaml:"counter_cache" default:"500000"`
	// RewriteInterval is how often the store looks for what has expired, was
	// overwritten or deleted, to give its space back, 1s at least; 0 = only when
	// asked (major_compact).
	RewriteInterval time.Duration `yaml:"rewrite_interval" default:"15m"`
	// RewriteRate is how many keys a second it rewrites by itself at most; 0 =
	// no bound.
	RewriteRate int `yaml:"rewrite_rate" default:"1000000"`
	// RegionInterval is how often the daemon looks whether regions are to be
	// split or merged, by their table's SPLIT_POLICY and
	// NORMALIZATION_ENABLED, and which of them are hot, every 1s at most; 0 = never.
	RegionInterval time.Duration `yaml:"region_interval" default:"5m"`
}

// HBase is how to reach an HBase.
type HBase struct {
	// Gateways are host:port addresses of HBase's Thrift2 gateways, of one HBase.
	// Calls go to those that answer. None = 127.0.0.1:9090, one beside each process.
	Gateways []string `yaml:"gateways"`
	// Framed says that the gateways run with framed transport (-f). They garble
	// split keys and attributes of tables then, so that those are not made.
	Framed bool `yaml:"framed"`
	// TLS encrypts the connections.
	TLS TLS `yaml:"tls"`
	// Connections bounds how many are open.
	Connections int `yaml:"connections" default:"16"`
	// CallTimeout bounds a call and its answer; HBase answers late while
	// regions move. A change of a schema or a namespace has five minutes, a scan
	// that finds no row for long up to 16.
	CallTimeout time.Duration `yaml:"call_timeout" default:"1m"`
	// RetryTimeout is for how long a call that may be repeated is tried.
	RetryTimeout time.Duration `yaml:"retry_timeout" default:"2m"`
	// CounterCache is of how many counters the newest cells are kept in memory, about 200
	// bytes each, so that they need not be read before they are written.
	CounterCache int `yaml:"counter_cache" default:"200000"`
	// MaxCell is the largest cell, key included, that the gateways send: their
	// hbase.client.keyvalue.maxsize. 16 KiB at least.
	MaxCell Size `yaml:"max_cell" default:"10MiB"`
	// MaxFrame is the largest request that framed gateways take, which end the
	// connection at a larger one: their
	// hbase.regionserver.thrift.framed.max_frame_size_in_mb. 16 KiB at least.
	MaxFrame Size `yaml:"max_frame" default:"2MiB"`
}

// Kafka is how to reach the brokers.
type Kafka struct {
	// Brokers are host:port addresses, one of which is enough to find the
	// others. A value may hold several with commas between them.
	Brokers []string `yaml:"brokers" default:"127.0.0.1:9092"`
	// ClientID names this process to the brokers.
	ClientID string `yaml:"client_id" default:"sluice"`
	// TLS encrypts the connections.
	TLS TLS `yaml:"tls"`
	// SASL authenticates to the brokers.
	SASL SASL `yaml:"sasl"`
	// Rack is where this process runs, as the brokers' broker.rack: partitions
	// with a replica there are fetched from it, where the brokers'
	// replica.selector.class allows it. Empty fetches from leaders.
	Rack string `yaml:"rack"`
	// MaxDecompressed is the most memory that one record batch may take,
	// decompressed, with its records and headers. A larger one stops its
	// partition with an error: it may be a bomb. 0 = all that memory has for
	// one, half of it; a bound of one's own must be below that.
	MaxDecompressed Size `yaml:"max_decompressed" default:"0"`
	// DialTimeout bounds the making of a connection. It is two fifths of RequestTimeout at
	// most.
	DialTimeout time.Duration `yaml:"dial_timeout" default:"3s"`
	// RequestTimeout bounds a request and its answer.
	RequestTimeout time.Duration `yaml:"request_timeout" default:"10s"`
	// StartTimeout is how long to wait, at the start, for the topics, and the partitions of
	// static assignments, to exist once a broker answers; a pipeline waits for its own as
	// long as another one runs.
	StartTimeout time.Duration `yaml:"start_timeout" default:"30s"`
	// ExitIfUnreachable ends the daemon with status 69 where no broker answers
	// within start_timeout of the start. Otherwise it waits for one.
	ExitIfUnreachable bool `yaml:"exit_if_unreachable"`
	// SessionTimeout is how long the group waits for a dead member.
	SessionTimeout time.Duration `yaml:"session_timeout" default:"10s"`
	// HeartbeatInterval is how often a member says that it lives.
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval" default:"2s"`
	// RebalanceTimeout is how long the group waits for members to rejoin.
	RebalanceTimeout time.Duration `yaml:"rebalance_timeout" default:"30s"`
}

// TLS encrypts connections.
type TLS struct {
	// Enable turns TLS on.
	Enable bool `yaml:"enable"`
	// CAFile holds the certificates to trust, PEM, read again where it has changed when
	// a connection is made; empty = the system's.
	CAFile string `yaml:"ca_file"`
	// CertFile is the client's certificate, PEM; both files are read again
	// where they have changed when a connection is made.
	CertFile string `yaml:"cert_file"`
	// KeyFile is the client's key, PEM.
	KeyFile string `yaml:"key_file"`
	// ServerName is the name to expect in the server's certificate; empty =
	// the host that was dialled.
	ServerName string `yaml:"server_name"`
	// InsecureSkipVerify accepts any certificate. For trials only.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

// SASL authenticates to the brokers.
type SASL struct {
	// Mechanism is the way to authenticate; none turns SASL off.
	Mechanism string `yaml:"mechanism" default:"none" values:"none|plain|scram-sha-256|scram-sha-512"`
	// User is the name to authenticate as.
	User string `yaml:"user"`
	// Password is never printed. Write ${VAR} or ${file:/path}, which is read again when a
	// connection is authenticated.
	Password Secret `yaml:"password"`
}

// Serve is the HTTP server of the daemon.
type Serve struct {
	// Listen is the host:port to listen on; port 0 takes a free one. An
	// address beyond loopback is reachable for everyone who can route to it:
	// set a token that you know then.
	Listen string `yaml:"listen" default:"127.0.0.1:8087"`
	// Token is the bearer token that /api asks for; empty = a random one that
	// the tools read from the data directory. It is never printed.
	Token Secret `yaml:"token"`
	// AllowedHosts are names, beside localhost and addresses, that a request
	// may carry in its Host header: the names that Prometheus or a proxy uses.
	AllowedHosts []string `yaml:"allowed_hosts"`
}

// Pipeline reads topics and writes tables.
type Pipeline struct {
	// Topics are the topics to read.
	Topics []string `yaml:"topics" required:"true"`
	// Group is the consumer group, of this pipeline only.
	Group string `yaml:"group" required:"true"`
	// Assign says who decides which partitions this process reads: the group,
	// or static, which reads partitions without membership in it. Nobody takes
	// over from a static process; two of them with all partitions and a data
	// directory each are replicas. The offsets are shown in the group's name.
	Assign string `yaml:"assign" default:"group" values:"group|static"`
	// Partitions to read of every topic, with assign: static; empty = all.
	Partitions []int `yaml:"partitions"`
	// Start is where to begin on a partition without a stored offset:
	// earliest, latest, committed (the offset that the group has committed to
	// Kafka) or a time such as 2026-01-31T00:00:00Z.
	Start Start `yaml:"start" default:"earliest"`

	mapping.Spec `yaml:",inline"`

	// DeadLetters is where records go that cannot be decoded, mapped or
	// stored. They are in the store's outbox in any case.
	DeadLetters DeadLetters `yaml:"dead_letters"`
	// Flush says when a batch is full.
	Flush Flush `yaml:"flush"`
	// Backfill says when a partition is so far behind that it is applied in
	// bulk.
	Backfill Backfill `yaml:"backfill"`
	// Fetch is how records are asked for.
	Fetch Fetch `yaml:"fetch"`
	// InFlight is how many batches of a partition may wait for their commit.
	InFlight int `yaml:"in_flight" default:"2"`
	// OnDataLoss says what to do when Kafka no longer has the stored offset:
	// fail stops the pipeline; skip goes on at the first offset that exists
	// and counts the lost ones.
	OnDataLoss string `yaml:"on_data_loss" default:"fail" values:"fail|skip"`
	// OnTopicChange says what to do when the topic was deleted and created
	// anew: fail stops the pipeline; new_incarnation keeps what was applied and
	// reads the new topic from its first record, whatever start says. What the old
	// one had unread is lost, and counted as far as its end was seen.
	OnTopicChange string `yaml:"on_topic_change" default:"fail" values:"fail|new_incarnation"`
	// Tests are records and what the rules must make of them.
	Tests []MappingTest `yaml:"tests"`
}

// DeadLetters is where refused records go.
type DeadLetters struct {
	// Topic receives refused records, at least once, with headers that say
	// why; empty = they stay in the outbox only.
	Topic string `yaml:"topic"`
	// Policies say what becomes of a refused record, by the class of its error,
	// or by its stage (decode, map or store); a class goes before its stage: dlq
	// keeps it, drop counts it and keeps nothing, fail stops the pipeline at it,
	// retry pauses the partition and tries again before it keeps it. What is not
	// named is kept, but read_only_table: such records wait until their table, which
	// is READONLY, takes writes again, unless this class itself is named.
	Policies map[string]string `yaml:"policies"`
	// Retries is how often retry tries again, at intervals that double from
	// 100ms to 5s.
	Retries int `yaml:"retries" default:"10"`
	// TripAt is a percentage of Window, 1 to 99: where more records than that
	// are refused, the partition pauses rather than to fill the outbox; 0 = never.
	TripAt int `yaml:"trip_at" default:"50"`
	// Window is how many offsets of a partition TripAt is about.
	Window int `yaml:"window" default:"10000"`
	// CloseAfter is how long such a pause is. Then a tenth of Window is tried: where
	// TripAt of that is refused, too, the partition pauses again. 0 = until the
	// daemon is started again, or ingest breaker close.
	CloseAfter time.Duration `yaml:"close_after"`
}

// rules returns the rules of p. Late events are refused where a policy is for them, and
// else counted in. What a payload may unfold to is what memory has for one, at most.
func (c *Config) rules(p *Pipeline) *mapping.Spec {
	s := p.Spec
	if most := c.largestPayload(p, c.Memory); s.Decode.Unpacks() && s.Decode.MaxBytes == 0 && most < decode.DefaultMaxBytes {
		s.Decode.MaxBytes = int(most)
	}
	_, s.EventTime.RefuseLate = p.DeadLetters.Policies["late"]
	return &s
}

// poison returns the pipeline's option. The policies are checked: a name that is
// none counts as dlq here.
func (d *DeadLetters) poison() pipeline.Poison {
	p := pipeline.Poison{Retries: d.Retries, TripAt: d.TripAt, Window: d.Window, CloseAfter: d.CloseAfter, Policies: map[string]pipeline.Policy{}}
	for class, name := range d.Policies {
		p.Policies[class], _ = pipeline.ParsePolicy(name)
	}
	return p
}

// Flush says when a batch is full. Whichever comes first.
type Flush struct {
	// Records is the most records of a batch.
	Records int `yaml:"records" default:"20000"`
	// Bytes is the most memory of a batch.
	Bytes Size `yaml:"bytes" default:"32MiB"`
	// Age is how long a record waits at most behind a slow commit.
	Age time.Duration `yaml:"age" default:"1s"`
}

// Backfill is how a partition is applied that is far behind: in larger batches,
// which the store writes past its log.
type Backfill struct {
	// Lag is how many records a partition must be behind for it, such as
	// 200000; 0 = never. It ends where a tenth of them is left.
	Lag int `yaml:"lag"`
	// Records is the most records of a batch, shared by the partitions; one has
	// no fewer than flush.records.
	Records int `yaml:"records" default:"200000"`
}

// Fetch is how records are asked for.
type Fetch struct {
	// MaxWait is how long a broker holds a request that has too few bytes, 1ms to 5m. A
	// rebalance waits for it.
	MaxWait time.Duration `yaml:"max_wait" default:"250ms"`
	// MinBytes is how many bytes a broker waits for, up to MaxWait. Larger
	// answers cost less and come later.
	MinBytes Size `yaml:"min_bytes" default:"1B"`
	// MaxPartitionBytes is the most bytes of a partition in one answer. A
	// record batch that is larger comes all the same.
	MaxPartitionBytes Size `yaml:"max_partition_bytes" default:"4MiB"`
	// MaxBytes is the most bytes of one answer.
	MaxBytes Size `yaml:"max_bytes" default:"32MiB"`
	// MaxBatchBytes is the largest record batch, as stored, that is accepted.
	// A larger one pauses its partition with an error. 0 = all that memory has
	// for one, a quarter of it; a bound of one's own must be below that.
	MaxBatchBytes Size `yaml:"max_batch_bytes" default:"0"`
	// Buffer is how many bytes of a partition are fetched ahead of the worker
	// that maps them; less where the partitions of all pipelines would take more
	// than a sixth of memory together.
	Buffer Size `yaml:"buffer" default:"8MiB"`
}

// Log is what the process writes to standard error.
type Log struct {
	// Level is the least severe level that is written.
	Level string `yaml:"level" default:"info" values:"debug|info|warn|error"`
	// Format is how lines are written: text is logfmt.
	Format string `yaml:"format" default:"text" values:"text|json"`
}

// Load reads and checks the file at path. Its error is a Problems, of one where the file
// cannot be read. lookupEnv is os.LookupEnv or a test's own; nil knows no
// variables.
func Load(path string, lookupEnv func(string) (string, bool)) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		reason := err
		var at *fs.PathError // whose path is said before it
		if errors.As(err, &at) {
			reason = at.Err
		}
		return nil, Problems{{File: path, Message: "the configuration cannot be read: " + reason.Error(), Hint: "name the file with -c"}}
	}
	return Parse(path, data, lookupEnv)
}

// Parse is Load of a file's content; name is what problems call the file, and
// relative ${file:…} references start at its directory.
func Parse(name string, data []byte, lookupEnv func(string) (string, bool)) (*Config, error) {
	if lookupEnv == nil {
		lookupEnv = func(string) (string, bool) { return "", false }
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // a byte order mark, as some editors write it
	d := &decoder{file: name, text: string(data), lookup: lookupEnv, places: map[string]position{}, secrets: map[string]string{}, anchors: anchors{}}
	c := &Config{file: name, places: d.places, secrets: d.secrets, renewed: newRenewed(), interpolate: (&decoder{file: name, lookup: lookupEnv, again: true}).interpolate}
	body, ok := d.parse(data)
	if ok {
		root := reflect.ValueOf(c).Elem()
		if body == nil {
			d.setDefaults(root)
		} else {
			d.decode(body, root, "", fieldInfo{})
		}
		// Rules are checked even beside mistakes of form: whoever repairs a
		// file wants to see all there is.
		c.lint(d)
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	c.warnings = d.warnings.sorted()
	return c, nil
}

// Warnings returns the settings of the file that can have no effect as the others are, in
// its order. They are no mistakes: pipelines may share settings.
func (c *Config) Warnings() Problems { return c.warnings }

// Default returns the configuration of an empty file.
func Default() *Config {
	c, err := Parse("default", nil, nil)
	if err != nil {
		panic("config: the defaults are not valid: " + err.Error())
	}
	return c
}

// String writes the effective configuration as YAML, defaults filled in and
// secrets masked.
func (c *Config) String() string {
	out, err := yaml.MarshalWithOptions(c, yaml.IndentSequence(true))
	if err != nil {
		return fmt.Sprintf("# cannot be written as YAML: %v\n", err)
	}
	return string(out)
}

// File is the name that the configuration was read under.
func (c *Config) File() string { return c.file }
