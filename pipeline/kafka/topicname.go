package kafka

import (
	"errors"
	"fmt"
)

// maxTopicName is the longest name of a topic, in bytes.
const maxTopicName = 249

// CheckTopicName returns why no topic can have a name, as brokers do (Kafka's
// org.apache.kafka.common.internals.Topic).
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return errors.New("the name of a topic is empty")
	case name == "." || name == "..":
		return fmt.Errorf("no topic is named %q", name)
	case len(name) > maxTopicName:
		return fmt.Errorf("the name of a topic has %d characters, at most %d", len(name), maxTopicName)
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return fmt.Errorf("no topic is named %q: %q is not allowed; letters of ASCII, digits, ., _ and - are", name, r)
		}
	}
	return nil
}
