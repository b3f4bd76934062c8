package hbasestore

import (
	"context"

	"sluice/store/hbasestore/internal/hbase"
)

// ClusterID returns the id that the HBase behind the gateways has for ever. Its error
// wraps store.ErrUnsupported where a gateway is too old to tell.
func (s *Store) ClusterID(ctx context.Context) (id string, err error) {
	err = s.call(ctx, request{what: "id of the cluster"}, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		id, err = c.GetClusterId(ctx)
		return err
	})
	return id, err
}
