package structure

// module is the path in go.mod.
const module = "sluice"

// everything stands for all packages but those that restricted keeps back.
const everything = "*"

// packages is ARCHITECTURE.md's table: what each package may import of ours, its
// tests apart. A pattern that ends in /* is all packages below.
//
// store's interface is made of the types of cell and region, so that whoever may
// import store may import those.
var packages = map[string][]string{
	"cell":           {},
	"region":         {"cell"},
	"counters":       {"cell", "rowkey"},
	"counters/query": {"cell", "counters", "store"},
	"rowkey":         {"cell"},
	"rowkey/salted":  {"cell", "region", "store", "rowkey"},

	"store":             {"cell", "region", "internal/turns"},
	"store/memstore":    {"cell", "region", "counters", "store"},
	"store/pebblestore": {"cell", "region", "counters", "store", "internal/lastknown", "internal/openfiles", "internal/prefetch", "internal/turns"},
	"store/hbasestore":  {"cell", "region", "counters", "store", "store/hbasestore/internal/hbase"},
	"store/storetest":   {"cell", "region", "counters", "store", "internal/thinned"},

	"store/hbasestore/internal/hbase": {},
	"store/hbasestore/bare":           {"cell", "store", "store/hbasestore/internal/hbase"},

	"pipeline/memory":          {},
	"pipeline/kafka":           {"cell", "pipeline/memory", "internal/spelling"},
	"pipeline/kafka/embedded":  {"internal/filelock"},
	"pipeline/decode":          {"pipeline/memory"},
	"pipeline/decode/registry": {"pipeline/decode"},
	"pipeline/mapping":         {"cell", "region", "store", "rowkey", "counters", "pipeline/memory", "pipeline/decode", "internal/spelling"},
	"pipeline/buffer":          {"cell", "region", "store", "counters", "pipeline/memory"},
	"pipeline": {
		"cell", "region", "store", "counters",
		"pipeline/memory", "pipeline/kafka", "pipeline/decode", "pipeline/mapping", "pipeline/buffer",
	},

	"pipeline/rebuild": {"cell", "region", "store", "counters", "pipeline", "pipeline/decode", "pipeline/kafka", "pipeline/mapping"},

	"jobs/columnar":    {"cell", "region", "store", "counters", "rowkey", "internal/spelling"},
	"jobs/parquetfile": {"jobs/columnar", "internal/turns"},
	"jobs/arrowfile":   {"jobs/columnar", "internal/turns"},
	"jobs/target":      {"internal/filelock"},
	"jobs/iceberg":     {"jobs/columnar", "jobs/parquetfile", "jobs/target"},
	"jobs/join":        {"jobs/columnar", "jobs/spill"},
	"jobs/spill":       {"jobs/columnar"},
	"jobs/rowsort":     {"jobs/columnar", "jobs/spill", "internal/turns"},
	"jobs/schedule":    {},
	"jobs/work":        {},
	"jobs/history":     {"cell", "store", "jobs/columnar", "jobs/schedule"},
	"jobs/instant":     {"cell", "region", "store"},
	"jobs/tables":      {"cell", "region", "store", "counters", "jobs/columnar", "jobs/history", "jobs/instant", "jobs/schedule", "jobs/target", "jobs/work"},
	"jobs": {
		"cell", "region", "store", "counters",
		"jobs/arrowfile", "jobs/columnar", "jobs/iceberg", "jobs/instant", "jobs/join", "jobs/parquetfile", "jobs/rowsort", "jobs/schedule", "jobs/spill", "jobs/target", "jobs/work",
		"internal/turns",
	},

	"jobs/columnar/columnartest": {"jobs/columnar", "internal/turns"},
	"jobs/target/targettest":     {"jobs/target"},
	"jobs/jobstest":              {"cell", "region", "store", "store/memstore", "store/pebblestore"},

	"inverse": {"cell", "region", "store", "counters", "pipeline/mapping", "jobs", "jobs/columnar"},

	"serve/api":    {"cell", "region", "store"},
	"serve/client": {"cell", "region", "store", "serve/api"},
	"serve":        {"cell", "region", "store", "jobs", "counters", "counters/query", "serve/api", "serve/checkpoint", "internal/lastknown", "internal/openfiles"},

	"serve/checkpoint": {"store", "serve/api", "internal/overdue"},
	"serve/flight":     {"cell", "region", "store", "jobs", "jobs/columnar", "jobs/instant", "serve/api"},

	"serve/servetest": {"serve", "serve/api"},

	"config":     {everything},
	"cmd/ingest": {everything},
	"cmd/export": {everything},
	"cmd/shell":  {everything},
	"bench":      {everything},

	"cmd/internal/cli": {everything},

	"cmd/internal/cli/clitest": {"cmd/internal/cli"},
	"deploy":                   {}, // files for other systems, and tests of them
	"examples":                 {}, // the configuration files, embedded
	"examples/toppages":        {"cell", "config", "counters/query"},

	"internal/crashfs":     {},
	"internal/pageviews":   {},
	"internal/structure":   {},
	"internal/cmemory":     {},
	"internal/filelock":    {},
	"internal/lastknown":   {},
	"internal/openfiles":   {},
	"internal/overdue":     {},
	"internal/reread":      {},
	"internal/prefetch":    {},
	"internal/spelling":    {},
	"internal/fenced":      {},
	"internal/roomy":       {},
	"internal/thinned":     {},
	"internal/turns":       {},
	"internal/integration": {everything},
}

