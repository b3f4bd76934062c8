package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The predefined namespaces (HBase NamespaceDescriptor). SystemNamespace is a
// third one, which no list shows.
const (
	// DefaultNamespace is that of tables whose name has no colon;
	// "default:t" is another spelling of "t".
	DefaultNamespace = "default"
	// HBaseNamespace is that of HBase's own tables, of which a Sluice store
	// has none.
	HBaseNamespace = "hbase"
)

// Namespace is a named group of tables.
type Namespace struct {
	Name string
	// Properties are free texts, kept and shown; nil = none.
	Properties map[string]string
}

// Clone returns a deep copy.
func (n *Namespace) Clone() *Namespace {
	return &Namespace{Name: n.Name, Properties: maps.Clone(n.Properties)}
}

// Predefined reports whether a namespace is one that no user makes, changes or
// drops.
func Predefined(namespace string) bool {
	return namespace == DefaultNamespace || namespace == HBaseNamespace || namespace == SystemNamespace
}

// NamespaceOf returns the namespace of a table.
func NamespaceOf(table string) string {
	if ns, _, ok := strings.Cut(table, ":"); ok {
		return ns
	}
	return DefaultNamespace
}

// CanonicalName returns the name under which a store keeps a table: "t" for
// "default:t", other names as they are.
func CanonicalName(table string) string {
	if q, ok := strings.CutPrefix(table, DefaultNamespace+":"); ok && q != "" {
		return q
	}
	return table
}

// CheckNamespace applies HBase's rules for the names of namespaces: letters,
// digits and _. Its error wraps ErrInvalidArgument.
func CheckNamespace(name string) error {
	bad := func(why string) error { return fmt.Errorf("%w: namespace %q: %s", ErrInvalidArgument, name, why) }
	switch {
	case name == "":
		return bad("it is empty")
	case !utf8.ValidString(name):
		return bad("it is not UTF-8")
	case name == "zookeeper":
		return bad("it is reserved")
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' {
			return bad("a namespace has letters, digits and _ only")
		}
	}
	return nil
}

// FindNamespace returns one namespace, the caller's own. Its error wraps
// ErrNamespaceNotFound.
func FindNamespace(ctx context.Context, e Namespacer, name string) (*Namespace, error) {
	all, err := e.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(n Namespace) bool { return n.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: %s", ErrNamespaceNotFound, name)
	}
	return &all[i], nil
}

// NamespaceTables returns the tables of a namespace, sorted, as Tables names
// them. Its error wraps ErrNamespaceNotFound.
func NamespaceTables(ctx context.Context, e interface {
	Admin
	Namespacer
}, name string,
) ([]string, error) {
	if _, err := FindNamespace(ctx, e, name); err != nil {
		return nil, err
	}
	all, err := e.Tables(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(t string) bool { return NamespaceOf(t) != name }), nil
}

// NamespaceSet is the namespaces of a store, for engines: it holds the rules. It
// is immutable; a change returns a new one. The zero value has the predefined
// ones.
type NamespaceSet struct{ users []Namespace } // sorted by name

// Users returns a copy of the namespaces that users made, by name.
func (s NamespaceSet) Users() []Namespace {
	all := make([]Namespace, len(s.users))
	for i := range s.users {
		all[i] = *s.users[i].Clone()
	}
	return all
}

// All returns a copy of the namespaces that Namespacer.Namespaces returns.
func (s NamespaceSet) All() []Namespace {
	all := append(s.Users(), Namespace{Name: DefaultNamespace}, Namespace{Name: HBaseNamespace})
	slices.SortFunc(all, compareNamespaces)
	return all
}

func compareNamespaces(a, b Namespace) int { return strings.Compare(a.Name, b.Name) }

func (s NamespaceSet) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.users, name, func(n Namespace, name string) int { return strings.Compare(n.Name, name) })
}

// Check reports with ErrNamespaceNotFound that a table's namespace is missing.
func (s NamespaceSet) Check(table string) error {
	ns := NamespaceOf(table)
	if _, ok := s.find(ns); !ok && !Predefined(ns) {
		return fmt.Errorf("%w: %s", ErrNamespaceNotFound, ns)
	}
	return nil
}

// Create returns the set with n. Its errors are those of
// Namespacer.CreateNamespace.
func (s NamespaceSet) Create(n *Namespace) (NamespaceSet, error) {
	if err := CheckNamespace(n.Name); err != nil {
		return s, err
	}
	i, ok := s.find(n.Name)
	switch {
	case n.Name == SystemNamespace:
		return s, fmt.Errorf("%w: namespace %s is the store's own", ErrConstraint, n.Name)
	case ok || Predefined(n.Name):
		return s, fmt.Errorf("%w: %s", ErrNamespaceExists, n.Name)
	}
	return NamespaceSet{slices.Insert(slices.Clone(s.users), i, *n.Clone())}, nil
}

// Alter returns the set with n in place of the one of its name. Its errors are
// those of Namespacer.AlterNamespace.
func (s NamespaceSet) Alter(n *Namespace) (NamespaceSet, error) {
	i, err := s.user(n.Name, "changed")
	if err != nil {
		return s, err
	}
	users := slices.Clone(s.users)
	users[i] = *n.Clone()
	return NamespaceSet{users}, nil
}

// Drop returns the set without a namespace, which has this many tables. Its
// errors are those of Namespacer.DropNamespace.
func (s NamespaceSet) Drop(name string, tables int) (NamespaceSet, error) {
	i, err := s.user(name, "removed")
	if err != nil {
		return s, err
	}
	if tables > 0 {
		return s, fmt.Errorf("%w: only empty namespaces can be removed; namespace %s has %d tables", ErrConstraint, name, tables)
	}
	return NamespaceSet{slices.Delete(slices.Clone(s.users), i, i+1)}, nil
}

// user returns the index of a namespace that users may change.
func (s NamespaceSet) user(name, what string) (int, error) {
	if Predefined(name) {
		return 0, fmt.Errorf("%w: reserved namespace %s cannot be %s", ErrConstraint, name, what)
	}
	i, ok := s.find(name)
	if !ok {
		return 0, fmt.Errorf("%w: %s", ErrNamespaceNotFound, name)
	}
	return i, nil
}
