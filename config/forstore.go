package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/store"
)

// ForStore is ForDirectory of the data directory DIR or pebble:DIR, or of the HBase
// behind the Thrift2 gateways of
//
//	hbase://HOST:PORT[,HOST:PORT][?KEY=VALUE[&KEY=VALUE]]
//
// where the keys are those of store.hbase: framed, connections, call_timeout,
// retry_timeout, max_cell, max_frame, and those of its tls: tls=true, ca_file, cert_file, key_file,
// server_name, insecure_skip_verify. The error wraps store.ErrInvalidArgument.
func ForStore(at string) (*Config, error) {
	rest, ok := strings.CutPrefix(at, "hbase://")
	if !ok {
		dir, _ := strings.CutPrefix(at, "pebble:")
		if scheme, _, ok := strings.Cut(dir, "://"); ok {
			return nil, fmt.Errorf("%w: %s: stores are data directories, pebble:DIR, and hbase://HOST:PORT, not %s://", store.ErrInvalidArgument, withoutSecrets(at), scheme)
		}
		if dir == "" {
			return nil, fmt.Errorf("%w: %q names no directory", store.ErrInvalidArgument, at)
		}
		return ForDirectory(dir), nil
	}
	c := Default()
	c.Store.Engine = "hbase"
	if err := c.Store.HBase.parse(rest); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", store.ErrInvalidArgument, withoutSecrets(at), err)
	}
	return c, nil
}

// withoutSecrets is an address as an error may quote it, without what may be a secret: a user, a
// password, and what stands behind ?.
func withoutSecrets(at string) string {
	at, _, _ = strings.Cut(at, "?")
	if i := strings.LastIndexByte(at, '@'); i >= 0 {
		scheme, _, ok := strings.Cut(at[:i], "://")
		if ok {
			scheme += "://"
		} else {
			scheme = ""
		}
		return scheme + "..." + at[i:]
	}
	return at
}

// parse sets h to what stands behind hbase://.
func (h *HBase) parse(s string) error {
	gateways, query, _ := strings.Cut(s, "?")
	h.Gateways = strings.Split(gateways, ",")
	for _, g := range h.Gateways {
		if strings.Contains(g, "@") {
			return errors.New("a gateway has no user and password: want HOST:PORT")
		}
		if !isAddress(g) {
			return fmt.Errorf("gateway %q: want HOST:PORT, such as 127.0.0.1:9090", g)
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	text := map[string]*string{"ca_file": &h.TLS.CAFile, "cert_file": &h.TLS.CertFile, "key_file": &h.TLS.KeyFile, "server_name": &h.TLS.ServerName}
	flag := map[string]*bool{"framed": &h.Framed, "tls": &h.TLS.Enable, "insecure_skip_verify": &h.TLS.InsecureSkipVerify}
	span := map[string]*time.Duration{"call_timeout": &h.CallTimeout, "retry_timeout": &h.RetryTimeout}
	size := map[string]*Size{"max_cell": &h.MaxCell, "max_frame": &h.MaxFrame}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if len(values[key]) > 1 {
			return fmt.Errorf("%s is given %d times", key, len(values[key]))
		}
		value := values.Get(key)
		var err error
		switch {
		case text[key] != nil:
			*text[key] = value
		case flag[key] != nil:
			*flag[key], err = strconv.ParseBool(value)
		case span[key] != nil:
			if *span[key], err = time.ParseDuration(value); err == nil && *span[key] <= 0 {
				err = strconv.ErrRange
			}
		case size[key] != nil:
			if err = size[key].UnmarshalText([]byte(value)); err == nil && *size[key] <= 0 {
				err = strconv.ErrRange
			}
		case key == "connections":
			if h.Connections, err = strconv.Atoi(value); err == nil && h.Connections < 1 {
				err = strconv.ErrRange
			}
		default:
			known := slices.Sorted(maps.Keys(text))
			known = slices.AppendSeq(known, maps.Keys(flag))
			known = slices.AppendSeq(known, maps.Keys(span))
			known = slices.AppendSeq(known, maps.Keys(size))
			known = append(known, "connections")
			slices.Sort(known)
			return fmt.Errorf("unknown %q; known are %s", key, strings.Join(known, ", "))
		}
		if err != nil {
			return fmt.Errorf("%s=%s: %w", key, value, err)
		}
	}
	h.TLS.lint("tls", func(_, hint, format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
			if hint != "" {
				err = fmt.Errorf("%w: write tls=true", err)
			}
		}
	})
	return err
}
