package main

import "sluice/store"

// filterOption reads the value of FILTER => '…', which is in the filter language
// of docs/filters.md. HBase's shell also takes Java filter objects.
func filterOption(v any) (store.Filter, error) {
	s, ok := v.(string)
	if !ok {
		return nil, badArgument("FILTER => takes a string such as \"PrefixFilter('a')\", not %q", text(v))
	}
	return store.ParseFilterString(s)
}