// restricted is who may import a package that everything does not cover, tests
// apart. Nothing imports a command or the benchmarks.
var restricted = map[string][]string{
	// An engine is chosen by configuration; whoever else names one has left
	// the seam (design D9).
	"store/memstore":    {"config", "cmd/*", "bench"},
	"store/pebblestore": {"config", "cmd/*", "bench"},
	"store/hbasestore":  {"config", "cmd/*", "bench"},
	// What the engine is measured against, and nothing to build on.
	"store/hbasestore/bare": {"bench"},
	// A broker in the process is for the demo, benchmarks and tests.
	"pipeline/kafka/embedded": {"cmd/*", "bench"},
	"internal/pageviews":      {"cmd/*", "bench"},
	// Test code.
	"store/storetest":            {},
	"jobs/columnar/columnartest": {},
	"jobs/target/targettest":     {},
	"jobs/jobstest":              {},
	"serve/servetest":            {},
	"internal/crashfs":           {},
	"internal/roomy":             {},
	"internal/thinned":           {"store/storetest"},
	"internal/fenced":            {},
	"internal/integration":       {},
	"cmd/*":                      {"cmd/*"},
	"bench":                      {},
}

// flows never import each other, in tests neither: they meet in store. What needs
// both is in internal/integration, cmd or bench.
var flows = []string{"pipeline", "jobs"}

// testPackages is the packages that are tests, though not all of their code is in test
// files.
var testPackages = []string{"store/storetest", "jobs/columnar/columnartest", "jobs/target/targettest", "jobs/jobstest", "serve/servetest", "internal/crashfs", "internal/roomy", "internal/thinned", "internal/fenced", "internal/integration", "cmd/internal/cli/clitest"}

// libraries is who may import a third-party module, by import path prefix, tests
// and benchmarks apart, which may import any of them. Libraries for tests only
// have no owner.
var libraries = map[string][]string{
	"github.com/cockroachdb/pebble/v2":      {"store/pebblestore", "internal/crashfs"},
	"github.com/apache/thrift":              {"store/hbasestore", "store/hbasestore/bare", "store/hbasestore/internal/hbase"},
	"github.com/segmentio/kafka-go":         {"pipeline/kafka"},
	"github.com/xdg-go/scram":               {"pipeline/kafka"}, // kafka-go's
	"github.com/twmb/franz-go/pkg/kmsg":     {"pipeline/kafka", "pipeline/kafka/embedded"},
	"github.com/twmb/franz-go/pkg/kfake":    {"pipeline/kafka/embedded"},
	"github.com/twmb/franz-go/pkg/kerr":     {"pipeline/kafka/embedded"},
	"github.com/twmb/franz-go/pkg/kversion": {"pipeline/kafka/embedded"},
	"github.com/twmb/franz-go/pkg/kgo":      {},
	"github.com/klauspost/compress":         {"pipeline/kafka", "pipeline/decode", "jobs/parquetfile"}, // codecs of record batches, of payloads, and of pages
	"github.com/pierrec/lz4/v4":             {"pipeline/kafka", "jobs/parquetfile"},
	"github.com/andybalholm/brotli":         {"jobs/parquetfile"},                // parquet-go's
	"google.golang.org/protobuf":            {"pipeline/decode", "serve/flight"}, // descriptors, and messages of Flight; payloads are read by our own code
	"google.golang.org/grpc":                {"serve/flight"},
	"github.com/expr-lang/expr":             {"pipeline/mapping"},
	"github.com/cespare/xxhash/v2":          {"pipeline", "rowkey"}, // fingerprints of records, hashes in keys
	"github.com/apache/arrow/go/v15":        {"jobs/columnar", "jobs/arrowfile", "jobs/join", "serve/flight"},
	"github.com/parquet-go/parquet-go":      {"jobs/parquetfile"},
	"github.com/robfig/cron/v3":             {"jobs/schedule"},
	"github.com/prometheus/client_golang":   {"serve"},
	"github.com/goccy/go-yaml":              {"config"},
	"github.com/alecthomas/kong":            {"cmd/*"},
	"github.com/peterh/liner":               {"cmd/shell"},
	"golang.org/x/sync":                     {everything},
	"github.com/google/go-cmp":              {},
	"pgregory.net/rapid":                    {},
	"go.uber.org/goleak":                    {},
	"github.com/cockroachdb/datadriven":     {},
	"github.com/rogpeppe/go-internal":       {},
}

// Lines of a file: below maxLines, and for tests up to maxTestLines.
const (
	maxLines     = 800
	maxTestLines = 1500
)

// longFiles may be longer, for the reason given.
var longFiles = map[string]string{}
