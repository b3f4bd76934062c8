package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/config"
	"sluice/jobs/columnar"
	"sluice/pipeline"
)

// env makes a lookup of pairs.
func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

const tables = `tables:
  events:
    families:
      e: {VERSIONS: 1}
      n: {COUNTER: true}
`

const incrementalJob = `jobs:
  j:
    table: t
    columns: [{name: key, from: $row, type: string}, {name: op, from: $op, type: string}]
    out: out
    incremental: {full_every: 2}
`

func TestProblems(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, file string
		want       []string
	}{
		{"empty file", "", nil},
		{"HBase", "store: {engine: hbase, hbase: {gateways: [\"h:9090\"]}}\n", nil},
		{"a byte order mark", "\ufeffstore: {dir: x}\nserv: {}\n", []string{`f.yaml:2:1: unknown key "serv" (did you mean "serve"?)`}},
		{"a time range", tables + "jobs:\n  j:\n    table: events\n    columns: [{name: key, from: $row, type: string}]\n    out: o\n    time_range:\n      from: 1767225600000\n      to: $interval_end\n      families: {n: , e: {from: now}, x: {}}\n", []string{
			`f.yaml:13:11: $interval_end goes by the job's schedule, and it has none that is right; $time-24h goes by the time that a run is for`,
			`f.yaml:14:33: "now" is neither a time such as 2006-01-02T15:04:05Z nor ms since 1970, and does not begin with $time, $interval_start or $interval_end`,
			`f.yaml:14:39: table events has no family "x"`,
		}},
		{"a time range of counters", "store: {engine: hbase}\n" + tables + "jobs:\n  j:\n    table: events\n    columns: [{name: key, from: $row, type: string}]\n    out: o\n    time_range: {to: 2026-01-01T00:00:00Z, families: {n: {from: 5}}}\n", []string{
			`f.yaml:12:5: the timestamps of the cells of COUNTER and DISTINCT families, such as n, are offsets here: name the job's other families, or say families: {n: {}}, all of it`,
		}},
		{"a free port", "serve: {listen: ':0'}\n", nil},
		{"a port by name", "serve: {listen: 'localhost:http'}\n", nil},
		{"a port that is none", "serve: {listen: '127.0.0.1:80870'}\n", []string{
			`f.yaml:1:17: serve.listen is not an address to listen on (write host:port, such as 127.0.0.1:8087)`,
		}},
		{"a port that is no number of 64 bits", "serve: {listen: '127.0.0.1:99999999999999999999'}\n", []string{
			`f.yaml:1:17: serve.listen is not an address to listen on (write host:port, such as 127.0.0.1:8087)`,
		}},
		{"a group without a name", tables + "pipelines: {p: {topics: [a], group: \"${GROUP:-}\", decode: {format: raw}, map: [{table: events, row: key, put: {e: {v: payload}}}]}}\n", []string{
			`f.yaml:6:37: group is empty (name a consumer group that no other pipeline has)`,
		}},
		{"a token", "serve: {token: ' a b é'}\n", nil},
		{"a token with a blank at its end", "serve: {token: 'abc '}\n", []string{
			`f.yaml:1:16: serve.token ends in a blank or has control characters, which no request can carry`,
		}},
		{"a token with a control character", "serve: {token: \"a\\x01b\"}\n", []string{
			`f.yaml:1:16: serve.token ends in a blank or has control characters, which no request can carry`,
		}},
		{"hosts", "serve: {allowed_hosts: [sluice, a.example.com, '::1']}\n", nil},
		{"hosts that no request names", "serve: {allowed_hosts: ['sluice:8087', 'http://a', '*.b']}\n", []string{
			`f.yaml:1:25: "sluice:8087" is no name of a host (write the name alone, such as sluice.example.com, without scheme or port)`,
			`f.yaml:1:40: "http://a" is no name of a host (write the name alone, such as sluice.example.com, without scheme or port)`,
			`f.yaml:1:52: "*.b" is no name of a host (write the name alone, such as sluice.example.com, without scheme or port)`,
		}},
		{"a join of a job with mistakes", "jobs:\n  j: {table: t, columns: [{name: key, from: $row, type: text}], out: x}\njoins:\n  k: {left: {job: j}, right: {job: jj}, on: [{left: key}], formats: [parqet], out: x}\n", []string{
			`f.yaml:2:57: "text" is no type; it is one of string, int64, float64, bool, timestamp, bytes, json and decimal(P,S)`,
			`f.yaml:4:36: there is no job "jj"`,
			`f.yaml:4:70: "parqet" is no format; it is parquet or arrow`,
		}},
		{"a backup", "backups: {b: {out: x, schedule: {cron: \"@daily\"}}}\n", nil},
		{"backups", "jobs:\n  j: {table: t, columns: [{name: key, from: $row, type: string}], out: x/}\nbackups:\n  a: {out: x, schedule: {cron: \"@daily\"}, keep: {runs: -1}}\n  b: {out: y}\n  c: {out: ./y, schedule: {cron: \"@daily\"}}\n  j: {out: 's3://b/p', schedule: {cron: \"@dayly\"}}\n", []string{
			`f.yaml:4:12: job j publishes there (a place of backups is of one alone)`,
			`f.yaml:4:56: -1 is negative`,
			`f.yaml:5:3: a backup that is declared needs a schedule; export backup makes one by hand`,
			`f.yaml:6:12: backup b publishes there (a place of backups is of one alone)`,
			`f.yaml:7:3: there is a job of this name (one history would have the runs of both)`,
			`f.yaml:7:12: there is no service for buckets in this file (set s3.endpoint, s3.access_key and s3.secret_key)`,
			`f.yaml:7:41: "@dayly": unrecognized descriptor: @dayly; write such as "30 2 * * *", or @daily`,
		}},
		{"garbage collection", "jobs: {j: {table: t, columns: [{name: key, from: $row, type: string}], out: x}}\ngc: {schedule: {cron: \"@daily\"}}\n", nil},
		{"garbage collection without a schedule", "jobs: {j: {table: t, columns: [{name: key, from: $row, type: string}], out: x}}\ngc: {}\n", []string{
			`f.yaml:2:1: it has no schedule, and so does nothing (write gc: {schedule: {cron: "30 4 * * *"}}; export gc tidies up by hand)`,
		}},
		{"garbage collection with a schedule that has mistakes", "jobs: {gc: {table: t, columns: [{name: key, from: $row, type: string}]}}\ngc: {schedule: {zone: Mars, cron: \"@dayly\"}}\n", []string{
			`f.yaml:2:1: there is a job of this name (one history would have the runs of both)`,
			`f.yaml:2:1: no job or join has an out: there is no place to tidy up`,
			`f.yaml:2:23: "Mars" is not the IANA name of a time zone, such as Europe/Berlin`,
			`f.yaml:2:35: "@dayly": unrecognized descriptor: @dayly; write such as "30 2 * * *", or @daily`,
		}},
		{"a job named gc, without a schedule of it", "jobs: {gc: {table: t, columns: [{name: key, from: $row, type: string}], out: x}}\n", nil},
		{"incremental without full_every", "jobs: {j: {table: t, columns: [{name: key, from: $row, type: string}], out: x, incremental: {}}}\n", []string{
			`f.yaml:1:80: full_every is missing: every run would be full (write full_every: 7, say, for one full run in 7, or leave incremental out)`,
		}},
		{"incremental with a default alone", "jobs: {j: {table: t, columns: [{name: key, from: $row, type: string}], out: x, incremental: {expired: ignore}}}\n", []string{
			`f.yaml:1:80: full_every is missing: every run would be full (write full_every: 7, say, for one full run in 7, or leave incremental out)`,
		}},
		{"incremental that is to be full", "jobs: {j: {table: t, columns: [{name: key, from: $row, type: string}], out: x, incremental: {full_every: 0}}}\n", nil},
		{"incremental with another mistake", "jobs: {j: {table: t, columns: [{name: key, from: $row, type: string}], out: x, incremental: {hold: 1h}}}\n", []string{
			`f.yaml:1:22: an increment says of each row whether it is there: add {name: op, from: $op, type: string}`,
			`f.yaml:1:80: full_every is 0: each so many runs one is full, 2 or more`,
		}},
		{"credentials in a file", "s3: {endpoint: 'https://h', credentials_file: /not/here}\nbackups: {b: {out: 's3://b/p', schedule: {cron: \"@daily\"}}}\n", nil},
		{"keys of buckets that are missing, once for all places", "s3: {endpoint: 'https://h', access_key: '', secret_key: '${NONE}'}\nbackups:\n  b: {out: 's3://b/p', schedule: {cron: \"@daily\"}}\n  c: {out: 's3://b/q', schedule: {cron: \"@daily\"}}\n", []string{
			`f.yaml:1:41: the access key is missing (set s3.access_key and s3.secret_key, or s3.credentials_file)`,
			`f.yaml:1:57: environment variable NONE is not set; set it, or write ${NONE:-default}`,
		}},
		{"an address of buckets that cannot be read", "s3: {endpoint: '${NONE}'}\nbackups:\n  b: {out: 's3://b/p', schedule: {cron: \"@daily\"}}\n", []string{
			`f.yaml:1:16: environment variable NONE is not set; set it, or write ${NONE:-default}`,
		}},
		{"no keys of buckets", "s3: {endpoint: 'https://h'}\nbackups:\n  b: {out: 's3://b/p', schedule: {cron: \"@daily\"}}\n", []string{
			`f.yaml:1:1: the access key is missing (set s3.access_key and s3.secret_key, or s3.credentials_file)`,
			`f.yaml:1:1: the secret key is missing (set s3.access_key and s3.secret_key, or s3.credentials_file)`,
		}},
		{"credentials twice", "s3: {endpoint: 'https://h', credentials_file: f, access_key: k}\n", []string{
			`f.yaml:1:47: there are two sets of credentials (leave out access_key, secret_key and session_token, or it)`,
		}},
		{"parts that are too large", "s3: {part_size: 2GiB}\n", []string{
			`f.yaml:1:17: part_size is 2147483648, must be 5MiB..1GiB (each file that is being written has one in memory)`,
		}},
		{"parts that are too small", "s3: {part_size: 1MiB}\n", []string{
			`f.yaml:1:17: part_size is 1048576, must be 5MiB..1GiB (the service takes no smaller parts)`,
		}},
		{"backups of HBase", "store: {engine: hbase}\nbackups: {b: {out: x, schedule: {cron: \"@daily\"}}}\n", []string{
			`f.yaml:2:11: store.engine is hbase, which keeps no files of its own that could be copied`,
		}},
		{"HBase without gateways", "store: {engine: hbase}\n", nil},
		{"gateways of another engine", "store: {hbase: {gateways: [\"h\"]}}\n", []string{
			`f.yaml:1:9: gateways are named and store.engine is pebble (add engine: hbase)`,
			`f.yaml:1:28: not the address of a gateway (write host:port, such as 127.0.0.1:9090)`,
		}},
		{"addresses that cannot be", "store: {engine: hbase, hbase: {gateways: [\"h:0\", \"h:70000\", \":9\", \"h:\", \"h:9090\"]}}\nkafka: {brokers: [\"h:99999\"]}\n", []string{
			`f.yaml:1:43: not the address of a gateway (write host:port, such as 127.0.0.1:9090)`,
			`f.yaml:1:50: not the address of a gateway (write host:port, such as 127.0.0.1:9090)`,
			`f.yaml:1:61: not the address of a gateway (write host:port, such as 127.0.0.1:9090)`,
			`f.yaml:1:67: not the address of a gateway (write host:port, such as 127.0.0.1:9090)`,
			`f.yaml:2:19: not the address of a broker (write host:port, such as 127.0.0.1:9092)`,
		}},
		{"cells that are too small for HBase's tables", "store: {engine: hbase, hbase: {max_cell: 4KiB, max_frame: 16383}}\n" + tables, []string{
			`f.yaml:1:42: max_cell must be 16KiB or more, which rows of the store's own need`,
			`f.yaml:1:59: max_frame must be 16KiB or more, which rows of the store's own need`,
		}},
		{"what HBase cannot", "store: {engine: hbase, hbase: {gateways: [\"h:1\"], call_timeout: 0s, max_cell: 0}}\n" + tables, []string{
			`f.yaml:1:65: call_timeout must be more than 0`,
			`f.yaml:1:79: max_cell must be more than 0`,
		}},
		{"tables that HBase cannot hold", `store: {engine: hbase, hbase: {gateways: ["h:1"]}}
tables:
  t:
    max_timestamp_slop: 1s
    families:
      a: {COUNTER: true, TTL: 60}
      b: {COUNTER: true, KEEP_DELETED_CELLS: true}
      d: {DISTINCT: true, TTL: 60}
      e: {TTL: 60}
      u: {DISTINCT: true}
      x: {DISTINCT: true, NEW_VERSION_BEHAVIOR: true}
`, []string{
			`f.yaml:6:7: a COUNTER family has no TTL on HBase, where the timestamps of its cells are offsets`,
			`f.yaml:7:7: a COUNTER family has no NEW_VERSION_BEHAVIOR and no KEEP_DELETED_CELLS on HBase`,
			`f.yaml:8:7: a DISTINCT family has no TTL on HBase, where the timestamps of its cells are offsets`,
			`f.yaml:11:7: a DISTINCT family has no NEW_VERSION_BEHAVIOR and no KEEP_DELETED_CELLS on HBase`,
		}},
		{"tables that HBase loses", `store: {engine: hbase, hbase: {gateways: ["h:1"]}}
tables: {t: {families: {f: {}}, attributes: {DURABILITY: SKIP_WAL}}, u: {families: {f: {}}, attributes: {DURABILITY: FSYNC_WAL}}}
pipelines: {p: {topics: [a], group: g, decode: {format: raw}, map: [{table: t, row: "key", put: {f: {q: "value"}}}]}}
`, []string{
			`f.yaml:2:58: on HBase SKIP_WAL acknowledges what the death of a server loses, and the offset would stand behind it`,
		}},
		{"rules that HBase cannot apply once", `store: {engine: hbase, hbase: {gateways: ["h:1"]}}
tables:
  t:
    max_timestamp_slop: 1s
    families:
      e: {VERSIONS: 1}
      n: {COUNTER: true}
  day_*: {families: {n: {COUNTER: true}, u: {DISTINCT: true}}}
pipelines:
  p:
    topics: [a]
    group: g
    decode: {format: raw}
    dedup: {id: "key", ttl: 1h}
    backfill: {lag: 1000}
    map:
      - {table: t, row: "key", put: {e: {q: "value"}}, increment: [{family: n, qualifier: "'q'"}]}
      - {table: t, row: "key", check: {family: e, qualifier: "'q'", op: absent}, put: {e: {q: "value"}}}
      - {table: t, row: "key", append: {e: {q: "value"}}}
      - {table: t, row: "key", delete: [{what: column, family: e, qualifier: "'q'"}, {what: newest, family: e, qualifier: "'q'"}]}
      - {table: t, row: "key", delete: [{what: row}]}
      - {table: "day_{date(time, '2006')}", row: "key", delete: [{what: family, family: n}]}
      - {table: "day_{date(time, '2006')}", row: "key", append: {u: {q: "value"}}}
      - {table: "day_{date(time, '2006')}", row: "key", delete: [{what: family, family: u}]}
`, []string{
			`f.yaml:4:25: on HBase what becomes of a record must not depend on the clock`,
			`f.yaml:14:5: event ids are not remembered: on HBase a batch is not atomic, and what is written must be the same however often it is written`,
			`f.yaml:15:5: there are no bulk commits on HBase`,
			`f.yaml:18:32: a rule has no condition: on HBase a batch is not atomic, and what is written must be the same however often it is written`,
			`f.yaml:19:41: nothing is appended, but to DISTINCT families of tables that the file declares: on HBase a batch is not atomic, and what is written must be the same however often it is written`,
			`f.yaml:20:86: the newest version is another one when the delete is repeated, as on HBase it may be (delete the column, or the version at the rule's timestamp)`,
			`f.yaml:21:41: the counters of family n are not deleted on HBase: the timestamps of their cells are offsets, and a zombie would bring them back`,
			`f.yaml:22:66: the counters of family n are not deleted on HBase: the timestamps of their cells are offsets, and a zombie would bring them back`,
			`f.yaml:24:66: the counters of family u are not deleted on HBase: the timestamps of their cells are offsets, and a zombie would bring them back`,
		}},
		{"deletes that HBase undoes", `store: {engine: hbase, hbase: {gateways: ["h:1"]}}
tables:
  t: {families: {e: {}, v: {NEW_VERSION_BEHAVIOR: true}, w: {NEW_VERSION_BEHAVIOR: false}}}
  day_*: {families: {v: {NEW_VERSION_BEHAVIOR: true}}}
pipelines:
  p:
    topics: [a]
    group: g
    decode: {format: raw}
    map:
      - {table: t, row: "key", put: {v: {q: "value"}}}
      - {table: t, row: "key", delete: [{what: family, family: e}, {what: family, family: w}]}
      - {table: t, row: "key", delete: [{what: family, family: e}, {what: family, family: v}]}
      - {table: t, row: "key", delete: [{what: version, family: v, qualifier: "'q'"}]}
      - {table: t, row: "key", delete: [{what: row}]}
      - {table: "day_{date(time, '2006')}", row: "key", delete: [{what: column, family: v, qualifier: "'q'"}]}
`, []string{
			`f.yaml:13:68: family v has NEW_VERSION_BEHAVIOR: a put that HBase is sent again, or late, comes after the delete, and its cell is there again (leave NEW_VERSION_BEHAVIOR out: deletes go by timestamps then)`,
			`f.yaml:14:41: family v has NEW_VERSION_BEHAVIOR: a put that HBase is sent again, or late, comes after the delete, and its cell is there again (leave NEW_VERSION_BEHAVIOR out: deletes go by timestamps then)`,
			`f.yaml:15:41: family v has NEW_VERSION_BEHAVIOR: a put that HBase is sent again, or late, comes after the delete, and its cell is there again (leave NEW_VERSION_BEHAVIOR out: deletes go by timestamps then)`,
			`f.yaml:16:66: family v has NEW_VERSION_BEHAVIOR: a put that HBase is sent again, or late, comes after the delete, and its cell is there again (leave NEW_VERSION_BEHAVIOR out: deletes go by timestamps then)`,
		}},
		{"settings of exports that are not there", "jobs:\n  j:\n    columns:\n      - {from: \"f:q\", type: string}\n      - {name: a, type: string}\n    schedule: {zone: UTC}\n", []string{
			`f.yaml:2:3: table is missing`,
			`f.yaml:2:3: a schedule needs a directory to write to`,
			`f.yaml:4:9: name is missing`,
			`f.yaml:5:9: from is missing; it is family:qualifier, $row or $timestamp, or with rows: cell also $family, $qualifier and $value`,
			`f.yaml:6:5: cron is missing: write when to run, such as "30 2 * * *" or @every 6h`,
		}},
		{"a side of a join that is not there", "joins: {j: {right: {run: r}, on: [{left: k}], out: o}}\n", []string{
			`f.yaml:1:9: left is missing: a job of this file, or a published run`,
			`f.yaml:1:13: one side is a job and one a published run, which are not of one instant; export the job first`,
		}},
		{"exports of HBase", "store: {engine: hbase, hbase: {gateways: [\"h:1\"]}}\ntables: {t: {families: {f: {}}}}\n" + incrementalJob, nil},
		{"increments of counters on HBase", "store: {engine: hbase, hbase: {gateways: [\"h:1\"]}}\ntables: {t: {families: {f: {}, n: {COUNTER: true}}}}\n" + incrementalJob, []string{
			`f.yaml:8:5: on HBase it finds what has changed by timestamps, which tell nothing of the COUNTER or DISTINCT family n (name the job's other families, or make every run full)`,
		}},
		{"increments of counters of a table of two names on HBase", "store: {engine: hbase, hbase: {gateways: [\"h:1\"]}}\ntables: {'default:t': {families: {f: {}, n: {COUNTER: true}}}}\n" + incrementalJob, []string{
			`f.yaml:8:5: on HBase it finds what has changed by timestamps, which tell nothing of the COUNTER or DISTINCT family n (name the job's other families, or make every run full)`,
		}},
		{"rules of a table of two names on HBase", `store: {engine: hbase, hbase: {gateways: ["h:1"]}}
tables: {t: {families: {u: {DISTINCT: true}}}}
pipelines:
  p:
    topics: [a]
    group: g
    decode: {format: raw}
    map:
      - {table: 'default:t', row: "key", append: {u: {q: "value"}}}
      - {table: 'default:t', row: "key", delete: [{what: row}]}
`, []string{
			`f.yaml:10:51: the counters of family u are not deleted on HBase: the timestamps of their cells are offsets, and a zombie would bring them back`,
		}},
		{"comments only", "# nothing\n", nil},
		{"unknown key", "stor:\n  dir: x\n", []string{`f.yaml:1:1: unknown key "stor" (did you mean "store"?)`}},
		{"unknown key inside", "store:\n  direct: x\n", []string{`f.yaml:2:3: unknown key "direct" in store (known: cache, counter_cache, dir, engine, hbase, mem_table, min_free, region_interval, rewrite_interval, rewrite_rate, sync)`}},
		{"all at once", "store:\n  engine: rocks\n  cache: lots\nkafka:\n  dial_timeout: 5\nserve: 3\n", []string{
			`f.yaml:2:11: store.engine cannot be "rocks" (known: hbase, mem, pebble)`,
			`f.yaml:3:10: "lots" is not a size: write 64KiB, 16MiB, 1GiB or a number of bytes`,
			`f.yaml:5:17: kafka.dial_timeout must be a duration such as 250ms, 10s or 1h30m, not "5"`,
			`f.yaml:6:8: serve must be a mapping of keys to values, not a number`,
		}},
		{"texts that are none, once each", `kafka: {brokers: [127.0.0.1:9092]}
pipelines:
  p:
    group: [g]
    topics: [x]
    decode: {format: [json]}
    map: [{table: [t], row: {a: b}, put: {f: {q: [a]}}}]
`, []string{
			`f.yaml:1:19: kafka.brokers[0] must be a text, not a mapping (a text that begins with a brace, or has a colon within braces, needs quotes)`,
			`f.yaml:4:12: pipelines.p.group must be a text, not a list`,
			`f.yaml:6:22: pipelines.p.decode.format must be a text, not a list`,
			`f.yaml:7:19: pipelines.p.map[0].table must be a text, not a list`,
			`f.yaml:7:29: pipelines.p.map[0].row must be a text, not a mapping (a text that begins with a brace, or has a colon within braces, needs quotes)`,
			`f.yaml:7:50: pipelines.p.map[0].put.f.q must be a text, not a list`,
		}},
		{"twice", "store:\n  dir: a\n  dir: b\n", []string{`f.yaml:3:3: key "dir" is given twice in store; the first is in line 2 (remove one of them, or give it another name)`}},
		{"no value", "store:\n  dir:\n", []string{`f.yaml:2:3: dir has no value (remove the key to leave it at its default)`}},
		{"null for a text", "store:\n  dir: null\n", []string{`f.yaml:2:3: dir has no value (remove the key to leave it at its default)`}},
		{"on_error of nothing", columnOf("on_error:"), []string{`f.yaml:6:9: on_error has no value (remove the key to leave it at its default)`}},
		{"on_error of a tilde", columnOf("on_error: ~"), []string{`f.yaml:6:9: on_error has no value (remove the key to leave it at its default)`}},
		{"on_error misspelt", columnOf("on_error: nul"), []string{`f.yaml:6:19: "nul" is no policy (did you mean "null"?); it is fail or null`}},
		{"not YAML", "store: [\n", []string{`f.yaml:1:8: not valid YAML: sequence end token ']' not found`}},
		{"two documents", "log: {level: info}\n---\nlog: {level: warn}\n", []string{`f.yaml:3:1: the file has several documents; write one`}},
		{"list for a text", "store: {dir: [a]}\n", []string{`f.yaml:1:14: store.dir must be a text, not a list`}},
		{"text for a list", "kafka: {brokers: \"a:1\"}\n", []string{`f.yaml:1:18: kafka.brokers must be a list, not a text (write [a:1])`}},
		{"quoted number", "store: {counter_cache: \"5\"}\n", []string{`f.yaml:1:24: store.counter_cache must be a whole number, not a text (remove the quotes)`}},
		{"merge key", "store: {<<: 1}\n", []string{`f.yaml:1:9: merge keys (<<) are not supported (repeat the settings, or use an alias for the whole value)`}},
		{"alias of nothing", "store: {dir: *x}\n", []string{`f.yaml:1:14: alias *x has no anchor before it (a text that begins with * needs quotes)`}},
		{"tag", "store: {dir: !!str x}\n", []string{`f.yaml:1:14: YAML tags such as !!str are not used here (remove it)`}},
		{"broker", "kafka: {brokers: [localhost]}\n", []string{`f.yaml:1:19: not the address of a broker (write host:port, such as 127.0.0.1:9092)`}},
		{"no broker", "kafka: {brokers: []}\n", []string{`f.yaml:1:9: kafka.brokers is empty: name at least one broker`}},
		{"SASL", "kafka: {sasl: {mechanism: plain}}\n", []string{`f.yaml:1:9: plain needs user and password (write password: ${VAR}, or ${file:/path})`}},
		{"bomb", "kafka: {max_decompressed: 1KiB}\n", []string{`f.yaml:1:27: max_decompressed is 1KiB, must be 1MiB to 4GiB, or 0`}},
		{"more than memory has", "memory: 64MiB\nkafka: {max_decompressed: 64MiB}\n" + tables + "pipelines:\n  p:\n    topics: [a]\n    group: g\n    decode: {format: raw}\n    fetch: {max_batch_bytes: 25MiB}\n    map: [{table: events, row: \"key\", put: {e: {q: \"value\"}}}]\n", []string{
			`f.yaml:2:27: max_decompressed is 64MiB, and memory (64MiB) has 27MiB for one record batch (leave it out, or raise memory to 161MiB)`,
			`f.yaml:13:30: fetch.max_batch_bytes is 25MiB, and memory (64MiB) has 16MiB for one record batch (leave it out, or raise memory to 112MiB)`,
		}},
		{"TLS", "kafka: {tls: {ca_file: x}}\n", []string{`f.yaml:1:9: TLS is configured and not enabled (add enable: true)`}},
		{"times of no use", "kafka: {dial_timeout: 0s, request_timeout: 500us, session_timeout: 30d, heartbeat_interval: 0s, rebalance_timeout: 30d}\n" + tables + "pipelines:\n  p:\n    topics: [a]\n    group: g\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n    fetch: {max_wait: 30d}\n    flush: {age: 0s}\n  q:\n    topics: [a]\n    group: h\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n    fetch: {max_wait: 500us}\n", []string{
			`f.yaml:1:23: dial_timeout is 0s, must be 1ms..24h0m0s`,
			`f.yaml:1:44: request_timeout is 500µs, must be 1ms..24h0m0s`,
			`f.yaml:1:68: session_timeout is 720h0m0s, must be 1ms..24h0m0s`,
			`f.yaml:1:93: heartbeat_interval is 0s, must be 1ms..24h0m0s`,
			`f.yaml:1:116: rebalance_timeout is 720h0m0s, must be 1ms..24h0m0s`,
			`f.yaml:13:23: fetch.max_wait is 720h0m0s, must be 1ms..5m0s`,
			`f.yaml:14:18: flush.age is 0s, must be 1ms..24h0m0s`,
			`f.yaml:20:23: fetch.max_wait is 500µs, must be 1ms..5m0s`,
		}},
		{"sizes of no use", "store: {cache: 0, mem_table: 1KiB, counter_cache: 0, rewrite_rate: -5}\n", []string{
			`f.yaml:1:16: cache must be more than 0`,
			`f.yaml:1:30: mem_table is 1KiB, must be 1MiB to 2GiB`,
			`f.yaml:1:51: counter_cache must be more than 0`,
			`f.yaml:1:68: rewrite_rate is -5, must be 0 or more`,
		}},
		{"looks all the time", "store: {rewrite_interval: 1ns, region_interval: 10ms}\n", []string{
			`f.yaml:1:27: rewrite_interval is 1ns, must be 1s or more, or 0 for never`,
			`f.yaml:1:49: region_interval is 10ms, must be 1s or more, or 0 for never`,
		}},
		{"sizes of no use either", "store: {mem_table: 3GiB}\n", []string{`f.yaml:1:20: mem_table is 3GiB, must be 1MiB to 2GiB`}},
		{"bounds", "store: {cache: 1, mem_table: 1MiB, counter_cache: 1, rewrite_rate: 0, rewrite_interval: 1s, region_interval: 0}\nkafka: {dial_timeout: 1ms, rebalance_timeout: 24h}\n", nil},
		{"drain", "drain_timeout: 20s\n", []string{`f.yaml:1:16: drain_timeout (20s) must be shorter than kafka.session_timeout (10s) (a new owner may begin when the session is over)`}},
		{"table without families", "tables:\n  t: {}\n", []string{`f.yaml:2:3: families is missing in tables.t`}},
		{"family attribute", "tables:\n  t:\n    families:\n      f: {VERSION: 3}\n", []string{`f.yaml:4:20: unknown attribute "VERSION" of a column family (did you mean "VERSIONS"?)`}},
		{"attribute's value", "tables:\n  t:\n    families:\n      f: {TTL: soon}\n", []string{`f.yaml:4:16: family f: TTL => "soon": want seconds, FOREVER, or a text like '1 DAY 2 HOURS'`}},
		{"template", "tables:\n  day_*: {families: {f: {}}}\n  all:d_*: {families: {f: {}}}\n", nil},
		{"template of all", "tables:\n  \"*\": {families: {f: {}}}\n", []string{`f.yaml:2:3: a template for every name: write how the names begin, such as events_*`}},
		{"template's attribute", "tables:\n  d_*:\n    families:\n      f: {TTL: soon}\n", []string{`f.yaml:4:16: family f: TTL => "soon": want seconds, FOREVER, or a text like '1 DAY 2 HOURS'`}},
		{"star in a name", "tables:\n  a*b: {families: {f: {}}}\n", []string{`f.yaml:2:3: table name "a*b": '*' is not allowed; letters, digits, _, - and . are`}},
		{"rule of a template", strings.ReplaceAll(tables, "events:", "events_*:") + "pipelines:\n  p: {topics: [a], group: g, decode: {format: json}, map: [{table: 'events_{day}', row: '\"r\"', put: {z: {q: '\"v\"'}}}]}\n", []string{`f.yaml:7:102: table events_* has no family z (did you mean "e"?)`}},
		{"system table", "tables:\n  sluice:x: {families: {f: {}}}\n", []string{`f.yaml:2:3: namespace sluice belongs to the store`}},
		{"split", "tables:\n  t: {families: {f: {}}, split: {regions: 4}}\n", []string{`f.yaml:2:26: regions needs an algorithm: HexStringSplit, UniformSplit or DecimalStringSplit`}},
		{"split algorithm", "tables:\n  t: {families: {f: {}}, split: {algorithm: HexSplit, regions: 4}}\n", []string{
			`f.yaml:2:26: not a split point: unknown algorithm "HexSplit"; known are HexStringSplit, UniformSplit, DecimalStringSplit`,
		}},
		{"pipeline", "pipelines:\n  p: {topics: [a, a], group: g, dead_letters: {topic: a}, in_flight: 9}\n", []string{
			`f.yaml:2:3: no format "" (there are avro, combined, common, csv, json, logfmt, ndjson, protobuf, raw, tsv)`,
			`f.yaml:2:3: there are no rules (a rule has a table, a row, and put, append, increment or delete)`,
			`f.yaml:2:19: topic a is named twice`,
			`f.yaml:2:55: the dead-letter topic a is read by the same pipeline: refused records would go round for ever`,
			`f.yaml:2:70: in_flight is 9, must be 1..8`,
		}},
		{"dead letters in a circle", tables + "pipelines:\n  p:\n    topics: [a]\n    group: p\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n    dead_letters: {topic: b}\n  q:\n    topics: [b, x]\n    group: q\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n    dead_letters: {topic: c}\n  r:\n    topics: [c]\n    group: r\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n    dead_letters: {topic: a}\n  s:\n    topics: [b]\n    group: s\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n    dead_letters: {topic: d}\n  t:\n    topics: [e]\n    group: t\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n    dead_letters: {topic: e2}\n", []string{
			`f.yaml:12:27: the dead-letter topic b comes back to this pipeline by way of q, r: records that all refuse would go round for ever`,
			`f.yaml:18:27: the dead-letter topic c comes back to this pipeline by way of r, p: records that all refuse would go round for ever`,
			`f.yaml:24:27: the dead-letter topic a comes back to this pipeline by way of p, q: records that all refuse would go round for ever`,
		}},
		{"names of topics", tables + "pipelines:\n  p:\n    topics: [logs.*, a]\n    group: g\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n    dead_letters: {topic: a dead}\n", []string{
			`f.yaml:8:14: no topic is named "logs.*": '*' is not allowed; letters of ASCII, digits, ., _ and - are`,
			`f.yaml:12:27: no topic is named "a dead": ' ' is not allowed; letters of ASCII, digits, ., _ and - are`,
		}},
		{"name of a rebuild", tables + "pipelines:\n  p~1:\n    topics: [a]\n    group: g\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n", []string{
			`f.yaml:7:3: the name of a pipeline holds no ~: a rebuild of its counters is named by that`,
		}},
		{"partitions", tables + "pipelines:\n  p:\n    topics: [a]\n    group: g\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n    partitions: [1, -2, 1]\n", []string{
			`f.yaml:12:5: partitions are named, but the group assigns them (add assign: static)`,
			`f.yaml:12:21: -2 is no partition`,
			`f.yaml:12:25: partition 1 is named twice`,
		}},
		{"dead letters", tables + "pipelines:\n  p:\n    topics: [a]\n    group: g\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n" +
			"    dead_letters:\n      trip_at: 100\n      window: 0\n      retries: 0\n      policies: {json: drp, jsn: drop, store: retry}\n", []string{
			`f.yaml:13:16: dead_letters.trip_at is 100, must be 0..99`,
			`f.yaml:14:15: dead_letters.window is 0, must be 1..1048576`,
			`f.yaml:15:16: dead_letters.retries is 0, must be 1..1000`,
			`f.yaml:16:24: not a policy: write dlq, drop, fail or retry (did you mean "drop"?)`,
			`f.yaml:16:34: no record is refused with the class "jsn" (did you mean "json"?)`,
		}},
		{"mapping", tables + "pipelines:\n  p:\n    topics: [a]\n    group: g\n    decode: {format: json}\n    map:\n      - table: events\n        row: user\n        put:\n          f: {x: user}\n          e: {y: nope(user)}\n", []string{
			`f.yaml:15:11: table events has no family f (did you mean "e"?)`,
			`f.yaml:16:18: no function nope (did you mean "none"?)`,
		}},
		{"tests of a mapping", tables + "pipelines:\n  p:\n    topics: [views, orders]\n    group: g\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n    tests:\n" +
			"      - {name: a, record: x, tombstone: true}\n" +
			"      - {name: a, record_base64: '!', topic: order}\n" +
			"      - {name: b, record: x, topic: orders, error: jsn, expect: y, partition: -1, offset: -1}\n" +
			"      - {name: c}\n      - {name: d, record: ''}\n", []string{
			`f.yaml:13:9: a test has a record, or a record_base64, or is a tombstone`,
			`f.yaml:14:16: two tests are named "a"`,
			`f.yaml:14:34: not base64: illegal base64 data at input byte 0`,
			`f.yaml:14:46: the pipeline does not read a topic "order" (did you mean "orders"?)`,
			`f.yaml:15:52: no class of errors "jsn" (did you mean "json"?)`,
			`f.yaml:15:52: a record has either mutations or an error (remove one of them)`,
			`f.yaml:15:79: partition is -1, must be 0..2147483647`,
			`f.yaml:15:91: offset is -1, must not be negative`,
			`f.yaml:16:9: a test has a record, or a record_base64, or is a tombstone`,
		}},
		{"job", tables + "jobs:\n  j:\n    table: event\n    out: ./x\n    columns:\n      - {name: a, from: \"e:a\", type: strin}\n", []string{
			`f.yaml:8:12: table "event" is not in this file (did you mean "events"?)`,
			`f.yaml:11:38: "strin" is no type (did you mean "string"?); it is one of string, int64, float64, bool, timestamp, bytes, json and decimal(P,S)`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Parse("f.yaml", []byte(tt.file), nil)
			var problems config.Problems
			if err != nil && !errors.As(err, &problems) {
				t.Fatalf("Got %T %v, want Problems", err, err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{"one": "s3cret\n", "two": "a\nb\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lookup := env("SET", "value", "EMPTY", "", "LINES", "a\nb", "YAML", "x, y: [z]", "NUMBER", "7")
	tests := []struct{ text, want, problem string }{
		{"${SET}", "value", ""},
		{"a-${SET}-${SET:-x}", "a-value-value", ""},
		{"${EMPTY}|", "|", ""},
		{"${EMPTY:-default}", "default", ""},
		{"${NONE:-}|", "|", ""},
		{"${NONE:-a:b}", "a:b", ""},
		{"${SET:?must be set}", "value", ""},
		{"${YAML}", "x, y: [z]", ""},
		{"$$ $5 $", "$ $5 $", ""},
		{"$${SET}", "${SET}", ""},
		{"${file:one}", "s3cret", ""},
		{"${NONE}", "", "environment variable NONE is not set; set it, or write ${NONE:-default}"},
		{"${EMPTY:?say where}", "", "EMPTY: say where"},
		{"${LINES}", "", "the value of environment variable LINES has line breaks"},
		{"${SET", "", `"${SET" has no closing brace`},
		{"${SET:x}", "", "${SET:x}: write ${SET}, ${SET:-default} or ${SET:?message}"},
		{"${a b}", "", `${a b}: "a b" is not the name of a variable; write $$ for a dollar sign`},
		{"${NONE:-${SET}}", "", "${NONE:-${SET}: references cannot be nested"},
		{"${file:two}", "", "${file:" + filepath.Join(dir, "two") + "} has more than one line"},
		{"${file:none}", "", "${file:…}: open " + filepath.Join(dir, "none") + ": no such file or directory"},
		{"${file:}", "", "${file:} names no file"},
	}
	for _, tt := range tests {
		c, err := config.Parse(filepath.Join(dir, "f.yaml"), []byte("store: {dir: '"+tt.text+"'}\n"), lookup)
		got, problem := "", ""
		var problems config.Problems
		if errors.As(err, &problems) {
			problem = problems[0].Message
		} else {
			got = c.Store.Dir
		}
		if got != tt.want || problem != tt.problem {
			t.Errorf("%s: Got %q, problem %q\nWant %q, problem %q", tt.text, got, problem, tt.want, tt.problem)
		}
	}
	c, err := config.Parse("f.yaml", []byte("store: {counter_cache: \"${NUMBER}\"}\n"), lookup)
	if err != nil || c.Store.CounterCache != 7 {
		t.Errorf("a number from a variable: Got %v, %v", c, err)
	}
}

func TestSecretsStayHidden(t *testing.T) {
	t.Parallel()
	const file = "kafka: {sasl: {mechanism: plain, user: u, password: '${P}'}}\nserve: {token: '${P}'}\n"
	c, err := config.Parse("f.yaml", []byte(file), env("P", "hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	if string(c.Kafka.SASL.Password) != "hunter2" {
		t.Errorf("Got %q", string(c.Kafka.SASL.Password))
	}
	for _, text := range []string{c.String(), c.Kafka.SASL.Password.String(), c.Kafka.SASL.Password.GoString()} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("the secret is in %s", text)
		}
	}
	kafkaOptions, err := c.KafkaOptions()
	if err != nil {
		t.Fatal(err)
	}
	out := new(bytes.Buffer)
	for _, v := range []any{*c, c, c.Kafka, &c.Kafka, c.Kafka.SASL, c.Kafka.SASL.Password, &c.Kafka.SASL.Password, c.Serve, *kafkaOptions, kafkaOptions} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%f", "%c", "%U", "%b"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, "hunter2") || strings.Contains(strings.ToLower(text), fmt.Sprintf("%x", "hunter2")) {
				t.Errorf("%T by %s: the secret is in %s", v, verb, text)
			}
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(out, nil), slog.NewJSONHandler(out, nil)} {
			slog.New(h).Info("x", "value", v)
		}
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("the secret is in the log:\n%s", out)
	}
	if !strings.Contains(c.String(), "password: '********'") && !strings.Contains(c.String(), `password: "********"`) && !strings.Contains(c.String(), "password: ********") {
		t.Errorf("no mask in\n%s", c)
	}
	for _, file := range []string{
		"kafka: {brokers: ['me:${P}@h:9092']}", "kafka: {brokers: ['${P}@h:9092']}", "store: {engine: hbase, hbase: {gateways: ['${P}@h:9090']}}",
		"s3: {endpoint: 'https://me:${P}@h:port', access_key: k, secret_key: s}\ntables: {t: {families: {f: {}}}}\njobs: {j: {table: t, out: 's3://b/p', columns: [{name: k, from: $row, type: string}]}}",
		"s3: {endpoint: 'https://h', access_key: k, secret_key: s}\ntables: {t: {families: {f: {}}}}\njobs: {j: {table: t, out: 's3://k:${P}@b/p', columns: [{name: k, from: $row, type: string}]}}",
		"tables: {t: {families: {f: {}}}}\njobs: {j: {table: t, out: 'https://me:${P}@b:x/p', columns: [{name: k, from: $row, type: string}]}}",
		"registry: {urls: ['http://me:${P}@h:x']}",
		"store: {cache: '${P}'}", "store: {counter_cache: '${P}'}", "store: {engine: '${P}'}", "pipelines: {p: {topics: [t], group: g, start: '${P}'}}", "kafka: {brokers: ['${P}']}", "serve: {listen: '${P}'}",
	} {
		_, err := config.Parse("f.yaml", []byte(file), env("P", "hunter2"))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: Got %v", file, err)
		}
	}
}

