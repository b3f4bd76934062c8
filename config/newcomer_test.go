package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/config"
)

// newcomerFile is a file without a mistake.
const newcomerFile = `kafka:
  brokers: ["127.0.0.1:9092"]
tables:
  events:
    families:
      e: {VERSIONS: 1}
      day: {COUNTER: true}
pipelines:
  views:
    topics: [views]
    group: sluice-views
    decode: {format: json}
    event_time: {field: ts, format: unix_ms}
    map:
      - table: events
        when: status == 200
        row: user + "/" + page
        put:
          e: {page: page}
        increment:
          - {family: day, qualifier: 'date(time, "yyyyMMdd")'}
`

// The mistakes of those who write their first file: each is said with its place, what is
// wrong, and what would be right.
func TestNewcomersMistakes(t *testing.T) {
	t.Parallel()
	if _, err := config.Parse("f.yaml", []byte(newcomerFile), nil); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, old, changed string
		want               []string
	}{
		{"a tab", "  brokers:", "\tbrokers:", []string{
			`f.yaml:2:1: not valid YAML: found character '	' that cannot start any token (indent with spaces: YAML takes no tabs for it)`,
		}},
		{"a tab inside", "        row:", "\t\trow:", []string{
			`f.yaml:17:1: not valid YAML: found character '	' that cannot start any token (indent with spaces: YAML takes no tabs for it)`,
		}},
		{"windows line ends", "\n", "\r\n", nil},
		{"windows line ends and a mistake", "", "", []string{
			`f.yaml:21:38: no function dat (did you mean "date"?)`,
		}},
		{"UTF-16", "", "", []string{
			`f.yaml:1:1: the file is in UTF-16 (save it as UTF-8)`,
		}},
		{"Latin-1", "# ", "", []string{
			`f.yaml:10:26: the file is not in UTF-8: byte 0xe9 (save it as UTF-8)`,
		}},
		{"indented too little", "    topics:", "  topics:", []string{
			`f.yaml:11:5: not valid YAML: value is not allowed in this context (indent it as the keys beside it)`,
		}},
		{"indented too much", "    group:", "      group:", []string{
			`f.yaml:11:7: not valid YAML: value is not allowed in this context (indent it as the keys beside it)`,
		}},
		{"no name of a pipeline", "  views:\n", "", []string{
			`f.yaml:9:5: topics is a setting of each of pipelines, and no name of one (topics belongs below a name: write pipelines: {NAME: {topics: …}}, or indent it further)`,
			`f.yaml:10:5: group is a setting of each of pipelines, and no name of one (group belongs below a name: write pipelines: {NAME: {group: …}}, or indent it further)`,
			`f.yaml:11:5: decode is a setting of each of pipelines, and no name of one (decode belongs below a name: write pipelines: {NAME: {decode: …}}, or indent it further)`,
			`f.yaml:12:5: event_time is a setting of each of pipelines, and no name of one (event_time belongs below a name: write pipelines: {NAME: {event_time: …}}, or indent it further)`,
			`f.yaml:13:5: map is a setting of each of pipelines, and no name of one (map belongs below a name: write pipelines: {NAME: {map: …}}, or indent it further)`,
		}},
		{"a list of families", "    families:\n      e: {VERSIONS: 1}\n      day: {COUNTER: true}\n", "    families: [e, day]\n", []string{
			`f.yaml:5:15: tables.events.families must be a mapping of keys to values, not a list (write {e: {}, day: {}})`,
		}},
		{"no name of a family", "      e: {VERSIONS: 1}\n      day: {COUNTER: true}\n", "      VERSIONS: 1\n", []string{
			`f.yaml:5:5: table events: Table must have at least one column family`,
			`f.yaml:6:7: VERSIONS is a setting of each of tables.events.families, and no name of one (VERSIONS belongs below a name: write tables.events.families: {NAME: {VERSIONS: …}}, or indent it further)`,
		}},
		{"a key of another place", "kafka:\n  brokers:", "brokers:", []string{
			`f.yaml:1:1: unknown key "brokers" (brokers is a key of kafka)`,
		}},
		{"a key of another place inside", "    group: ", "    topic: views\n    brokers: x\n    group: ", []string{
			`f.yaml:11:5: unknown key "topic" in pipelines.views (did you mean "topics"?)`,
			`f.yaml:12:5: unknown key "brokers" in pipelines.views (brokers is a key of kafka)`,
		}},
		{"a key that is nowhere", "    group: ", "    colour: red\n    group: ", []string{
			`f.yaml:11:5: unknown key "colour" in pipelines.views (known: assign, backfill, dead_letters, decode, dedup, event_time, fetch, flush, group, in_flight, map, on_data_loss, on_topic_change, partitions, rollups, start, tests, topics)`,
		}},
		{"the wrong type", "[views]", "views", []string{
			`f.yaml:10:13: pipelines.views.topics must be a list, not a text (write [views])`,
		}},
		{"a mapping for a text", "group: sluice-views", "group: {name: x}", []string{
			`f.yaml:11:12: pipelines.views.group must be a text, not a mapping (a text that begins with a brace, or has a colon within braces, needs quotes)`,
		}},
		{"true for settings", "kafka:\n", "kafka:\n  tls: true\n", []string{
			`f.yaml:2:8: kafka.tls must be a mapping of keys to values, not true or false (write {enable: true})`,
		}},
		{"a number in quotes", "    group:", "    in_flight: \"2\"\n    group:", []string{
			`f.yaml:11:16: pipelines.views.in_flight must be a whole number, not a text (remove the quotes)`,
		}},
		{"a missing variable", "\"127.0.0.1:9092\"", "\"${BROKERS}\"", []string{
			`f.yaml:2:13: environment variable BROKERS is not set; set it, or write ${BROKERS:-default}`,
		}},
		{"a missing secret", "kafka:\n", "kafka:\n  sasl: {mechanism: plain, user: u, password: \"${file:/run/secrets/kafka}\"}\n", []string{
			`f.yaml:2:47: ${file:…}: open /run/secrets/kafka: no such file or directory`,
		}},
		{"no secret", "kafka:\n", "kafka:\n  sasl: {mechanism: plain, user: u}\n", []string{
			`f.yaml:2:3: plain needs user and password (write password: ${VAR}, or ${file:/path})`,
		}},
		{"a pipeline twice", "pipelines:\n", "pipelines:\n  views: {}\n", []string{
			`f.yaml:9:3: topics is missing in pipelines.views`,
			`f.yaml:9:3: group is missing in pipelines.views`,
			`f.yaml:9:3: no format "" (there are avro, combined, common, csv, json, logfmt, ndjson, protobuf, raw, tsv)`,
			`f.yaml:9:3: there are no rules (a rule has a table, a row, and put, append, increment or delete)`,
			`f.yaml:10:3: key "views" is given twice in pipelines; the first is in line 9 (remove one of them, or give it another name)`,
		}},
		{"a family that is not there", "e: {page: page}", "f: {page: page}", []string{
			`f.yaml:19:11: table events has no family f (did you mean "e"?)`,
		}},
		{"a table that is not there", "table: events", "table: event", []string{
			`f.yaml:15:16: no table event (did you mean "events"?)`,
		}},
		{"a table that is nowhere", "table: events", "table: clicks", []string{
			`f.yaml:15:16: no table clicks (declare it under tables)`,
		}},
		{"an increment without a family", "family: day, ", "", []string{
			`f.yaml:21:13: the family is not given (a COUNTER family of the table)`,
		}},
		{"an unknown function", "date(time,", "dat(time,", []string{
			`f.yaml:21:38: no function dat (did you mean "date"?)`,
		}},
		{"an unknown function unlike any", "date(time,", "strftime(time,", []string{
			`f.yaml:21:38: no function strftime (there are coalesce, date, decimal, fixed, hash16, hash16_hex, hash32, hash32_hex, hash64, hash64_hex, header, i64, int64, len, lower, minute_of_day, ms_of_day, pad, reverse, reverse_ts, salt, u16, u32, u64, upper, and those of expr-lang)`,
		}},
		{"expr's function misspelt", "row: user", "row: trimm(user)", []string{
			`f.yaml:17:14: no function trimm (did you mean "trim"?)`,
		}},
		{"a layout of others", "yyyyMMdd", "YYYYMMDD", []string{
			`f.yaml:21:50: layout "YYYYMMDD": byte 0: no field YYYY; a layout has yyyy MM MMM dd HH mm ss SSS Z XXX and text in single quotes`,
		}},
		{"a time format", "format: unix_ms", "format: iso8601", []string{
			`f.yaml:13:37: layout "iso8601": byte 0: no field i; a layout has yyyy MM MMM dd HH mm ss SSS Z XXX and text in single quotes (unix_ms, unix_s, rfc3339, or a layout such as yyyy-MM-dd HH:mm:ss)`,
		}},
		{"a time format misspelt", "format: unix_ms", "format: unixms", []string{
			`f.yaml:13:37: layout "unixms": byte 0: no field u; a layout has yyyy MM MMM dd HH mm ss SSS Z XXX and text in single quotes (did you mean "unix_ms"?)`,
		}},
		{"a zone", "format: unix_ms", "format: yyyy-MM-dd HH:mm:ss, zone: CEST", []string{
			`f.yaml:13:64: no time zone "CEST": write an IANA name such as Europe/Berlin`,
		}},
		{"SQL's equals", "status == 200", "status = 200", []string{
			`f.yaml:16:22: unexpected token Operator("=") (write ==)`,
		}},
		{"SQL's not equal", "status == 200", "status <> 200", []string{
			`f.yaml:16:23: unexpected token Operator(">") (write !=)`,
		}},
		{"SQL's and", "status == 200", "status == 200 AND ok", []string{
			`f.yaml:16:29: unexpected token Identifier("AND") (write and)`,
		}},
		{"SQL's null", "status == 200", "status IS NOT NULL", []string{
			`f.yaml:16:22: unexpected token Identifier("IS") (write == nil or != nil)`,
		}},
		{"SQL's like", "status == 200", "page LIKE '/a%'", []string{
			`f.yaml:16:20: unexpected token Identifier("LIKE") (write contains, startsWith, endsWith or matches)`,
		}},
		{"a not of YAML's", "status == 200", "!ok", []string{
			`f.yaml:15:9: the row is not given (an expression that makes the row key)`,
			`f.yaml:15:9: the rule does nothing (give it put, append, increment or delete)`,
			`f.yaml:16:15: YAML tags such as !ok are not used here (a text that begins with ! needs quotes)`,
		}},
		{"a star of YAML's", "status == 200", "*ok", []string{
			`f.yaml:16:15: alias *ok has no anchor before it (a text that begins with * needs quotes)`,
		}},
		{"a comment of YAML's", "status == 200", "any(tags, # startsWith \"n\")", []string{
			`f.yaml:16:23: unexpected token EOF (what follows # is a comment: put the expression in quotes)`,
		}},
		{"quotes of YAML's", "row: user + ", "row: \"u\" + ", []string{
			`f.yaml:17:18: not valid YAML: value is not allowed in this context. map key-value is pre-defined (put all of the value in other quotes, such as '"a" + b')`,
		}},
		{"quotes of YAML's within braces", "{page: page}", "{page: \"p\" + page}", []string{
			`f.yaml:19:25: not valid YAML: ',' or '}' must be specified (put all of the value in other quotes, such as '"a" + b')`,
		}},
		{"a colon of YAML's", "row: user + \"/\"", "row: user + \": \"", []string{
			`f.yaml:17:14: not valid YAML: mapping value is not allowed in this context (put the value in quotes)`,
		}},
		{"a colon of YAML's within braces", "{page: page}", "{page: ok ? a : b}", nil},
		{"a condition of YAML's", "row: user + \"/\" + page", "row: ok ? user : page", []string{
			`f.yaml:17:14: not valid YAML: mapping value is not allowed in this context (put the value in quotes)`,
		}},
		{"an at sign", "group: sluice-views", "group: @views", []string{
			`f.yaml:11:12: not valid YAML: '@' is a reserved character (put the value in quotes)`,
		}},
		{"a brace", "table: events", "table: {events}", []string{
			`f.yaml:15:16: pipelines.views.map[0].table must be a text, not a mapping (a text that begins with a brace, or has a colon within braces, needs quotes)`,
		}},
		{"an anchor that is not there", "    group:", "    flush: *defaults\n    group:", []string{
			`f.yaml:11:12: alias *defaults has no anchor before it (a text that begins with * needs quotes)`,
		}},
		{"a merge key", "    group:", "    <<: {in_flight: 2}\n    group:", []string{
			`f.yaml:11:5: merge keys (<<) are not supported (repeat the settings, or use an alias for the whole value)`,
		}},
		{"a duration without a unit", "    group:", "    flush: {age: 5}\n    group:", []string{
			`f.yaml:11:18: pipelines.views.flush.age must be a duration such as 250ms, 10s or 1h30m, not "5"`,
		}},
		{"a duration in words", "    group:", "    flush: {age: 5 seconds}\n    group:", []string{
			`f.yaml:11:18: pipelines.views.flush.age must be a duration such as 250ms, 10s or 1h30m, not "5 seconds"`,
		}},
		{"a size in words", "kafka:\n", "memory: 1 gigabyte\nkafka:\n", []string{
			`f.yaml:1:9: "1 gigabyte" is not a size: write 64KiB, 16MiB, 1GiB or a number of bytes`,
		}},
		{"yes", "kafka:\n", "kafka:\n  tls: {enable: yes}\n", []string{
			`f.yaml:2:17: kafka.tls.enable must be true or false, not "yes"`,
		}},
		{"a start", "    group:", "    start: 2026-01-31\n    group:", []string{
			`f.yaml:11:12: "2026-01-31" is no place to start: write earliest, latest, committed or a time such as 2026-01-31T00:00:00Z`,
		}},
		{"an unclosed bracket", "[views]", "[views", []string{
			`f.yaml:11:5: not valid YAML: ',' or ']' must be specified (close the bracket or the brace before it)`,
		}},
		{"an unclosed quote", "group: sluice-views", "group: \"sluice-views", []string{
			`f.yaml:17:22: not valid YAML: value is not allowed in this context. map key-value is pre-defined (are the quotes before it closed?)`,
		}},
		{"a dash without a blank", "      - table:", "      -table:", []string{
			`f.yaml:15:15: not valid YAML: mapping value is not allowed in this context (write a blank behind the dash or the colon)`,
		}},
		{"a colon without a blank", "    group: ", "    group:", []string{
			`f.yaml:11:5: not valid YAML: non-map value is specified (write a blank behind the dash or the colon)`,
		}},
		{"a TTL as a duration", "{VERSIONS: 1}", "{VERSIONS: 1, TTL: 7d}", []string{
			`f.yaml:6:29: family e: TTL => "7d": want seconds, FOREVER, or a text like '1 DAY 2 HOURS'`,
		}},
		{"a broker with a scheme", "127.0.0.1:9092", "kafka://127.0.0.1:9092", []string{
			`f.yaml:2:13: not the address of a broker (write host:port, such as 127.0.0.1:9092)`,
		}},
		{"brokers as a text", `["127.0.0.1:9092"]`, `127.0.0.1:9092,127.0.0.1:9093`, []string{
			`f.yaml:2:12: kafka.brokers must be a list, not a text (write [127.0.0.1:9092,127.0.0.1:9093])`,
		}},
		{"a job's type", "pipelines:\n", "jobs:\n  j: {table: events, out: x, columns: [{name: a, from: \"e:page\", type: text}]}\npipelines:\n", []string{
			`f.yaml:9:72: "text" is no type; it is one of string, int64, float64, bool, timestamp, bytes, json and decimal(P,S)`,
		}},
		{"a job's column", "pipelines:\n", "jobs:\n  j: {table: events, out: x, columns: [{name: a, from: page, type: string}]}\npipelines:\n", []string{
			`f.yaml:9:56: "page" has no colon; write family:qualifier, or "page:" for the empty qualifier`,
		}},
		{"a job's family", "pipelines:\n", "jobs:\n  j: {table: events, out: x, columns: [{name: a, from: \"f:page\", type: string}]}\npipelines:\n", []string{
			`f.yaml:9:56: table events has no family "f" (did you mean "e"?); it has day, e`,
		}},
		{"a job's cron", "pipelines:\n", "jobs:\n  j: {table: events, out: x, schedule: {cron: daily}, columns: [{name: a, from: \"e:page\", type: string}]}\npipelines:\n", []string{
			`f.yaml:9:47: "daily": expected 5 to 6 fields, found 1: [daily]; write such as "30 2 * * *", or @daily`,
		}},
		{"a job's filter", "pipelines:\n", "jobs:\n  j: {table: events, out: x, filter: \"status = 200\", columns: [{name: a, from: \"e:page\", type: string}]}\npipelines:\n", []string{
			`f.yaml:9:38: filter string, column 1: expected one of KeyOnlyFilter, FirstKeyOnlyFilter, PrefixFilter, ColumnPrefixFilter, MultipleColumnPrefixFilter, ColumnCountGetFilter, PageFilter, ColumnPaginationFilter, InclusiveStopFilter, TimestampsFilter, RowFilter, FamilyFilter, QualifierFilter, ValueFilter, ColumnRangeFilter, SingleColumnValueFilter, SingleColumnValueExcludeFilter, DependentColumnFilter, ColumnValueFilter, found "status"`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := strings.Replace(newcomerFile, tt.old, tt.changed, 1)
			switch tt.name {
			case "windows line ends":
				file = strings.ReplaceAll(newcomerFile, "\n", "\r\n")
			case "windows line ends and a mistake":
				file = strings.ReplaceAll(strings.Replace(newcomerFile, "date(", "dat(", 1), "\n", "\r\n")
			case "UTF-16":
				file = "\xff\xfek\x00a\x00f\x00k\x00a\x00:\x00"
			case "Latin-1":
				file = strings.Replace(newcomerFile, "views]", "views] # caf\xe9", 1)
			}
			_, err := config.Parse("f.yaml", []byte(file), nil)
			var got []string
			var problems config.Problems
			if err != nil && !errors.As(err, &problems) {
				t.Fatalf("Got %T %v, want Problems", err, err)
			}
			for _, p := range problems {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
