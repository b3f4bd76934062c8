package kafka

import (
	"context"
	"sync"
)

// gathering answers the questions of many with few requests. Each partition that is opened
// has its topic described, with all partitions, and asks what its log has; thousands are
// opened at once: at the start, after a rebalance, after a broker was away. An answer is
// never older than its question: who asks while a request is on its way waits for the next
// one, which is made for all who have asked until then. K is what one request can be about,
// Q a part of a question and A an answer, which all have and nobody may change.
type gathering[K comparable, Q, A any] struct {
	mu     sync.Mutex
	queues map[K]*gatheringQueue[Q, A] // that are in use
}

type gatheringQueue[Q, A any] struct {
	turn chan struct{}   // has an element while a request is on its way
	next *gathered[Q, A] // for the next one; nil = nobody has asked
}

// gathered is what one request asks, and its answer once done is closed.
type gathered[Q, A any] struct {
	questions []Q
	done      chan struct{}
	answer    A
	err       error
	ended     bool // who made the request has given up: the others have no answer
}

// ask returns what request answers to questions, and to those that others have asked at the
// same time.
func (g *gathering[K, Q, A]) ask(ctx context.Context, about K, questions []Q, request func(context.Context, []Q) (A, error)) (answer A, err error) {
	for {
		queue, a, first := g.join(about, questions)
		if first {
			g.request(ctx, queue, a, request)
			g.leave(about, queue)
			return a.answer, a.err
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return answer, ctx.Err()
		}
		if !a.ended {
			return a.answer, a.err
		}
	}
}

// join adds questions to the next request, which who is the first makes.
func (g *gathering[K, Q, A]) join(about K, questions []Q) (queue *gatheringQueue[Q, A], a *gathered[Q, A], first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queues == nil {
		g.queues = make(map[K]*gatheringQueue[Q, A])
	}
	queue = g.queues[about]
	if queue == nil {
		queue = &gatheringQueue[Q, A]{turn: make(chan struct{}, 1)}
		g.queues[about] = queue
	}
	if first = queue.next == nil; first {
		queue.next = &gathered[Q, A]{done: make(chan struct{})}
	}
	a = queue.next
	a.questions = append(a.questions, questions...)
	return queue, a, first
}

// request makes the request of a, the next of queue, when it has its turn.
func (g *gathering[K, Q, A]) request(ctx context.Context, queue *gatheringQueue[Q, A], a *gathered[Q, A], request func(context.Context, []Q) (A, error)) {
	defer close(a.done)
	select {
	case queue.turn <- struct{}{}:
		defer func() { <-queue.turn }()
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	g.mu.Lock()
	queue.next = nil // who asks from now on wants a later answer
	g.mu.Unlock()
	if a.err == nil {
		a.answer, a.err = request(ctx, a.questions)
	}
	a.ended = a.err != nil && ctx.Err() != nil
}

// leave forgets queue where nobody waits in it and no request is on its way.
func (g *gathering[K, Q, A]) leave(about K, queue *gatheringQueue[Q, A]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if queue.next == nil && len(queue.turn) == 0 && g.queues[about] == queue {
		delete(g.queues, about)
	}
}
