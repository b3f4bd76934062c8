package mapping

import (
	"fmt"
	"slices"

	"sluice/pipeline/decode"
)

// Never returns why rules of this Spec refuse no record with a class, "" where they may, or
// where the class is not the mapping's.
func (s *Spec) Never(class string) string {
	lacks := func(key string) string { return "there is no " + key }
	switch {
	case slices.Contains(decode.Formats(), class) && class != s.Decode.Format:
		return fmt.Sprintf("decode.format is %s, which is the class of what breaks it", s.Decode.Format)
	case class == classLate && s.EventTime.AllowedLateness == 0:
		return lacks("event_time.allowed_lateness")
	case class == classFuture && s.EventTime.MaxFuture == 0:
		return lacks("event_time.max_future")
	case class == classRecord && s.Decode.MaxRecordBytes == 0:
		return lacks("decode.max_record_bytes")
	case class == classHeaders && s.Decode.MaxHeaderBytes == 0:
		return lacks("decode.max_header_bytes")
	case class == classSchema && !s.Decode.Registered():
		return "no schemas are asked of a registry"
	}
	return ""
}
