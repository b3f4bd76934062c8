package pebblestore

import "github.com/cockroachdb/pebble/v2"

// PebbleOptions returns Pebble's options as Open sets them for o, which may be
// nil. It is for programs that compare the engine with Pebble alone, on a
// directory of their own: a directory that Pebble has opened so holds no store.
// The caller unrefs the Cache when the last user of it is closed. Its error is
// Validate's.
func PebbleOptions(o *Options) (*pebble.Options, error) {
	if o != nil {
		if err := o.Validate(); err != nil {
			return nil, err
		}
	}
	o = o.withDefaults()
	return o.pebbleOptions(newPebbleLog(o.Logger)), nil
}
