package instant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sluice/store"
)

// ErrAnother is wrapped by the errors of what has read, or would go on with, a table that is
// not the one any more that it was: what was read may be of two tables. Read from the
// beginning, it is of one.
var ErrAnother = errors.New("the table is not what it was")

// incarnated is an engine that tells when a table was dropped, truncated and made anew.
type incarnated interface {
	// Incarnation returns a text that is another one once the table was. What the
	// engine says of the table's schema from then on is no older than the call.
	Incarnation(ctx context.Context, table string) (string, error)
}

// incarnations are the tables that an Unfrozen was asked for, as they were at first.
type incarnations struct {
	mu     sync.Mutex
	tables map[string]*incarnation
}

func newIncarnations() *incarnations { return &incarnations{tables: map[string]*incarnation{}} }

// incarnation is what a table must stay while it is read.
type incarnation struct {
	engine   string                   // what the engine says; empty = nothing
	families []store.FamilyDescriptor // all
	read     map[string]bool          // those that were scanned
}

// look returns what a table is now.
func (u *Unfrozen) look(ctx context.Context, table string) (*incarnation, error) {
	i := &incarnation{read: map[string]bool{}}
	if e, ok := u.engine.(incarnated); ok {
		var err error
		if i.engine, err = e.Incarnation(ctx, table); err != nil {
			return nil, err
		}
	}
	t, err := u.engine.Table(ctx, table)
	if err != nil {
		return nil, err
	}
	i.families = t.Families
	return i, nil
}

// note remembers what a table was when it was first asked for, and that the families of
// columns, none = all, are read of it.
func (u *Unfrozen) note(ctx context.Context, table string, reads bool, columns []store.Column) error {
	table = store.CanonicalName(table)
	if store.NamespaceOf(table) == store.SystemNamespace {
		return nil
	}
	u.seen.mu.Lock()
	i := u.seen.tables[table]
	u.seen.mu.Unlock()
	if i == nil {
		now, err := u.look(ctx, table)
		if err != nil {
			return err
		}
		u.seen.mu.Lock()
		if i = u.seen.tables[table]; i == nil {
			i = now
			u.seen.tables[table] = i
		}
		u.seen.mu.Unlock()
	}
	if !reads {
		return nil
	}
	u.seen.mu.Lock()
	defer u.seen.mu.Unlock()
	for _, c := range columns {
		i.read[c.Family] = true
	}
	if len(columns) == 0 {
		for k := range i.families {
			i.read[i.families[k].Name] = true
		}
	}
	return nil
}

// text says what of a table must stay, for the families that wanted passes.
func (i *incarnation) text(wanted func(family string) bool) string {
	all := []string{}
	for k := range i.families {
		f := &i.families[k]
		if !wanted(f.Name) {
			continue
		}
		ttl := "FOREVER"
		if f.TTL != store.Forever {
			ttl = fmt.Sprint(f.TTL)
		}
		all = append(all, fmt.Sprintf(familyText+"%s with VERSIONS %d, MIN_VERSIONS %d, TTL %s, KEEP_DELETED_CELLS %v, NEW_VERSION_BEHAVIOR %t, COUNTER %t, DISTINCT %t",
			f.Name, f.Versions, f.MinVersions, ttl, f.KeepDeleted, f.NewVersionBehavior, f.Counter, f.Distinct))
	}
	slices.Sort(all)
	if i.engine != "" {
		all = append([]string{i.engine}, all...)
	}
	return strings.Join(all, "; ")
}

// Incarnation says what a table was when u was first asked for it: the same text as long as
// it is neither dropped nor truncated, nor those of the families, none = all, deleted or
// altered in what a read sees of them. It is empty for the store's own tables.
func (u *Unfrozen) Incarnation(ctx context.Context, table string, families []string) (string, error) {
	if err := u.note(ctx, table, false, nil); err != nil {
		return "", err
	}
	u.seen.mu.Lock()
	defer u.seen.mu.Unlock()
	i := u.seen.tables[store.CanonicalName(table)]
	if i == nil {
		return "", nil // of the store's own
	}
	return i.text(func(f string) bool { return len(families) == 0 || slices.Contains(families, f) }), nil
}

// familyText begins what text says of a family.
const familyText = "family "

// SameTable returns an error that wraps ErrAnother where two texts of Incarnation differ, and
// says in what. An empty one is not known.
func SameTable(table, was, is string) error {
	if was == "" || was == is {
		return nil
	}
	before, now := strings.Split(was, "; "), strings.Split(is, "; ")
	gone := slices.DeleteFunc(slices.Clone(before), func(s string) bool { return slices.Contains(now, s) })
	come := slices.DeleteFunc(now, func(s string) bool { return slices.Contains(before, s) })
	why := "altered"
	if slices.ContainsFunc(gone, func(s string) bool { return !strings.HasPrefix(s, familyText) }) {
		why = "truncated, disabled and enabled, or dropped and made anew"
	}
	if len(come) == 0 {
		come = []string{"nothing of it"}
	}
	return fmt.Errorf("table %s: %w: it was %s (before: %s; now: %s)", table, ErrAnother, why, strings.Join(gone, "; "), strings.Join(come, "; "))
}

// Check returns why what was read of a source, which may be nil, is not to be trusted, or nil:
// as Lost does, and where it is an Unfrozen one of whose tables is not what it was when it was
// asked for first. It reads these from the engine.
func Check(ctx context.Context, s Source) error {
	if err := Lost(s); err != nil {
		return err
	}
	u := UnfrozenOf(s)
	if u == nil {
		return nil
	}
	u.seen.mu.Lock()
	before := map[string]*incarnation{}
	for name, i := range u.seen.tables {
		if len(i.read) > 0 {
			before[name] = i
		}
	}
	u.seen.mu.Unlock()
	for name, was := range before {
		is, err := u.look(ctx, name)
		if errors.Is(err, store.ErrTableNotFound) {
			return fmt.Errorf("table %s: %w: it was dropped while it was read: %w", name, ErrAnother, err)
		}
		if err != nil {
			return fmt.Errorf("is table %s still what it was? %w", name, err)
		}
		u.seen.mu.Lock()
		read := func(f string) bool { return was.read[f] }
		err = SameTable(name, was.text(read), is.text(read))
		u.seen.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