// TestPlacesWithPasswords: whoever writes a password where none belongs does not read it
// in the error, and no directory gets its name.
func TestPlacesWithPasswords(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.S3 = config.S3{Endpoint: "https://me:hunter2@h:port", AccessKey: "k", SecretKey: "s", PartSize: 16 << 20}
	for _, at := range []string{"https://me:hunter2@h/p", "https://me:hunter2@h:port/p", "gs://hunter2@b/p", "s3://k:hunter2@b/p", "s3://b/p"} {
		for _, create := range []bool{false, true} {
			if _, err := c.OpenTarget(at, create, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: Got %v", at, err)
			}
		}
	}
	if _, err := config.Default().OpenTarget("s3://b/p", false, nil); err == nil || !strings.Contains(err.Error(), "no s3.endpoint") {
		t.Errorf("Got %v", err)
	}
}

// columnOf is a file with a column of a job, with a setting of its own.
func columnOf(setting string) string {
	return "jobs:\n  j:\n    table: t\n    columns:\n      - {name: a, from: \"f:a\", type: string,\n        " + setting + "}\n    out: ./o\n"
}

// The word null, which is how the documentation writes this policy, is YAML's
// null: it means the policy, with quotes and without.
func TestOnErrorNull(t *testing.T) {
	t.Parallel()
	for _, written := range []string{"null", `"null"`, "'null'"} {
		c, err := config.Parse("f.yaml", []byte(columnOf("on_error: "+written)), nil)
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		if got := c.Jobs["j"].Columns[0].OnError; got != columnar.OnErrorNull {
			t.Errorf("%s: got %q", written, got)
		}
	}
}

