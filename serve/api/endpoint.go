package api

import (
	"fmt"
	"log/slog"
	"time"

	"sluice/store"
)

// EndpointFile is the name of the file in a data directory that tells where the
// daemon which has the directory open can be reached. Only its owner can read it
// (mode 0600): the token in it is all that a local user needs.
const EndpointFile = "sluice.endpoint"

// Endpoint is the content of EndpointFile. It prints without its token, which only
// its JSON has.
type Endpoint struct {
	Address  string    `json:"address"` // host:port
	Token    string    `json:"token"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Instance string    `json:"instance"` // random; what the server behind Address must answer
}

// String leaves the token out.
func (e Endpoint) String() string { return fmt.Sprintf("%s, process %d", e.Address, e.PID) }

// GoString keeps %#v from printing the token.
func (e Endpoint) GoString() string { return "api.Endpoint{" + e.String() + "}" }

// LogValue keeps slog from printing it.
func (e Endpoint) LogValue() slog.Value { return slog.StringValue(e.String()) }

// Hello is the answer of GET …/hello, by which a client tells the daemon that
// wrote an EndpointFile from a process that took over its port.
type Hello struct {
	Instance string       `json:"instance"`
	PID      int          `json:"pid"`
	Version  Version      `json:"version"`
	Traits   store.Traits `json:"traits"`
	StoreID  string       `json:"store_id,omitempty"` // empty: the engine has none
}
