package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/store"
)

func namespaceCommands() []*commandInfo {
	return []*commandInfo{
		{
			name: "create_namespace", min: 1, max: 2, run: createNamespace,
			summary:  "Make a namespace, with properties.",
			examples: "create_namespace 'ns3'\ncreate_namespace 'ns4', {'owner' => 'me'}",
		},
		{
			name: "alter_namespace", min: 2, max: -1, first: namespaceArgument, options: []string{"METHOD"}, run: alterNamespace,
			summary:  "Set or remove properties of a namespace.",
			examples: "alter_namespace 'ns1', {METHOD => 'set', 'owner' => 'me'}\nalter_namespace 'ns1', {METHOD => 'unset', NAME => 'owner'}",
		},
		{
			name: "describe_namespace", min: 1, max: 1, first: namespaceArgument, run: describeNamespace,
			summary: "Show a namespace and its properties.", examples: "describe_namespace 'ns1'",
		},
		{
			name: "drop_namespace", min: 1, max: 1, first: namespaceArgument, run: dropNamespace,
			summary: "Remove a namespace that has no tables.", examples: "drop_namespace 'ns2'",
		},
		{
			name: "list_namespace", max: 1, run: listNamespace,
			summary: "List the namespaces, or those that a regular expression matches.", examples: "list_namespace\nlist_namespace 'ns.*'",
		},
		{
			name: "list_namespace_tables", min: 1, max: 1, first: namespaceArgument, run: listNamespaceTables,
			summary: "List the tables of a namespace.", examples: "list_namespace_tables 'ns1'",
		},
	}
}

// namespacer is what namespaces need of an engine.
type namespacer interface {
	store.Admin
	store.Namespacer
}

func (s *session) namespacer() (namespacer, error) {
	n, ok := s.store.(namespacer)
	if !ok {
		return nil, fmt.Errorf("%w: namespaces, by the %s store", store.ErrUnsupported, s.store.Traits().Name)
	}
	return n, nil
}

// namespaces returns the names of all namespaces.
func (s *session) namespaces(ctx context.Context) ([]string, error) {
	n, err := s.namespacer()
	if err != nil {
		return nil, err
	}
	all, err := n.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, nil
}

// namespaceError gives the words of HBase's shell to errors about a namespace.
func namespaceError(name string, err error) error {
	switch {
	case errors.Is(err, store.ErrNamespaceNotFound):
		return &tableError{"Unknown namespace " + name + "!", err}
	case errors.Is(err, store.ErrNamespaceExists):
		return &tableError{"Namespace already exists: " + name + "!", err}
	}
	return err
}

func createNamespace(s *session, args []any) (string, error) {
	n, err := s.namespacer()
	if err != nil {
		return "", err
	}
	ns := &store.Namespace{Name: text(args[0])}
	for _, a := range args[1:] {
		h, ok := a.(hash)
		if !ok {
			return "", badArgument("%s: the properties of a namespace are {'name' => 'value'}", inspect(a))
		}
		for _, p := range h {
			setProperty(ns, text(p.key), text(p.value))
		}
	}
	return "", namespaceError(ns.Name, n.CreateNamespace(s.ctx, ns))
}

func setProperty(ns *store.Namespace, name, value string) {
	if ns.Properties == nil {
		ns.Properties = map[string]string{}
	}
	ns.Properties[name] = value
}

func alterNamespace(s *session, args []any) (string, error) {
	n, err := s.namespacer()
	if err != nil {
		return "", err
	}
	name := text(args[0])
	ns, err := store.FindNamespace(s.ctx, n, name)
	if err != nil {
		return "", namespaceError(name, err)
	}
	for _, a := range args[1:] {
		h, ok := a.(hash)
		if !ok {
			return "", badArgument("%s: a change of a namespace is {METHOD => 'set', 'name' => 'value'}", inspect(a))
		}
		method, _ := h.get("METHOD")
		switch text(method) {
		case "set":
			for _, p := range h {
				if p.name() != "METHOD" {
					setProperty(ns, text(p.key), text(p.value))
				}
			}
		case "unset":
			v, ok := h.get("NAME")
			if !ok {
				return "", badArgument("METHOD => 'unset' takes NAME => 'property'")
			}
			for _, name := range (pair{value: v}).list() {
				delete(ns.Properties, text(name))
			}
		default:
			return "", badArgument("METHOD => takes 'set' or 'unset', not %s", inspect(method))
		}
	}
	return "", namespaceError(name, n.AlterNamespace(s.ctx, ns))
}

func dropNamespace(s *session, args []any) (string, error) {
	n, err := s.namespacer()
	if err != nil {
		return "", err
	}
	return "", namespaceError(text(args[0]), n.DropNamespace(s.ctx, text(args[0])))
}

func describeNamespace(s *session, args []any) (string, error) {
	n, err := s.namespacer()
	if err != nil {
		return "", err
	}
	name := text(args[0])
	ns, err := store.FindNamespace(s.ctx, n, name)
	if err != nil {
		return "", namespaceError(name, err)
	}
	parts := []string{"NAME => '" + ns.Name + "'"}
	properties := object{}
	for _, k := range sortedKeys(ns.Properties) {
		parts = append(parts, k+" => '"+ns.Properties[k]+"'")
		properties = append(properties, field{k, ns.Properties[k]})
	}
	s.print.linef("DESCRIPTION\n{%s}\nQuota is disabled", strings.Join(parts, ", "))
	return "", s.print.object(object{{"namespace", ns.Name}, {"properties", properties}})
}

func listNamespace(s *session, args []any) (string, error) {
	match, err := pattern(args)
	if err != nil {
		return "", err
	}
	names, err := s.namespaces(s.ctx)
	if err != nil {
		return "", err
	}
	s.print.header("NAMESPACE")
	names = slices.DeleteFunc(names, func(n string) bool { return !match(n) })
	_, err = s.listNames("namespace", names)
	return "", err
}

func listNamespaceTables(s *session, args []any) (string, error) {
	n, err := s.namespacer()
	if err != nil {
		return "", err
	}
	s.print.header("TABLE")
	tables, err := store.NamespaceTables(s.ctx, n, text(args[0]))
	if err != nil {
		return "", namespaceError(text(args[0]), err)
	}
	for i, t := range tables {
		_, t, ok := strings.Cut(t, ":")
		if ok {
			tables[i] = t // HBase lists them without their namespace
		}
	}
	return s.listNames("table", tables)
}

// listNames prints names, one a line, and returns them as Ruby prints an array.
func (s *session) listNames(kind string, names []string) (string, error) {
	quoted := make([]string, len(names))
	for i, n := range names {
		s.print.line(n)
		if err := s.print.object(object{{kind, n}}); err != nil {
			return "", err
		}
		quoted[i] = strconv.Quote(n)
	}
	s.print.count(len(names))
	return "[" + strings.Join(quoted, ", ") + "]", nil
}