func TestDefaultsAndValues(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("f.yaml", []byte("tables: {x: {families: {f: {}}}}\nshutdown_timeout: 1m\nkafka: {brokers: ['a:1, b:2', 'c:3'], rack: r1, max_decompressed: 1MiB, sasl: {mechanism: plain, user: u, password: hunter2}}\npipelines:\n  p: &p\n    topics: [t]\n    group: g\n    start: 2026-01-31T00:00:00Z\n    decode: {format: json, compression: gzip, max_bytes: 1MiB, max_record_bytes: 2MB, max_header_bytes: 4096}\n    map: [{table: x, row: k, put: {f: {q: v}}}]\n    flush: {bytes: 1.5MiB}\n    fetch: {max_batch_bytes: 2MiB}\n    assign: static\n    partitions: [2, 0]\n    dead_letters: {policies: {json: drop, store: retry}, trip_at: 0}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a:1", "b:2", "c:3"}, c.Kafka.Addresses()); diff != "" {
		t.Errorf("brokers (-want +got):\n%s", diff)
	}
	p := c.Pipelines["p"]
	if c.ShutdownTimeout != time.Minute || c.Store.Cache != 256<<20 || p.Flush.Bytes != 3<<19 || p.Flush.Records != 20_000 || p.InFlight != 2 || p.Start.Time != 1769817600000 {
		t.Errorf("Got %+v", c)
	}
	if p.Decode.MaxBytes != 1<<20 || p.Decode.MaxRecordBytes != 2e6 || p.Decode.MaxHeaderBytes != 4096 {
		t.Errorf("Got %+v", p.Decode)
	}
	o, err := c.PipelineOptions("p")
	if err != nil {
		t.Fatal(err)
	}
	if o.Start.Time.UnixMilli() != p.Start.Time || o.Flush.MaxBytes != 3<<19 || o.Plan == nil || o.Name != "p" || o.DrainTimeout != 5*time.Second {
		t.Errorf("Got %+v", o)
	}
	if c.Memory != pipeline.DefaultMemoryBytes {
		t.Errorf("Got memory of %v, want the pipelines' own default", c.Memory)
	}
	poison := pipeline.Poison{Policies: map[string]pipeline.Policy{"json": pipeline.DropRecords, "store": pipeline.RetryRecords}, Retries: 10, Window: 10_000}
	if diff := cmp.Diff(poison, o.Poison); diff != "" {
		t.Errorf("poison (-want +got):\n%s", diff)
	}
	if _, err := c.PipelineOptions("q"); err == nil || !strings.Contains(err.Error(), "it has p") {
		t.Errorf("Got %v", err)
	}
	k, err := c.KafkaOptions()
	if err != nil || k.Validate() != nil || k.DialTimeout != 3*time.Second || k.MaxDecompressed != 1<<20 {
		t.Errorf("Got %+v, %v", k, err)
	}
	if !o.Static || !slices.Equal(o.Partitions, []int32{2, 0}) {
		t.Errorf("Got static %v, partitions %v", o.Static, o.Partitions)
	}
	if o.Fetch.Rack != "r1" || o.Fetch.MaxBatchBytes != 2<<20 || o.Fetch.BufferBytes != 8<<20 {
		t.Errorf("Got %+v", o.Fetch)
	}
	if text := fmt.Sprintf("%+v %#v", *k, *k); strings.Contains(text, "hunter2") {
		t.Errorf("the password is in %s", text)
	}
}

