package kafka

import (
	"context"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/xdg-go/scram"
)

// scramMechanism is SCRAM (RFC 5802) as brokers and their other clients have it, which take
// user and password as they are written. kafka-go's own prepares them (SASLprep, RFC 4013):
// it makes 2 of ² and μ of µ, and has no password with what Unicode 3.2 did not know.
type scramMechanism struct {
	name   string
	client *scram.Client
}

var _ sasl.Mechanism = (*scramMechanism)(nil)

func newSCRAM(name string, hash scram.HashGeneratorFcn, user, password string) (*scramMechanism, error) {
	c, err := hash.NewClientUnprepped(user, password, "")
	return &scramMechanism{name, c}, err
}

// Name is the mechanism's name, as in the handshake.
func (m *scramMechanism) Name() string { return m.name }

// Start begins an authentication.
func (m *scramMechanism) Start(context.Context) (sasl.StateMachine, []byte, error) {
	c := m.client.NewConversation()
	first, err := c.Step("")
	return scramSession{c}, []byte(first), err
}

type scramSession struct{ c *scram.ClientConversation }

// Next answers the broker.
func (s scramSession) Next(_ context.Context, challenge []byte) (done bool, answer []byte, err error) {
	next, err := s.c.Step(string(challenge))
	return s.c.Done(), []byte(next), err
}
