package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicResource is the type of a topic in DescribeConfigs.
const topicResource = kmsg.ConfigResourceTypeTopic

// TopicSetting returns what a setting of a topic is now, such as cleanup.policy,
// whoever has set it. Its error wraps ErrTopicNotFound, or ErrAuth where the
// brokers do not let us see it.
func (c *Client) TopicSetting(ctx context.Context, topic, name string) (value string, err error) {
	err = c.attempt(ctx, func(ctx context.Context) error {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = 1
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = topicResource, topic, []string{name}
		req.Resources = append(req.Resources, r)
		resp, err := c.request(ctx, anyNode, req)
		if err != nil {
			return err
		}
		for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			switch e := code(r.ErrorCode); {
			case e == codeUnknownTopicOrPartition:
				return c.topicNotFound(ctx, topic)
			case e != codeNone:
				return e.denied("DESCRIBE_CONFIGS on the topic")
			}
			for _, s := range r.Configs {
				if s.Name == name && s.Value != nil {
					value = *s.Value
					return nil
				}
			}
		}
		return fmt.Errorf("%w: setting %s is missing", errProtocol, name)
	})
	if err != nil {
		return "", fmt.Errorf("read %s of topic %s: %w", name, topic, err)
	}
	return value, nil
}
