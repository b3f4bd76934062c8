package mapping

import "fmt"

// limits bound what is mapped of a record as it came, before its payload is decoded:
// DecodeSpec.MaxRecordBytes and MaxHeaderBytes.
type limits struct{ record, headers int } // bytes; 0 = any

// check returns why r is too large, nil where it is not.
func (l *limits) check(r *Record) *Error {
	headers := 0
	for i := range r.Headers {
		headers += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	if l.headers > 0 && headers > l.headers {
		return &Error{Stage: StageDecode, Class: classHeaders, Err: fmt.Errorf("%d headers of %d bytes, at most %d are allowed (decode.max_header_bytes)",
			len(r.Headers), headers, l.headers)}
	}
	if n := len(r.Key) + len(r.Value) + headers; l.record > 0 && n > l.record {
		return &Error{Stage: StageDecode, Class: classRecord, Err: fmt.Errorf("a record of %d bytes, at most %d are allowed (decode.max_record_bytes)",
			n, l.record)}
	}
	return nil
}

// limits compiles the bounds of s. They are part of the version: what a record
// becomes depends on them.
func (c *compilation) limits(s *DecodeSpec) limits {
	l := limits{record: s.MaxRecordBytes, headers: s.MaxHeaderBytes}
	switch {
	case l.record < 0:
		c.report("decode.max_record_bytes", 0, fmt.Errorf("%d is negative", l.record), "")
	case l.headers < 0:
		c.report("decode.max_header_bytes", 0, fmt.Errorf("%d is negative", l.headers), "")
	case l.record > 0 && l.headers > l.record:
		c.report("decode.max_header_bytes", 0, fmt.Errorf("%d is more than max_record_bytes, %d, which headers count to", l.headers, l.record), "")
	}
	if l != (limits{}) {
		c.note("limits %d %d", l.record, l.headers)
	}
	return l
}
