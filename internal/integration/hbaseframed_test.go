//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/store"
	"sluice/store/hbasestore"
	"sluice/store/storetest"
)

// framedContract are the tests of the contract that run on a gateway with framed
// transport: what reads and writes, in small pieces and large ones.
var framedContract = []string{
	"wide_row", "gets_of_many_rows", "row_mutations", "distinct_replay", "concurrent_increments", "concurrent_conditions",
}

// schemaElsewhere is a store of which the schemas are changed through another, unframed
// gateway.
type schemaElsewhere struct {
	*hbasestore.Store
	schemas *hbasestore.Store
}

func (s *schemaElsewhere) CreateTable(ctx context.Context, d *store.TableDescriptor, splits [][]byte) error {
	return s.schemas.CreateTable(ctx, d, splits)
}

func (s *schemaElsewhere) AlterTable(ctx context.Context, d *store.TableDescriptor) error {
	return s.schemas.AlterTable(ctx, d)
}

func (s *schemaElsewhere) DropTable(ctx context.Context, table string) error {
	return s.schemas.DropTable(ctx, table)
}

func (s *schemaElsewhere) Close() error { return errors.Join(s.Store.Close(), s.schemas.Close()) }

// TestHBaseFramed: through a real gateway with framed transport tables that it would
// garble are refused and gone, and what reads and writes does what it does elsewhere.
func TestHBaseFramed(t *testing.T) {
	h := startHBase(t)
	in := newHBaseIngestOn(t, h, embeddedKafka(t), 1) // there are the system's tables now
	g := h.gateway(t, nil, "-f")
	in.passThrough(fmt.Sprintf("gateways: [%q], framed: true, retry_timeout: 20s", g.address))
	open := func(t *testing.T, o storetest.Options) *hbasestore.Store {
		t.Helper()
		s, err := hbasestore.Open(t.Context(), &hbasestore.Options{Addresses: []string{g.address}, Framed: true, Now: o.Now, MaxAge: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	t.Run("tables", func(t *testing.T) {
		s, plain := open(t, storetest.Options{}), openHBase(t, h.address, nil)
		defer s.Close()
		defer plain.Close()
		f, n := store.NewFamily("f"), store.NewFamily("n")
		n.Counter = true
		versions := store.NewFamily("f")
		versions.Versions, versions.TTL = 3, 86400
		for _, test := range []struct {
			name    string
			d       store.TableDescriptor
			splits  []string
			garbled bool
		}{
			{"plain", store.TableDescriptor{Families: []store.FamilyDescriptor{versions}}, nil, false},
			{"split", store.TableDescriptor{Families: []store.FamilyDescriptor{f}}, []string{"m"}, true},
			{"split-often", store.TableDescriptor{Families: []store.FamilyDescriptor{f}}, []string{"f", "m", "t"}, true},
			{"counters", store.TableDescriptor{Families: []store.FamilyDescriptor{f, n}}, nil, true},
			{"metadata", store.TableDescriptor{Families: []store.FamilyDescriptor{f}, Metadata: map[string]string{"owner": "me"}}, nil, true},
		} {
			test.d.Name = "framed-" + test.name
			var splits [][]byte
			for _, key := range test.splits {
				splits = append(splits, []byte(key))
			}
			err := s.CreateTable(t.Context(), &test.d, splits)
			switch {
			case !test.garbled && err != nil:
				t.Errorf("%s: %v", test.name, err)
			case test.garbled && (!errors.Is(err, store.ErrInvalidSchema) || !strings.Contains(err.Error(), "a gateway with framed transport garbles split keys and attributes: use an unframed one, or HBase's shell")):
				t.Errorf("%s: Got %v, want that the gateway garbles it, and what to do", test.name, err)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("%s: the error has %d bytes: %v", test.name, len(err.Error()), err)
			}
			if _, err := plain.Table(t.Context(), test.d.Name); errors.Is(err, store.ErrTableNotFound) != test.garbled {
				t.Errorf("%s: the table is there: %v", test.name, err)
			}
		}
	})

	var ran []string
	t.Run("contract", func(t *testing.T) {
		setUnlessGiven(t, "rapid.checks", "5")
		setUnlessGiven(t, "rapid.seed", "1")
		known := map[string]bool{} // directories of engines that were opened before
		storetest.RunContractWithin(t, func(t *testing.T, o storetest.Options) store.Engine {
			name := t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]
			if !slices.Contains(framedContract, name) {
				t.Skip("TestHBaseContract has it")
			}
			ran = append(ran, name)
			s := openHBase(t, h.address, o.Now)
			if !known[o.Dir] {
				emptyHBase(t, s)
				known[o.Dir] = true
			}
			return &schemaElsewhere{Store: open(t, o), schemas: s}
		}, storetest.HBaseLimits())
	})
	slices.Sort(ran)
	if ran = slices.Compact(ran); len(ran) != len(framedContract) {
		t.Errorf("of the contract ran %q, want %q", ran, framedContract)
	}
}