func TestLoadAMissingFile(t *testing.T) {
	t.Parallel()
	_, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"), nil)
	if got, ok := errors.AsType[config.Problems](err); !ok || len(got) != 1 || !strings.Contains(got[0].Hint, "name the file with -c") {
		t.Errorf("Got %v", err)
	}
}

func TestNamesOfPipelines(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		`p`: true, `é/ b:c.d`: true, strings.Repeat("x", 255): true,
		``: false, `.`: false, `..`: false, `a `: false, `a\ab`: false, `a\u200eb`: false, strings.Repeat("x", 256): false,
	} {
		_, err := config.Parse("f.yaml", []byte(tables+"pipelines:\n  \""+name+"\":\n    topics: [a]\n    group: g\n    decode: {format: json}\n    map: [{table: events, row: user, put: {e: {y: user}}}]\n"), nil)
		if good && err != nil || !good && (err == nil || err.Error() != "f.yaml:7:3: the name of a pipeline is 1 to 255 bytes of printable text, and not . or ..: paths, metrics and rows have it") {
			t.Errorf("Got %v of the name %q", err, name)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"../examples/pageviews.yaml", "../examples/access-log.yaml"} {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("a: &a [*a]\nb: *a"))
	f.Add([]byte("store: {<<: 1, dir: !!x y}\n---\n"))
	f.Add([]byte("kafka: {brokers: ['${A:-b}', \"${file:/dev/null}\"]}"))
	f.Add([]byte("tables: {t: {families: {f: {VERSIONS: 0x10, TTL: 1 DAY}}, split: {keys: ['\\x00']}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if strings.Contains(string(data), "file:") {
			return // the fuzzer must not read files
		}
		c, err := config.Parse("f.yaml", data, nil)
		var problems config.Problems
		if err != nil {
			if !errors.As(err, &problems) || len(problems) == 0 || err.Error() == "" {
				t.Fatalf("Got %T %v", err, err)
			}
			for _, p := range problems {
				if p.Message == "" || p.Line < 0 || p.Line > strings.Count(string(data), "\n")+strings.Count(string(data), "\r")+1 {
					t.Fatalf("Got %+v", p)
				}
			}
			return
		}
		_ = c.String()
		for _, name := range c.PipelineNames() {
			if _, err := c.PipelineOptions(name); err != nil {
				t.Fatalf("a file without problems: %v", err)
			}
		}
		if len(c.TableSpecs()) != len(c.Tables) {
			t.Fatal("a table without a descriptor")
		}
	})
}
