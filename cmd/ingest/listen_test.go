package main

import (
	"net"
	"strings"
	"syscall"
	"testing"
)

// TestListenError: another daemon is asked for where the port is taken, and nowhere else.
func TestListenError(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, inUse := net.Listen("tcp", taken.Addr().String())
	for err, hint := range map[error]bool{inUse: true, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRNOTAVAIL}: false} {
		if got := listenError("serve.listen", err).Error(); !strings.HasPrefix(got, "serve.listen: listen tcp") || strings.Contains(got, "another daemon") != hint {
			t.Errorf("Got %q, want serve.listen, and another daemon: %v", got, hint)
		}
	}
}
