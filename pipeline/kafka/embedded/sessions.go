package embedded

import (
	"context"
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
// the answer to JoinGroup: that one gets its partitions and keeps them for ever. As
// a member may die before it is told its id, and a request to leave be lost, groups
// are asked after each join for members that were not heard of.
type sessions struct {
	cluster *kfake.Cluster
	dial    func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex // guards below
	closed  bool
	members map[groupMember]*session
	looks   map[*time.Timer]struct{} // that are to come
	leaving sync.WaitGroup
}

type groupMember struct{ group, member string }

type session struct {
	timeout time.Duration
	timer   *time.Timer
}

// watchSessions observes the requests of group members, and dials the cluster to
// take some out. Close what it returns.
func watchSessions(c *kfake.Cluster, dial func(ctx context.Context, network, address string) (net.Conn, error)) *sessions {
	s := &sessions{cluster: c, dial: dial, members: make(map[groupMember]*session), looks: make(map[*time.Timer]struct{})}
	observe := func(key kmsg.Key, seen func(kmsg.Request)) {
		c.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			seen(r)
			return nil, nil, false
		})
	}
	observe(kmsg.JoinGroup, func(r kmsg.Request) {
		if r, ok := r.(*kmsg.JoinGroupRequest); ok {
			// It waits for the others as long as a rebalance may take; before
			// version 1 that is the session's time.
			timeout := time.Duration(r.SessionTimeoutMillis+max(r.RebalanceTimeoutMillis, r.SessionTimeoutMillis)) * time.Millisecond
			s.lookLater(r.Group, timeout)
			if r.MemberID != "" {
				s.seen(r.Group, r.MemberID, timeout)
			}
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

// lookLater starts the clock of every member of a group that was not heard of until
// then.
func (s *sessions) lookLater(group string, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(timeout, func() {
		s.mu.Lock()
		delete(s.looks, t)
		if s.closed {
			s.mu.Unlock()
			return
		}
		s.leaving.Add(1)
		s.mu.Unlock()
		defer s.leaving.Done()
		for _, addr := range s.cluster.ListenAddrs() {
			members, _ := s.describe(addr, group) // as with leave
			for _, id := range members {
				s.found(group, id, timeout)
			}
		}
	})
	s.looks[t] = struct{}{}
}

// found starts the clock of a member that was not heard of.
func (s *sessions) found(group, member string, timeout time.Duration) {
	s.mu.Lock()
	_, known := s.members[groupMember{group, member}]
	s.mu.Unlock()
	if !known {
		s.seen(group, member, timeout)
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
		_ = s.leave(addr, key)
	}
	s.lookLater(key.group, m.timeout) // whether it is gone
}

// leave asks one node to take a member out of its group.
func (s *sessions) leave(addr string, key groupMember) error {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group, r.MemberID = 2, key.group, key.member
	_, err := s.ask(addr, r)
	return err
}

// describe asks one node for the members of a group.
func (s *sessions) describe(addr, group string) (members []string, err error) {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Version, r.Groups = 2, []string{group}
	body, err := s.ask(addr, r)
	if err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.Version = r.Version
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("describe group %s: %w", group, err)
	}
	for i := range resp.Groups {
		for j := range resp.Groups[i].Members {
			members = append(members, resp.Groups[i].Members[j].MemberID)
		}
	}
	return members, nil
}

// ask sends one request, of a version before flexible ones, and returns the body of
// the answer.
func (s *sessions) ask(addr string, r kmsg.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := s.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)); err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	var head [8]byte // size and correlation id
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	body, err := io.ReadAll(io.LimitReader(conn, max(int64(binary.BigEndian.Uint32(head[:]))-4, 0)))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	return body, nil
}

// close stops all clocks and waits for the requests under way.
func (s *sessions) close() {
	s.mu.Lock()
	s.closed = true
	for _, m := range s.members {
		m.timer.Stop()
	}
	for t := range s.looks {
		t.Stop()
	}
	s.mu.Unlock()
	s.leaving.Wait()
}
