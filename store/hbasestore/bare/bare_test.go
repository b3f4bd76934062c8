package bare

import (
	"net"
	"testing"
	"time"
)

// The client itself is tested where it is used, on a real HBase: by the bench.
func TestDialFails(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for _, framed := range []bool{false, true} {
		if c, err := Dial(nobody.Addr().String(), framed, time.Minute); err == nil {
			c.Close()
			t.Error("a gateway that is not there was reached")
		}
	}
}
