package flight

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// flightID names a flight that is held; whoever does not know it cannot guess it.
type flightID [16]byte

// newFlightID returns one that was never there.
func newFlightID() (id flightID) {
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return id
}

// String returns what logs show of a flight: too little to read it.
func (id flightID) String() string { return hex.EncodeToString(id[:4]) }

// ticketVersion is the first byte of a ticket; the flight's id follows, and the part as 4
// bytes big-endian. No client looks into it, and no ticket outlives its daemon.
const (
	ticketVersion = 1
	ticketBytes   = 1 + 16 + 4
)

// ticket returns that of a part of a flight.
func (id flightID) ticket(part int) []byte {
	b := append(make([]byte, 0, ticketBytes), ticketVersion)
	b = append(b, id[:]...)
	return binary.BigEndian.AppendUint32(b, uint32(part))
}

// errTicket: bytes that no GetFlightInfo has made.
var errTicket = errors.New("this is no ticket of this server: take those of the endpoints that GetFlightInfo returns")

// readTicket reads what ticket has made. Its error is errTicket.
func readTicket(b []byte) (id flightID, part uint32, err error) {
	if len(b) != ticketBytes || b[0] != ticketVersion {
		return id, 0, errTicket
	}
	return flightID(b[1:17]), binary.BigEndian.Uint32(b[17:]), nil
}
