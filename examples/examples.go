// Package examples holds the configurations that the README shows and that the
// demo and the tests run: page views as JSON, and a web server's access log. It is
// files and nothing else.
package examples

import _ "embed"

// Pageviews counts page views: topic pageviews → tables events and
// pageview_counts.
//
//go:embed pageviews.yaml
var Pageviews []byte

// AccessLog counts requests: topic access-log → tables access_log and
// path_counts.
//
//go:embed access-log.yaml
var AccessLog []byte
