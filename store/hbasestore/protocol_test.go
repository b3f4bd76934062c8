package hbasestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/apache/thrift/lib/go/thrift"
	"github.com/google/go-cmp/cmp"

	"sluice/store/hbasestore/internal/hbase"
)

// bytesConn is a socket whose other end has sent in and takes everything.
type bytesConn struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (c *bytesConn) Read(b []byte) (int, error)  { return c.in.Read(b) }
func (c *bytesConn) Write(b []byte) (int, error) { return c.out.Write(b) }

// thriftProtocol is Thrift's own over b.
func thriftProtocol(b *bytes.Buffer, framed bool) thrift.TProtocol {
	conf := &thrift.TConfiguration{MaxMessageSize: maxMessageBytes, MaxFrameSize: maxMessageBytes, TBinaryStrictRead: thrift.BoolPtr(true), TBinaryStrictWrite: thrift.BoolPtr(true)}
	var t thrift.TTransport = &thrift.TMemoryBuffer{Buffer: b}
	if framed {
		t = thrift.NewTFramedTransportConf(t, conf)
	}
	return thrift.NewTBinaryProtocolConf(t, conf)
}

// writeMessage writes a message as a client does.
func writeMessage(t testing.TB, p thrift.TProtocol, s thrift.TStruct) {
	t.Helper()
	ctx := t.Context()
	if err := errors.Join(p.WriteMessageBegin(ctx, "name", thrift.REPLY, -7), s.Write(ctx, p), p.WriteMessageEnd(ctx), p.Flush(ctx)); err != nil {
		t.Fatal(err)
	}
}

func readMessage(t testing.TB, p thrift.TProtocol, s thrift.TStruct) error {
	t.Helper()
	ctx := t.Context()
	name, kind, seq, err := p.ReadMessageBegin(ctx)
	if err == nil && (name != "name" || kind != thrift.REPLY || seq != -7) {
		t.Errorf("Got message %q %d %d", name, kind, seq)
	}
	if err == nil {
		err = s.Read(ctx, p)
	}
	if err == nil {
		err = p.ReadMessageEnd(ctx)
	}
	return err
}

// messages are of every kind of field that HBase's service has, and of sizes around
// those that are treated differently. They are not to be changed.
var messages = sync.OnceValue(func() []thrift.TStruct {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	field := func(n int) []byte {
		b := make([]byte, n)
		for at := 0; at < n; {
			at += copy(b[at:], noise[rng.IntN(len(noise)/2):])
		}
		return b
	}
	at, kind, yes := int64(-5), int8(12), true
	var all []thrift.TStruct
	for _, n := range []int{0, 1, 63, 64, slabField - 1, slabField, slabField + 1, bufferBytes - 1, bufferBytes, bufferBytes + 1, 2*sureField + 5} {
		r := &hbase.TResult_{Row: field(3), ColumnValues: []*hbase.TColumnValue{}, Partial: true, Stale: true}
		for i := range 7 {
			v := &hbase.TColumnValue{Family: []byte("f"), Qualifier: field(i), Value: field(n)}
			n = min(n, slabField+i)
			if i%2 == 0 {
				v.Timestamp, v.Type, v.Tags = &at, &kind, field(i)
			}
			r.ColumnValues = append(r.ColumnValues, v)
		}
		all = append(all, r, &hbase.THBaseServiceGetScannerRowsResult{Success: []*hbase.TResult_{{ColumnValues: []*hbase.TColumnValue{}}, r}})
	}
	many := &hbase.TPut{Row: field(9), ColumnValues: []*hbase.TColumnValue{}, Attributes: map[string][]byte{ttlAttribute: field(8)}, Durability: hbase.TDurabilityPtr(hbase.TDurability_SYNC_WAL)}
	for range 10_000 { // several buffers
		many.ColumnValues = append(many.ColumnValues, &hbase.TColumnValue{Family: []byte("f"), Qualifier: field(rng.IntN(9)), Value: field(rng.IntN(40)), Timestamp: &at})
	}
	scan := hbase.NewTScan()
	scan.ColFamTimeRangeMap = map[string]*hbase.TTimeRange{strings.Repeat("family", 20): {MinStamp: 1, MaxStamp: at}}
	scan.Reversed = &yes
	family := hbase.NewTColumnFamilyDescriptor()
	family.Name = []byte("f")
	return append(all, many, scan, &hbase.TDelete{Row: field(2), DeleteType: hbase.TDeleteType_DELETE_FAMILY},
		&hbase.THBaseServiceGetResult{Io: &hbase.TIOError{Message: new(string), CanRetry: &yes}}, family)
})

// TestProtocol: what is written is what Thrift's own protocol writes, byte by byte, and
// what that writes is read as it reads it, however it arrives.
func TestProtocol(t *testing.T) {
	t.Parallel()
	for _, framed := range []bool{false, true} {
		for _, m := range messages() {
			var want bytes.Buffer
			writeMessage(t, thriftProtocol(&want, framed), m)
			c := &bytesConn{}
			w := newWire(c, framed)
			w.begin()
			writeMessage(t, newProtocol(w), m)
			if !w.sent || !bytes.Equal(c.out.Bytes(), want.Bytes()) {
				t.Errorf("framed %v: %T: other bytes, %d and %d", framed, m, c.out.Len(), want.Len())
			}
			for how, in := range map[string]io.Reader{
				"at once": bytes.NewReader(want.Bytes()),
				"halves":  iotest.HalfReader(bytes.NewReader(want.Bytes())),
				"the end": iotest.DataErrReader(bytes.NewReader(want.Bytes())),
			} {
				got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(thrift.TStruct)
				if err := readMessage(t, newProtocol(newWire(&bytesConn{in: in}, framed)), got); err != nil {
					t.Fatalf("framed %v, %s: %T: %v", framed, how, m, err)
				}
				again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(thrift.TStruct)
				if err := readMessage(t, thriftProtocol(bytes.NewBuffer(bytes.Clone(want.Bytes())), framed), again); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, again) {
					t.Errorf("framed %v, %s: %T differs", framed, how, m)
				}
			}
		}
	}
}

