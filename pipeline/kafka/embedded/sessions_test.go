package embedded

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// member speaks for a group member, request by request.
type member struct {
	t    *testing.T
	conn net.Conn
	id   string
}

func dial(t *testing.T, network *kfake.VirtualNetwork, c *kfake.Cluster) *member {
	t.Helper()
	conn, err := network.DialContext(t.Context(), "tcp", c.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &member{t: t, conn: conn}
}

func (m *member) send(r kmsg.Request) {
	m.t.Helper()
	if _, err := m.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) receive(r kmsg.Response) {
	m.t.Helper()
	_ = m.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var size [4]byte
	if _, err := io.ReadFull(m.conn, size[:]); err != nil {
		m.t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(m.conn, body); err != nil {
		m.t.Fatal(err)
	}
	if err := r.ReadFrom(body[4:]); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) join() *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.ProtocolType = 5, "g", m.id, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 300, 600
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	r.Protocols = append(r.Protocols, p)
	return r
}

// enter gets the member its id.
func (m *member) enter() {
	m.t.Helper()
	r := m.join()
	m.send(r)
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = r.Version
	m.receive(resp)
	m.id = resp.MemberID
}

func (m *member) joined() *kmsg.JoinGroupResponse {
	m.t.Helper()
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = 5
	m.receive(resp)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		m.t.Fatal(err)
	}
	return resp
}

func (m *member) sync(generation int32, all ...string) {
	m.t.Helper()
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 3, "g", m.id, generation
	for _, id := range all {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = id, []byte{1}
		r.GroupAssignment = append(r.GroupAssignment, a)
	}
	m.send(r)
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.Version = r.Version
	m.receive(resp)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) heartbeat(generation int32) error {
	m.t.Helper()
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 3, "g", m.id, generation
	m.send(r)
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.Version = r.Version
	m.receive(resp)
	return kerr.ErrorForCode(resp.ErrorCode)
}

// A member that dies between JoinGroup and its answer is taken out of the group,
// as a real broker does, and the others get its partitions.
func TestMemberThatDiesInJoinLeaves(t *testing.T) {
	t.Parallel()
	for name, join := range map[string]func(dead *member){
		"with its id": func(dead *member) {
			dead.enter()
			dead.send(dead.join())
		},
		"without": func(dead *member) {
			r := dead.join()
			r.Version = 2 // it gets its id with its partitions
			dead.send(r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testDiesInJoin(t, join) })
		})
	}
}

func testDiesInJoin(t *testing.T, join func(dead *member)) {
	network := new(kfake.VirtualNetwork)
	cluster, err := kfake.NewCluster(kfake.Ports(1), kfake.ListenFn(network.Listen), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	watched := watchSessions(cluster, network.DialContext)
	t.Cleanup(func() { cluster.Close(); watched.close() })
	alive, dead := dial(t, network, cluster), dial(t, network, cluster)
	alive.enter()
	alive.send(alive.join())
	alive.sync(alive.joined().Generation, alive.id)

	join(dead)
	generation := int32(1)
	for alive.heartbeat(generation) == nil {
		continue // until the group rebalances for it
	}
	if err := dead.conn.Close(); err != nil {
		t.Fatal(err)
	}
	alive.send(alive.join())
	generation = alive.joined().Generation
	alive.sync(generation, alive.id)

	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for alive.heartbeat(generation) == nil {
		if time.Now().After(deadline) {
			t.Fatal("the dead member is still in the group")
		}
		<-tick.C
	}
	alive.send(alive.join())
	if r := alive.joined(); r.Generation == generation || len(r.Members) != 1 {
		t.Errorf("Got generation %d with %d members, want the one that lives in a later generation", r.Generation, len(r.Members))
	}
}
