package arrowfile_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"

	"sluice/jobs/arrowfile"
	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"", "lz4", "zstd"} {
		t.Run("codec="+codec, func(t *testing.T) {
			t.Parallel()
			columnartest.Run(t, contract(codec))
		})
	}
}

// contract returns the files of a codec for the contract.
func contract(codec string) columnartest.Format {
	return columnartest.Format{
		Write: func(w io.Writer, columns []columnar.Column, metadata map[string]string) (columnar.FileWriter, error) {
			return arrowfile.NewWriter(w, columns, &arrowfile.Options{Codec: codec, Metadata: metadata})
		},
		Read: func(r io.ReaderAt, size int64) (columnar.FileReader, error) {
			return arrowfile.NewReader(r, size, nil)
		},
	}
}

func TestYields(t *testing.T) { // not parallel: turns.During
	columnartest.Yields(t, contract(""))
}

// TestAllocations checks that everything Arrow allocated is released.
func TestAllocations(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"none", "lz4", "zstd"} {
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		defer mem.AssertSize(t, 0)
		columns := []columnar.Column{{Name: "n", Type: columnar.Int64}, {Name: "s", Type: columnar.String, Nullable: true}}
		b := columnar.NewBatch(columns)
		for i := range 1000 {
			b.Vector(0).AppendInt64(int64(i))
			b.Vector(1).AppendNull()
		}
		var out bytes.Buffer
		w, err := arrowfile.NewWriter(&out, columns, &arrowfile.Options{Codec: codec, Allocator: mem})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := w.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := arrowfile.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()), mem)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for {
			b, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			rows += b.Rows()
		}
		if err := r.Close(); err != nil || rows != 3000 {
			t.Errorf("Got %d rows, %v", rows, err)
		}
	}
}

// TestArrowReader reads a file with Arrow's own reader and compares the
// values with those of the batch.
func TestArrowReader(t *testing.T) {
	t.Parallel()
	columns := []columnar.Column{{Name: "when", Type: columnar.Timestamp, Nullable: true}}
	b := columnar.NewBatch(columns)
	b.Vector(0).AppendInt64(1_700_000_000_123_456)
	b.Vector(0).AppendNull()
	var out bytes.Buffer
	w, err := arrowfile.NewWriter(&out, columns, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := ipc.NewFileReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rec, err := r.Record(0)
	if err != nil {
		t.Fatal(err)
	}
	if got := rec.Schema().Field(0).Type.String(); got != "timestamp[us, tz=UTC]" {
		t.Errorf("Got type %s", got)
	}
	if got, want := rec.Column(0).String(), `[1700000000123456 (null)]`; got != want {
		t.Errorf("Got %s, want %s", got, want)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	_, err := arrowfile.NewWriter(io.Discard, nil, &arrowfile.Options{Codec: "snappy"})
	if err == nil || !strings.Contains(err.Error(), `"snappy" is no codec of Arrow files`) {
		t.Errorf("Got %v", err)
	}
}
