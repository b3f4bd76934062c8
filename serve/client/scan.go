package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"sluice/cell"
	"sluice/serve/api"
	"sluice/store"
)

// maxLine bounds one row of a scan: what a daemon sends is trusted, a broken
// connection to something else is not. The largest row of a whole-row scan is
// bounded by memory anyway; wider ones are read with Scan.Batch or
// Scan.MaxResultBytes.
const maxLine = 1 << 30

// scanner is a running scan. Rows are decoded as they arrive.
type scanner struct {
	c      *Client
	caller context.Context // Scan's; Scanner.Next has none
	ctx    context.Context // of this scan's request
	cancel context.CancelFunc
	end    func()
	body   io.ReadCloser
	lines  *bufio.Reader
	line   []byte
	row    cell.Row
	err    error
	done   bool

	cursors bool // the scan has asked for them
	cursor  store.Cursor
}

// Scan implements store.Reader.
func (c *Client) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	sc := &scanner{c: c, cancel: func() {}, end: func() {}}
	sc.open(ctx, s)
	return sc
}

func (s *scanner) open(ctx context.Context, scan *store.Scan) {
	end, err := s.c.begin()
	if err != nil {
		s.fail(err)
		return
	}
	q, err := api.FromScan(scan)
	if s.cursors = scan.NeedCursor || scan.PageRows > 0 || scan.Cursor != ""; s.cursors && err == nil {
		q.NeedCursor = true // it is to be known after every row
		s.cursor, err = store.FirstCursor(scan)
	}
	if err == nil && scan.Table == "" {
		err = fmt.Errorf("%w: the name of the table is empty", store.ErrTableNotFound)
	}
	if err != nil {
		end()
		s.fail(err)
		return
	}
	s.caller = ctx
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() { // until the scan is closed
		select {
		case <-s.c.closing:
			cancel(fmt.Errorf("scan of %s: %w", scan.Table, store.ErrClosed))
		case <-stop:
		}
	}()
	s.ctx, s.end = ctx, end
	s.cancel = func() { close(stop); cancel(nil) }
	res, err := s.c.request(ctx, http.MethodPost, tablePath(scan.Table, "scan"), q)
	if err != nil {
		s.fail(s.lost(err))
		return
	}
	s.body, s.lines = res.Body, bufio.NewReaderSize(res.Body, 64<<10)
}

// lost classes the error of a connection.
func (s *scanner) lost(err error) error {
	if cause := context.Cause(s.ctx); cause != nil && s.caller.Err() == nil {
		return cause // the client is closing
	}
	return outcome(s.ctx, err, true)
}

// fail ends the scan and frees what it holds.
func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.release()
}

func (s *scanner) release() {
	s.done, s.row = true, cell.Row{}
	if s.body != nil {
		s.body.Close()
		s.body = nil
	}
	s.cancel()
	s.end()
	s.cancel, s.end = func() {}, func() {}
}

// Next implements store.Scanner.
func (s *scanner) Next() bool {
	if s.done {
		return false
	}
	if s.ctx.Err() != nil { // rows that are here already are no reason to go on
		s.fail(s.lost(&connError{address: s.c.Address(), err: context.Cause(s.ctx)}))
		return false
	}
	if err := s.readLine(); err != nil {
		s.fail(s.lost(&connError{address: s.c.Address(), err: fmt.Errorf("the scan was cut off: %w", err)}))
		return false
	}
	var line api.ScanLine
	if err := json.Unmarshal(s.line, &line); err != nil {
		s.fail(s.lost(&connError{address: s.c.Address(), err: fmt.Errorf("the scan's answer is not readable: %w", err)}))
		return false
	}
	if line.Row != nil && len(line.Row.Key) == 0 || line.Row == nil && line.Error == nil && !line.End {
		// No row has an empty key, and rows without an end were cut off.
		s.fail(s.lost(&connError{address: s.c.Address(), err: fmt.Errorf("the scan's answer is not readable: %.100q", s.line)}))
		return false
	}
	if line.Cursor != "" {
		s.cursor = store.Cursor(line.Cursor)
	}
	switch {
	case line.Row != nil:
		s.row.Key, s.row.More = line.Row.Key, line.Row.More
		s.row.Cells = api.AppendCells(s.row.Cells[:0], line.Row.Cells)
		return true
	case line.Error != nil:
		s.fail(line.Error)
	default:
		// Read to the end, so that the connection can be used again.
		_, _ = io.Copy(io.Discard, io.LimitReader(s.lines, 1))
		s.release()
	}
	return false
}

func (s *scanner) readLine() error {
	s.line = s.line[:0]
	for {
		part, err := s.lines.ReadSlice('\n')
		if s.line = append(s.line, part...); len(s.line) > maxLine {
			return fmt.Errorf("a row of more than %d bytes; set a batch of cells", maxLine)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		default:
			return err
		}
	}
}

// Cursor implements store.Resumable.
func (s *scanner) Cursor() (store.Cursor, error) {
	if !s.cursors {
		return "", fmt.Errorf("cursor: %w: the scan has not asked for cursors: set NeedCursor", store.ErrInvalidArgument)
	}
	return s.cursor, nil
}

// Row implements store.Scanner.
func (s *scanner) Row() *cell.Row {
	if len(s.row.Key) == 0 { // no row has an empty key
		return nil
	}
	return &s.row
}

var (
	_ store.Scanner   = (*scanner)(nil)
	_ store.Resumable = (*scanner)(nil)
)

// Err implements store.Scanner.
func (s *scanner) Err() error { return s.err }

// Close implements store.Scanner.
func (s *scanner) Close() error {
	if !s.done {
		s.release()
	}
	return nil
}
