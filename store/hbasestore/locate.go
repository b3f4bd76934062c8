package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/apache/thrift/lib/go/thrift"

	"sluice/region"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// LocateRegion returns the region that holds row and the host:port of the server that
// has it, as HBase says now. The region's ID is 0, as for all that Regions returns: the
// gateway tells none, so that its Name and EncodedName are not HBase's. The error wraps
// store.ErrTableNotFound.
func (s *Store) LocateRegion(ctx context.Context, table string, row []byte) (r region.Info, server string, err error) {
	table = store.CanonicalName(table)
	if _, err := s.Table(ctx, table); err != nil {
		return region.Info{}, "", fmt.Errorf("locate a region of %s: %w", table, err)
	}
	err = s.call(ctx, request{what: "locate a region of", table: table}, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		l, err := c.GetRegionLocation(ctx, []byte(table), row, true)
		if err != nil {
			return unserved(err)
		}
		r = region.Info{Table: table, ID: l.RegionInfo.RegionId, Start: l.RegionInfo.StartKey, Stop: l.RegionInfo.EndKey}
		server = net.JoinHostPort(l.ServerName.GetHostName(), strconv.Itoa(int(l.ServerName.GetPort())))
		return nil
	})
	return r, server, err
}

// unserved makes an internal error of the gateway, which is its answer for a region that
// has no server yet, one that passes.
func unserved(err error) error {
	var application thrift.TApplicationException
	if errors.As(err, &application) && application.TypeId() == thrift.INTERNAL_ERROR {
		return notServing(err)
	}
	return err
}

// notServing is what HBase says of a region that is on its way.
func notServing(why error) error {
	text, yes := "NotServingRegionException: "+why.Error(), true
	return &hbase.TIOError{Message: &text, CanRetry: &yes}
}
