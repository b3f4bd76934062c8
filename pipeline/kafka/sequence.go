package kafka

import (
	"context"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// producerID is the name under which a broker remembers the numbers of record
// batches.
type producerID struct {
	id    int64
	epoch int16
}

// noProducer numbers nothing.
var noProducer = producerID{id: -1, epoch: -1}

// sequence numbers the record batches of one producer id to one partition: each by
// the number of its first record.
type sequence struct {
	producerID            // noProducer where a new one is needed
	used       producerID // the last one, which is not used again
	next       int32      // of the next batch
}

// first is the sequence number of the next batch, -1 where it has none.
func (s *sequence) first() int32 {
	if s.producerID == noProducer {
		return -1
	}
	return s.next
}

// advance passes n records. 0 follows the largest number.
func (s *sequence) advance(n int) { s.next = int32((int64(s.next) + int64(n)) & math.MaxInt32) }

// number gives s a producer id where it has none: the producer's, or a new one
// where s has lost that.
func (p *Producer) number(ctx context.Context, s *sequence) error {
	if s.producerID != noProducer {
		return nil
	}
	p.idMu.Lock()
	defer p.idMu.Unlock()
	if p.id == noProducer || s.used == p.id {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version = 2
		req.TransactionTimeoutMillis = math.MaxInt32 // there are no transactions
		rctx, cancel := context.WithTimeout(ctx, p.c.o.RequestTimeout)
		defer cancel()
		resp, err := p.c.request(rctx, anyNode, req)
		if err != nil {
			return fmt.Errorf("get a producer id: %w", err)
		}
		r := resp.(*kmsg.InitProducerIDResponse)
		if e := code(r.ErrorCode); e != codeNone {
			p.c.metrics.countError(e.name())
			return fmt.Errorf("get a producer id: %w", e)
		}
		p.id = producerID{r.ProducerID, r.ProducerEpoch}
	}
	s.producerID, s.used, s.next = p.id, p.id, 0
	return nil
}