// TestProtocolBytewise is TestProtocol for what arrives byte by byte, and for fields
// that are appended to.
func TestProtocolBytewise(t *testing.T) {
	t.Parallel()
	m := messages()[5]
	var sent bytes.Buffer
	writeMessage(t, thriftProtocol(&sent, true), m)
	writeMessage(t, thriftProtocol(&sent, true), m)
	p := newProtocol(newWire(&bytesConn{in: iotest.OneByteReader(&sent)}, true))
	for range 2 { // of one connection
		got := &hbase.THBaseServiceGetScannerRowsResult{}
		if err := readMessage(t, p, got); err != nil {
			t.Fatal(err)
		}
		for _, r := range got.Success {
			_ = append(r.Row, "overwritten"...)
			for _, v := range r.ColumnValues {
				for _, b := range [][]byte{v.Family, v.Qualifier, v.Value} {
					_ = append(b, "overwritten"...)
				}
			}
		}
		if d := cmp.Diff(m, thrift.TStruct(got)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

// TestProtocolRefuses: an answer that is garbage, or ends, is an error, and takes no more
// memory than what has arrived.
func TestProtocolRefuses(t *testing.T) {
	t.Parallel()
	var good bytes.Buffer
	writeMessage(t, thriftProtocol(&good, false), messages()[2])
	head := good.Bytes()[:4+4+len("name")+4]
	message := func(tail string) string { return string(head) + tail }
	frame := func(n uint32, s string) string {
		return string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + s
	}
	for name, test := range map[string]struct {
		framed bool
		in     string
		want   string
	}{
		"no version":      {false, "\x00\x00\x00\x04name", "version"},
		"nothing":         {false, "", "EOF"},
		"half a head":     {false, string(head[:6]), "EOF"},
		"half a field":    {false, message("\x0b\x00\x01\x00\x00\x00\x05ab"), "EOF"},
		"negative field":  {false, message("\x0b\x00\x01\xff\xff\xff\xff"), "field of -1 bytes"},
		"large, not sent": {false, message("\x0b\x00\x01\x7f\xff\xff\xff" + strings.Repeat("x", 2*sureField)), "EOF"},
		"negative list":   {false, message("\x0f\x00\x02\x0c\x80\x00\x00\x00"), "list of -2147483648 elements"},
		"long list":       {false, message("\x0f\x00\x02\x0c\x10\x00\x00\x00"), "list of 268435456 elements"},
		"negative frame":  {true, frame(1<<31, good.String()), "frame of 2147483648 bytes"},
		"short frame":     {true, frame(uint32(good.Len()-1), good.String()), "ends before its message"},
		"short large":     {true, frame(40, message("\x0b\x00\x01\x00\x10\x00\x00"+strings.Repeat("x", 1<<20))), "ends before its message"},
		"long frame":      {true, frame(uint32(good.Len()+1), good.String()+"x"), "1 bytes behind its message"},
		"list in frame":   {true, frame(29, message("\x0f\x00\x02\x0c\x00\x00\x00\x06hello")), "list of 6 elements"},
		"half a frame":    {true, frame(uint32(good.Len()), good.String()[:good.Len()/2]), "EOF"},
	} {
		err := readMessage(t, newProtocol(newWire(&bytesConn{in: strings.NewReader(test.in)}, test.framed)), &hbase.TResult_{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Got %v, want %q", name, err, test.want)
		}
		if err != nil && answered(err) {
			t.Errorf("%s: %v is an answer", name, err)
		}
	}
}

// fuzzAnswer has read take whatever bytes in by our protocol and by Thrift's own.
func fuzzAnswer(f *testing.F, read func(t *testing.T, ours *protocol, thrifts thrift.TProtocol)) {
	for _, m := range messages()[:8] {
		var b bytes.Buffer
		writeMessage(f, thriftProtocol(&b, false), m)
		f.Add(b.Bytes()[16:])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(in))), in...) // which bounds its lists
		w := newWire(&bytesConn{in: bytes.NewReader(frame)}, true)
		if err := w.nextFrame(); err != nil {
			t.Fatal(err)
		}
		read(t, newProtocol(w), thriftProtocol(bytes.NewBuffer(frame), true))
	})
}

// FuzzProtocol: whatever bytes are read as Thrift's own protocol reads them.
func FuzzProtocol(f *testing.F) {
	fuzzAnswer(f, func(t *testing.T, ours *protocol, thrifts thrift.TProtocol) {
		got, want := &hbase.TResult_{}, &hbase.TResult_{}
		err := got.Read(t.Context(), ours)
		werr := want.Read(t.Context(), thrifts)
		if (err == nil) != (werr == nil) {
			t.Fatalf("Got %v, want %v", err, werr)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("Got %v, want %v", got, want)
		}
	})
}
