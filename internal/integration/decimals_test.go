//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/jobs/target"
	"sluice/store"
	"sluice/store/memstore"
)

// writeDecimals writes the rows of argv[2], [key, price, amount] each, to files of argv[1].
const writeDecimals = `
import decimal, json, sys
import duckdb, polars, pyarrow, pyarrow.feather, pyarrow.parquet

decimal.getcontext().prec = 80
rows = json.loads(sys.argv[2])
number = lambda text: None if text is None else decimal.Decimal(text)
def table(amounts):
    return pyarrow.table({
        "key": pyarrow.array([r[0] for r in rows]),
        "price": pyarrow.array([number(r[1]) for r in rows], pyarrow.decimal128(9, 2)),
        "amount": pyarrow.array([number(r[2]) for r in rows], amounts),
    })
data = table(pyarrow.decimal128(38, 10))
at = lambda name: sys.argv[1] + "/" + name
pyarrow.parquet.write_table(data, at("pyarrow.parquet"))
pyarrow.parquet.write_table(data, at("integers.parquet"), store_decimal_as_integer=True, use_dictionary=False)
pyarrow.feather.write_feather(data, at("pyarrow.arrow"), compression="zstd")
duckdb.sql("COPY (SELECT * FROM data) TO '" + at("duckdb.parquet") + "'")
polars.from_arrow(data).write_parquet(at("polars.parquet"))
pyarrow.parquet.write_table(table(pyarrow.decimal256(60, 10)), at("wide.parquet"))
pyarrow.feather.write_feather(table(pyarrow.decimal256(38, 10)), at("wide.arrow"), compression="uncompressed")
`

// I6: decimals of up to 38 digits in files of pyarrow, DuckDB and Polars are imported as
// they are; wider ones are refused by name.
func TestImportDecimalsOfOthers(t *testing.T) {
	nines := strings.Repeat("9", 28) + "." + strings.Repeat("9", 10)
	want := [][]*string{}
	row := func(key, price, amount string) {
		r := []*string{&key, &price, &amount}
		for i := range r {
			if *r[i] == "" {
				r[i] = nil
			}
		}
		want = append(want, r)
	}
	row("a", "-9999999.99", "-"+nines)
	row("b", "0.00", "0.0000000000")
	row("c", "", nines)
	row("d", "0.01", "")
	row("e", "12.50", "-0.0000000001")
	row("f", "-0.50", "9223372036854775808.0000000000")
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), python(t), "-c", writeDecimals, dir, string(text)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	from, err := target.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	imported := func(file string) (rows [][]*string, err error) {
		name := strings.ReplaceAll(file, ".", "_")
		if err := s.CreateTable(t.Context(), &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
			return nil, err
		}
		if _, err := jobs.ImportFiles(t.Context(), &jobs.ImportFilesOptions{
			From: from, Files: []string{file}, To: s, Into: name, Time: time.UnixMilli(1), Columns: []columnar.ColumnSpec{
				{Name: "key", From: "$row", Type: "string"},
				{Name: "price", From: "f:price", Type: "decimal(9,2)"},
				{Name: "amount", From: "f:amount", Type: "decimal(38,10)"},
			},
		}); err != nil {
			return nil, err
		}
		sc := s.Scan(t.Context(), &store.Scan{Table: name})
		defer sc.Close()
		for sc.Next() {
			key := string(sc.Row().Key)
			r := []*string{&key, nil, nil}
			for _, c := range sc.Row().Cells {
				value := string(c.Value)
				r[map[string]int{"price": 1, "amount": 2}[string(c.Qualifier)]] = &value
			}
			rows = append(rows, r)
		}
		return rows, sc.Err()
	}
	for _, file := range []string{"pyarrow.parquet", "integers.parquet", "pyarrow.arrow", "duckdb.parquet", "polars.parquet"} {
		got, err := imported(file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", file, d)
		}
	}
	for _, file := range []string{"wide.parquet", "wide.arrow"} {
		if _, err := imported(file); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s: open %s file: column amount has type", file, strings.TrimPrefix(filepath.Ext(file), "."))) {
			t.Errorf("%s: Got %v", file, err)
		}
	}
}
