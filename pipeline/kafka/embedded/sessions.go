package embedded

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sessions takes members out of their groups that are not heard of any more.
// kfake does so itself, but for a member whose connection ends while it waits for
// the answer to JoinGroup: that one gets its partitions and keeps them for ever.
type sessions struct {
	cluster *kfake.Cluster

	mu      sync.Mutex // guards below
	closed  bool
	members map[groupMember]*session
	leaving sync.WaitGroup
}

type groupMember struct{ group, member string }

type session struct {
	timeout time.Duration
	timer   *time.Timer
}

// watchSessions observes the requests of group members. Close what it returns.
func watchSessions(c *kfake.Cluster) *sessions {
	s := &sessions{cluster: c, members: make(map[groupMember]*session)}
	observe := func(key kmsg.Key, seen func(kmsg.Request)) {
		c.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			seen(r)
			return nil, nil, false
		})
	}
	observe(kmsg.JoinGroup, func(r kmsg.Request) {
		if r, ok := r.(*kmsg.JoinGroupRequest); ok && r.MemberID != "" {
			// It waits for the others as long as a rebalance may take.
			s.seen(r.Group, r.MemberID, time.Duration(r.SessionTimeoutMillis+r.RebalanceTimeoutMillis)*time.Millisecond)
		}
	})
	observe(kmsg.SyncGroup, func(r kmsg.Request) {
		if r, ok := r.(*kmsg.SyncGroupRequest); ok {
			s.seen(r.Group, r.MemberID, 0)
		}
	})
	observe(kmsg.Heartbeat, func(r kmsg.Request) {
		if r, ok := r.(*kmsg.HeartbeatRequest); ok {
			s.seen(r.Group, r.MemberID, 0)
		}
	})
	observe(kmsg.LeaveGroup, func(r kmsg.Request) {
		if r, ok := r.(*kmsg.LeaveGroupRequest); ok {
			s.gone(r.Group, r.MemberID)
			for i := range r.Members {
				s.gone(r.Group, r.Members[i].MemberID)
			}
		}
	})
	return s
}

// seen restarts a member's clock, at a new timeout where that is positive.
func (s *sessions) seen(group, member string, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := groupMember{group, member}
	m := s.members[key]
	switch {
	case s.closed || m == nil && timeout <= 0:
		return
	case m == nil:
		m = &session{timeout: timeout}
		m.timer = time.AfterFunc(timeout, func() { s.expire(key, m) })
		s.members[key] = m
		return
	case timeout > 0:
		m.timeout = timeout
	}
	m.timer.Reset(m.timeout)
}

func (s *sessions) gone(group, member string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[groupMember{group, member}]; m != nil {
		m.timer.Stop()
		delete(s.members, groupMember{group, member})
	}
}

// expire sends the LeaveGroup that the member cannot send any more.
func (s *sessions) expire(key groupMember, m *session) {
	s.mu.Lock()
	if s.closed || s.members[key] != m {
		s.mu.Unlock()
		return
	}
	delete(s.members, key)
	s.leaving.Add(1)
	s.mu.Unlock()
	defer s.leaving.Done()
	for _, addr := range s.cluster.ListenAddrs() {
		// Only the group's coordinator does what it is asked; and a broker
		// that does not answer has stopped.
		_ = leave(addr, key)
	}
}

// leave asks one node to take a member out of its group.
func leave(addr string, key groupMember) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return fmt.Errorf("leave group %s: %w", key.group, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return fmt.Errorf("leave group %s: %w", key.group, err)
	}
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group, r.MemberID = 2, key.group, key.member
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)); err != nil {
		return fmt.Errorf("leave group %s: %w", key.group, err)
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return fmt.Errorf("leave group %s: %w", key.group, err)
	}
	if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
		return fmt.Errorf("leave group %s: %w", key.group, err)
	}
	return nil
}

// close stops all clocks and waits for the requests under way.
func (s *sessions) close() {
	s.mu.Lock()
	s.closed = true
	for _, m := range s.members {
		m.timer.Stop()
	}
	s.mu.Unlock()
	s.leaving.Wait()
}
