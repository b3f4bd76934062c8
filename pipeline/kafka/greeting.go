package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// errNotKafka: what answers at an address is no broker.
var errNotKafka = errors.New("the answer is not Kafka's")

// greeting looks at the first answer of a connection before kafka-go decodes it, which
// makes room for as many versions of requests as the answer claims: some gigabytes where an
// HTTP server says that it cannot read the question.
type greeting struct {
	mu       sync.Mutex // guards below
	question [8]byte    // of size, key and version
	asked    int        // bytes of question
	answer   [14]byte
	answered int // bytes of answer
}

// writes notes what was written.
func (g *greeting) writes(b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked += copy(g.question[g.asked:], b)
}

// reads returns an error, which wraps errNotKafka, where what was read is no answer.
func (g *greeting) reads(b []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.answered == len(g.answer) {
		return nil
	}
	g.answered += copy(g.answer[g.answered:], b)
	if g.answered < 4 {
		return nil
	}
	size := int64(binary.BigEndian.Uint32(g.answer[:]))
	// kafka-go looks for a TLS alert itself.
	if size > maxMetadata && g.answer[0] != alertRecord {
		return fmt.Errorf("%w: it begins with %q", errNotKafka, g.answer[:g.answered])
	}
	if g.answered < len(g.answer) || binary.BigEndian.Uint16(g.question[4:]) != uint16(kmsg.ApiVersions) {
		return nil
	}
	// The size counts four bytes of correlation id, two of an error and four of a length; a
	// version takes six.
	if n := int64(int32(binary.BigEndian.Uint32(g.answer[10:]))); n > (size-10)/6 {
		return fmt.Errorf("%w: %d versions of requests in %d bytes", errNotKafka, n, size)
	}
	return nil
}

// greetedConn is a connection whose first answer is looked at.
type greetedConn struct {
	net.Conn
	greeting greeting
	wrong    error // wraps errNotKafka
}

func (c *greetedConn) Write(b []byte) (int, error) {
	c.greeting.writes(b)
	return c.Conn.Write(b)
}

func (c *greetedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.wrong = c.greeting.reads(b[:n]); c.wrong != nil {
		return 0, c.wrong
	}
	return n, err
}

// alertRecord is the first byte of a TLS alert (RFC 8446, section 5.1).
const alertRecord = 21
