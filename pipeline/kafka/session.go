package kafka

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// session is a fetch session with a broker (KIP-227). The broker remembers which
// partitions are asked for and from where; a request names only what is different
// from that, and an answer only the partitions that have news. Ten thousand
// partitions at rest so cost neither side anything. It belongs to one fetch loop.
//
// Numbered requests keep both sides in step. After anything but a good answer
// nothing is known of the broker's side, and the next request is a full one, which
// ends the session and begins another. A broker without room for sessions gives
// none: then every request is full.
type session struct {
	id    int32                             // 0 = none
	epoch int32                             // of the next request; 0 = a full one
	byID  bool                              // it names topics by their ids
	turn  int                               // counts requests
	sent  map[topicPartition]*rememberedAsk // what the broker remembers
}

// rememberedAsk is the question for one partition as the broker knows it.
type rememberedAsk struct {
	topicID                    [16]byte
	offset                     int64
	epoch, lastEpoch, maxBytes int32
	turn                       int // of the last request that wanted it
}

func newSession() *session {
	return &session{sent: make(map[topicPartition]*rememberedAsk)}
}

// full reports whether the next request names everything.
func (s *session) full() bool { return s.epoch == 0 }

// namedFetch is the last version of Fetch that names topics by their names.
const namedFetch = 12

// version returns the version of the next request, for parts, to a broker that takes most,
// namedFetch or later, as Client.negotiate has it. Brokers that fetch by topic id may have
// topics without one, those of Kafka 3.1 and later that keep to an
// inter.broker.protocol.version before 2.8. A session is of names or of ids, and begins anew
// where that changes.
func (s *session) version(most int16, parts []asked) int16 {
	byID := most > namedFetch && !slices.ContainsFunc(parts, func(a asked) bool { return a.topicID == [16]byte{} })
	if byID != s.byID {
		s.lost()
		s.byID = byID
	}
	if byID {
		return most
	}
	return namedFetch
}

// request asks for exactly parts.
func (s *session) request(version int16, o *FetchOptions, parts []asked) *kmsg.FetchRequest {
	req := newFetchRequest(version, o)
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	if s.full() {
		clear(s.sent)
	}
	s.turn++
	topics := make(map[string]int) // → index in req.Topics
	for i := range parts {
		a := &parts[i]
		key := topicPartition{a.r.topic, a.r.partition}
		ask := rememberedAsk{topicID: a.topicID, offset: a.offset, epoch: a.epoch, lastEpoch: a.lastEpoch, maxBytes: a.maxBytes, turn: s.turn}
		if known := s.sent[key]; known == nil {
			s.sent[key] = &ask
		} else {
			known.turn = s.turn
			if *known == ask {
				continue
			}
			*known = ask
		}
		n, ok := topics[key.topic]
		if !ok {
			n = len(req.Topics)
			topics[key.topic] = n
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = key.topic, ask.topicID
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition = key.partition
		p.CurrentLeaderEpoch = ask.epoch
		p.FetchOffset = ask.offset
		p.LastFetchedEpoch = ask.lastEpoch
		p.PartitionMaxBytes = ask.maxBytes
		req.Topics[n].Partitions = append(req.Topics[n].Partitions, p)
	}
	s.forget(req)
	return req
}

// forget names the partitions that are not wanted any more.
func (s *session) forget(req *kmsg.FetchRequest) {
	var topics map[string]int // → index in req.ForgottenTopics
	for key, known := range s.sent {
		if known.turn == s.turn {
			continue
		}
		delete(s.sent, key)
		n, ok := topics[key.topic]
		if !ok {
			if topics == nil {
				topics = make(map[string]int)
			}
			n = len(req.ForgottenTopics)
			topics[key.topic] = n
			t := kmsg.NewFetchRequestForgottenTopic()
			t.Topic, t.TopicID = key.topic, known.topicID
			req.ForgottenTopics = append(req.ForgottenTopics, t)
		}
		req.ForgottenTopics[n].Partitions = append(req.ForgottenTopics[n].Partitions, key.partition)
	}
}

// answered moves the session on by a good answer to the last request.
func (s *session) answered(id int32) error {
	switch {
	case id == 0: // no room for a session, or the broker has ended it
		s.id, s.epoch = 0, 0
	case s.full():
		s.id, s.epoch = id, 1
	case id != s.id:
		err := fmt.Errorf("%w: fetch session %d, want %d", errProtocol, id, s.id)
		s.lost()
		return err
	default:
		s.epoch = max(s.epoch+1, 1) // 1 follows the largest
	}
	return nil
}

// lost begins anew after a request without a good answer. The broker is told to
// end what it may still have.
func (s *session) lost() { s.epoch = 0 }

// broken reports whether err says that the broker has no such session, or has it
// at another request. The next request then begins a new one, at once; a full
// request that is refused so is refused for good.
func (s *session) broken(err error) bool {
	var e code
	if s.full() || !errors.As(err, &e) {
		return false
	}
	switch e {
	case codeFetchSessionNotFound:
		s.id, s.epoch = 0, 0
	case codeInvalidFetchSessionEpoch, codeFetchSessionTopicID:
		s.lost()
	default:
		return false
	}
	return true
}
