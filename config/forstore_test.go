package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/config"
	"sluice/store"
)

func TestForStore(t *testing.T) {
	t.Parallel()
	standard := config.Default().Store.HBase
	hbase := func(change func(*config.HBase)) *config.HBase {
		h := standard
		h.Gateways = []string{"a:9090"}
		if change != nil {
			change(&h)
		}
		return &h
	}
	for _, test := range []struct {
		at   string
		dir  string        // of the embedded engine
		want *config.HBase // of HBase
		err  string
	}{
		{at: "/data", dir: "/data"},
		{at: "pebble:/data", dir: "/data"},
		{at: "pebble:rel/ative", dir: "rel/ative"},
		{at: "hbase:data", dir: "hbase:data"}, // a directory may be called so
		{at: "hbase://a:9090", want: hbase(nil)},
		{at: "hbase://a:9090,[::1]:9091", want: hbase(func(h *config.HBase) { h.Gateways = append(h.Gateways, "[::1]:9091") })},
		{at: "hbase://a:9090?framed=true&connections=3&call_timeout=5s&retry_timeout=1m&max_cell=20MiB&max_frame=4MiB", want: hbase(func(h *config.HBase) {
			h.Framed, h.Connections, h.CallTimeout, h.RetryTimeout = true, 3, 5*time.Second, time.Minute
			h.MaxCell, h.MaxFrame = 20<<20, 4<<20
		})},
		{at: "hbase://a:9090?tls=true&ca_file=/ca.pem&cert_file=c&key_file=k&server_name=n&insecure_skip_verify=true", want: hbase(func(h *config.HBase) {
			h.TLS = config.TLS{Enable: true, CAFile: "/ca.pem", CertFile: "c", KeyFile: "k", ServerName: "n", InsecureSkipVerify: true}
		})},
		{at: "pebble:", err: "names no directory"},
		{at: "s3://bucket/x", err: "not s3://"},
		{at: "hbase://", err: "want HOST:PORT"},
		{at: "hbase://a", err: "want HOST:PORT"},
		{at: "hbase://:9090", err: "want HOST:PORT"},
		{at: "hbase://a:9090/", err: "want HOST:PORT"},
		{at: "hbase://a:0", err: "want HOST:PORT"},
		{at: "hbase://a:9090,", err: "want HOST:PORT"},
		{at: "hbase://a:9090?tsl=true", err: `unknown "tsl"; known are ca_file`},
		{at: "hbase://a:9090?framed=yes", err: "framed=yes"},
		{at: "hbase://a:9090?framed=true&framed=false", err: "framed is given 2 times"},
		{at: "hbase://a:9090?connections=0", err: "connections=0"},
		{at: "hbase://a:9090?max_cell=0", err: "max_cell=0"},
		{at: "hbase://a:9090?max_frame=x", err: "max_frame=x"},
		{at: "hbase://a:9090?call_timeout=-1s", err: "call_timeout=-1s"},
		{at: "hbase://a:9090?ca_file=x", err: "write tls=true"},
		{at: "hbase://a:9090?tls=true&cert_file=x", err: "go together"},
		{at: "hbase://a:9090?%zz", err: "invalid URL escape"},
		{at: "hbase://me:hunter2@a:9090", err: "hbase://...@a:9090: a gateway has no user and password"},
		{at: "hbase://b:9090,hunter2@a:9090", err: "a gateway has no user and password"},
		{at: "hbase://a:9090?tls=true&password=hunter2@x", err: `unknown "password"`},
		{at: "s3://key:hunter2@bucket/x", err: "not s3://"},
		{at: "pebble:http://me:hunter2@h/x?y=z@w", err: "not http://"},
	} {
		c, err := config.ForStore(test.at)
		switch {
		case test.err != "":
			if !errors.Is(err, store.ErrInvalidArgument) || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: Got %v, want %s", test.at, err, test.err)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", test.at, err)
			continue
		}
		if test.want == nil {
			test.want = &standard
			if c.Store.Dir != test.dir || c.Store.Engine != "pebble" {
				t.Errorf("%s: Got %s, %s", test.at, c.Store.Engine, c.Store.Dir)
			}
		} else if c.Store.Engine != "hbase" {
			t.Errorf("%s: Got engine %s", test.at, c.Store.Engine)
		}
		if d := cmp.Diff(test.want, &c.Store.HBase); d != "" {
			t.Errorf("%s (-want +got):\n%s", test.at, d)
		}
	}
}
