package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// joining is one call of Group.Next: the trouble that it waits out.
type joining struct {
	g       *Group
	log     *slog.Logger
	said    map[string]bool // warnings that were logged: the first of each is the news
	refused int             // tries to join that a topic which the ACLs refuse has cost
	missing time.Time       // since when the cluster has not had a topic; zero = it has all
}

// warn logs a warning once.
func (j *joining) warn(msg string, args ...any) {
	if !j.said[msg] {
		j.log.Warn(msg, args...)
	}
	j.said[msg] = true
}

// failed tells of err, of a try to join, that it is waited out, or returns what to give up
// with.
func (j *joining) failed(ctx context.Context, err error) error {
	g := j.g
	switch {
	case errors.Is(err, kafkago.ErrGroupClosed):
		return fmt.Errorf("group %s: %w", g.o.ID, ErrClosed)
	case ctx.Err() != nil:
		return fmt.Errorf("wait for a generation of group %s: %w", g.o.ID, ctx.Err())
	}
	if fatal := g.fatal(ctx, err); fatal != nil {
		return fatal
	}
	err = g.refusal(ctx, err)
	g.o.Waiting(g.notJoined(err))
	switch k := kafkago.Error(0); {
	case OfTopic(err):
		j.warn("a topic is refused, consumer group is not joined, trying again", "err", err)
		j.refused++
		if err := g.whileRefused(ctx, j.refused); err != nil {
			return fmt.Errorf("wait for a generation of group %s: %w", g.o.ID, err)
		}
	case errors.As(err, &k) && code(k) == codeGroupMaxSizeReached:
		j.warn("consumer group is full, trying again: it has as many members as the brokers allow; end one of them, or raise the brokers' group.max.size", "err", code(k))
	case len(j.said) == 0:
		j.warn("consumer group is not joined, trying again", "err", err)
	}
	return nil
}

// unknown waits before partitions are dealt again, as those of some topics are not known, or
// returns what to give up with.
func (j *joining) unknown(ctx context.Context, topics []string) error {
	g := j.g
	switch _, err := g.c.topics(ctx, topics...); {
	case !errors.Is(err, ErrTopicNotFound):
		j.missing = time.Time{}
	case j.missing.IsZero():
		j.missing = time.Now()
	case time.Since(j.missing) <= g.c.o.RequestTimeout:
	case g.o.AwaitTopics && g.joined:
		g.o.Waiting(fmt.Errorf("group %s waits for a topic: %w", g.o.ID, err))
		j.warn("a topic is gone, waiting for it", "err", err)
	default:
		return fmt.Errorf("group %s: %w", g.o.ID, err)
	}
	if len(j.said) == 0 {
		j.warn("partitions are not known, consumer group rebalances", "topics", topics)
	}
	if err := sleep(ctx, g.o.RetryBackoff); err != nil {
		return fmt.Errorf("wait for a generation of group %s: %w", g.o.ID, err)
	}
	return nil
}

// notJoined is err, of a try to join, for who waits for that.
func (g *Group) notJoined(err error) error {
	var k kafkago.Error
	if e := code(0); !errors.As(err, &k) && !errors.As(err, &e) && !errors.Is(err, ErrTLS) {
		return fmt.Errorf("group %s is not joined: %w: %w", g.o.ID, ErrUnreachable, err)
	}
	return fmt.Errorf("group %s is not joined: %w", g.o.ID, err)
}

// refusal is err, but where the leader may not describe a topic: kafka-go does not say which.
// It may be one of another member, too.
func (g *Group) refusal(ctx context.Context, err error) error {
	if k := kafkago.Error(0); !errors.As(err, &k) || code(k) != codeTopicAuthorization {
		return err
	}
	if _, which := g.c.topics(ctx, g.o.Topics...); OfTopic(which) {
		return which
	}
	return codeTopicAuthorization.denied(needsDescribe)
}

// whileRefused waits after so many tries to join that a refused topic has cost, twice as long
// each time, and for 60 of RetryBackoff at most, or until this client may describe all topics.
// A try is a generation, for which the other members put their partitions down, and to ask
// for topics is none. kafka-go tries once while nobody calls its Next.
func (g *Group) whileRefused(ctx context.Context, tries int) error {
	wait := min(g.o.RetryBackoff<<min(tries-1, 10), 60*g.o.RetryBackoff)
	for asked := min(wait, 4*g.o.RetryBackoff); wait > 0; wait -= asked {
		if err := sleep(ctx, asked); err != nil {
			return err
		}
		if _, err := g.c.topics(ctx, g.o.Topics...); !OfTopic(err) {
			return nil
		}
	}
	return nil
}

// undealt returns the topics, in order, that kafka-go knew no partitions of. Where the
// broker that it asks does not know one of them, be it as it has just started, it knows
// none of any: nobody would read anything, and nobody say so.
func undealt(dealt map[string]int) []string {
	var unknown []string
	for topic, n := range dealt {
		if n == 0 {
			unknown = append(unknown, topic)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// fatal returns the error to give up with, or nil where waiting may help.
func (g *Group) fatal(ctx context.Context, err error) error {
	if errors.Is(err, ErrAuth) || errors.Is(err, ErrTLS) && !g.joined {
		return fmt.Errorf("join group %s: %w", g.o.ID, err)
	}
	var k kafkago.Error
	if !errors.As(err, &k) {
		return nil
	}
	e := code(k)
	g.c.metrics.countError(e.name())
	switch {
	case e == codeTopicAuthorization: // it may be allowed again
	case e.auth():
		return fmt.Errorf("join group %s: %w", g.o.ID, e.denied(needsGroup))
	case e == codeInconsistentProtocol:
		return fmt.Errorf("%w: group %s has members that are no Sluice processes; choose another group id",
			ErrOtherStore, g.o.ID)
	case e == codeInvalidSessionTimeout:
		return fmt.Errorf("join group %s: session timeout %v is outside of what the broker allows (group.min.session.timeout.ms to group.max.session.timeout.ms, 6 s to 30 min by default): %w",
			g.o.ID, g.o.SessionTimeout, e)
	case e == codeInvalidGroupID:
		return fmt.Errorf("join group %s: %w", g.o.ID, e)
	case e == codeUnknownServerError:
		// It may be over soon, but not where the coordinator assigns the partitions
		// itself: Kafka's cannot read what kafka-go says of a member.
		if clients := g.c.groupClients(ctx, g.o.ID); len(clients) > 0 {
			return fmt.Errorf("%w: group %s has members that are no Sluice processes, clients %q, which use the new group protocol (group.protocol=consumer); choose another group id",
				ErrOtherStore, g.o.ID, clients)
		}
	}
	return nil
}
