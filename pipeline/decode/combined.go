package decode

import (
	"bytes"
	"strconv"
)

// combinedNames are the fields of an access log line, by their constants.
var combinedNames = [...]string{
	logClient: "client", logIdent: "ident", logUser: "user", logTime: "time", logTimeLocal: "time_local",
	logRequest: "request", logMethod: "method", logPath: "path", logProtocol: "protocol",
	logStatus: "status", logBytes: "bytes", logReferrer: "referrer", logAgent: "agent",
}

const (
	logClient = iota
	logIdent
	logUser
	logTime
	logTimeLocal
	logRequest
	logMethod
	logPath
	logProtocol
	logStatus
	logBytes
	logReferrer
	logAgent
)

// combinedDecoder reads one line of the log format that Apache and nginx call
// combined, or of Apache's common, which ends after the bytes:
//
//	%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i"
//
// "-" is Null. Quoted texts end at the first quote without a backslash before
// it. Every text is as logged, escapes (\" \\ \xhh …) included: both servers escape
// bytes that are not text, so what was valid UTF-8 stays so and nothing is lost.
// A request that is not "METHOD target [protocol]" has no method, path or
// protocol. time is milliseconds since the epoch.
type combinedDecoder struct {
	format  string
	at      [len(combinedNames)]int // document index of each field, or -1
	doc     Document
	scratch []byte
}

func newCombined(f *Fields, common bool) *combinedDecoder {
	d := &combinedDecoder{format: formatCombined}
	if common {
		d.format = formatCommon
	}
	for k, name := range combinedNames {
		d.at[k] = f.Index(name)
	}
	d.doc.values = make([]Value, f.Len())
	return d
}

// Decode implements Decoder.
func (d *combinedDecoder) Decode(payload []byte, emit func(*Document) error) error {
	d.scratch = d.scratch[:0]
	d.doc.clear()
	line := bytes.TrimSuffix(payload, []byte{'\n'})
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if at, reason := d.line(line); reason != "" {
		return &Error{Format: d.format, Position: at, Reason: reason}
	}
	return emit(&d.doc)
}

// line reads the fields of b. A reason says what is wrong at byte at.
func (d *combinedDecoder) line(b []byte) (at int, reason string) {
	i := 0
	for _, field := range [...]int{logClient, logIdent} {
		n := bytes.IndexByte(b[i:], ' ')
		if n <= 0 {
			return i, "expected the " + combinedNames[field] + " and a space"
		}
		d.text(field, b[i:i+n])
		i += n + 1
	}
	// A user name may have spaces; it ends at the time's bracket.
	n := bytes.Index(b[i:], []byte(" ["))
	if n <= 0 {
		return i, "expected the user and the time in brackets"
	}
	d.text(logUser, b[i:i+n])
	i += n + 2
	if n = bytes.IndexByte(b[i:], ']'); n < 0 {
		return i, "no ] after the time"
	}
	if at, reason := d.time(i, b[i:i+n]); reason != "" {
		return at, reason
	}
	i += n + 1

	end, at, reason := quoted(b, i, "the request")
	if reason != "" {
		return at, reason
	}
	d.request(b[i+2 : end])
	i = end + 1

	if at, reason = d.number(b, &i, logStatus); reason != "" {
		return at, reason
	}
	if at, reason = d.number(b, &i, logBytes); reason != "" {
		return at, reason
	}

	if d.format == formatCommon {
		if i != len(b) {
			return i, "unexpected text after the bytes"
		}
		return 0, ""
	}
	for _, field := range [...]int{logReferrer, logAgent} {
		end, at, reason := quoted(b, i, "the "+combinedNames[field])
		if reason != "" {
			return at, reason
		}
		d.text(field, b[i+2:end])
		i = end + 1
	}
	if i != len(b) {
		return i, "unexpected text after the agent"
	}
	return 0, ""
}

// text sets a string field; "-" is Null.
func (d *combinedDecoder) text(field int, s []byte) {
	at := d.at[field]
	switch {
	case at < 0:
	case len(s) == 1 && s[0] == '-':
		d.doc.values[at] = Value{Kind: Null}
	default:
		d.doc.values[at] = Value{Kind: String, Bytes: s[:len(s):len(s)]}
	}
}

// quoted finds the closing quote of the text that begins with a space and a
// quote at b[i].
func quoted(b []byte, i int, what string) (end, at int, reason string) {
	if i+1 >= len(b) || b[i] != ' ' || b[i+1] != '"' {
		return 0, min(i, len(b)), "expected a space and " + what + " in quotes"
	}
	for k := i + 2; ; {
		n := bytes.IndexByte(b[k:], '"')
		if n < 0 {
			return 0, i + 1, "the quote of " + what + " is not closed"
		}
		k += n
		slashes := 0
		for k-slashes-1 > i+1 && b[k-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return k, 0, ""
		}
		k++
	}
}

// request sets the request and its parts.
func (d *combinedDecoder) request(s []byte) {
	d.text(logRequest, s)
	null := func(field int) {
		if d.at[field] >= 0 {
			d.doc.values[d.at[field]] = Value{Kind: Null}
		}
	}
	sp := 0
	for sp < len(s) && (s[sp]|0x20 >= 'a' && s[sp]|0x20 <= 'z' || s[sp] == '-' || s[sp] == '_') {
		sp++
	}
	if sp == 0 || sp+1 >= len(s) || s[sp] != ' ' {
		null(logMethod)
		null(logPath)
		null(logProtocol)
		return
	}
	d.text(logMethod, s[:sp])
	target := s[sp+1:]
	if n := bytes.LastIndexByte(target, ' '); n > 0 && bytes.HasPrefix(target[n+1:], []byte("HTTP/")) {
		d.text(logProtocol, target[n+1:])
		target = target[:n]
	} else {
		null(logProtocol) // HTTP/0.9 sends none
	}
	d.text(logPath, target)
}

// number reads a space and digits, or "-", at b[*i]; a status has three digits.
func (d *combinedDecoder) number(b []byte, i *int, field int) (at int, reason string) {
	k := *i
	if k >= len(b) || b[k] != ' ' {
		return k, "expected a space and the " + combinedNames[field]
	}
	k++
	start := k
	if k < len(b) && b[k] == '-' {
		*i = k + 1
		d.text(field, b[k:k+1])
		return 0, ""
	}
	for k < len(b) && '0' <= b[k] && b[k] <= '9' {
		k++
	}
	if k == start || field == logStatus && k-start != 3 {
		return start, "the " + combinedNames[field] + " is not a number"
	}
	if d.at[field] >= 0 {
		d.doc.values[d.at[field]] = Value{Kind: Number, Bytes: b[start:k:k]}
	}
	*i = k
	return 0, ""
}

// time reads 17/May/2015:10:05:03 +0000, which begins at byte from of the line.
func (d *combinedDecoder) time(from int, s []byte) (at int, reason string) {
	const shape = "00/Mon/0000:00:00:00 +0000"
	if len(s) != len(shape) {
		return from, "the time is not like 17/May/2015:10:05:03 +0000"
	}
	for i := range len(shape) {
		switch c := s[i]; shape[i] {
		case '0':
			if c < '0' || c > '9' {
				return from + i, "expected a digit of the time"
			}
		case '+':
			if c != '+' && c != '-' {
				return from + i, "expected + or - of the time zone"
			}
		case '/', ':', ' ':
			if c != shape[i] {
				return from + i, "expected " + strconv.Quote(shape[i:i+1]) + " of the time"
			}
		}
	}
	two := func(i int) int64 { return int64(s[i]-'0')*10 + int64(s[i+1]-'0') }
	month := monthNumber(s[3:6])
	if month == 0 {
		return from + 3, "no such month"
	}
	year := two(7)*100 + two(9)
	day, hour, minute, second := two(0), two(12), two(15), two(18)
	zoneHour, zoneMinute := two(22), two(24)
	switch {
	case day < 1 || day > daysIn(year, month):
		return from, "no such day of the month"
	case hour > 23 || minute > 59 || second > 60: // 60: a leap second
		return from + 12, "no such time of the day"
	case zoneHour > 23 || zoneMinute > 59:
		return from + 21, "no such time zone"
	}
	d.text(logTimeLocal, s)
	if d.at[logTime] < 0 {
		return 0, ""
	}
	zone := zoneHour*3600 + zoneMinute*60
	if s[21] == '-' {
		zone = -zone
	}
	ms := (daysFromCivil(year, month, day)*86400 + hour*3600 + minute*60 + second - zone) * 1000
	start := len(d.scratch)
	d.scratch = strconv.AppendInt(d.scratch, ms, 10)
	d.doc.values[d.at[logTime]] = Value{Kind: Number, Bytes: d.scratch[start:len(d.scratch):len(d.scratch)]}
	return 0, ""
}

// monthNumber returns 1..12 for Jan..Dec, or 0.
func monthNumber(s []byte) int64 {
	const names = "JanFebMarAprMayJunJulAugSepOctNovDec"
	for m := range 12 {
		if string(s) == names[m*3:m*3+3] {
			return int64(m) + 1
		}
	}
	return 0
}

func daysIn(year, month int64) int64 {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// daysFromCivil returns the days from 1970-01-01 to a date of the proleptic
// Gregorian calendar (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
func daysFromCivil(year, month, day int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400
	if year < 0 {
		era = (year - 399) / 400
	}
	ofEra := year - era*400
	ofYear := (153*(month-3)+2)/5 + day - 1
	return era*146097 + ofEra*365 + ofEra/4 - ofEra/100 + ofYear - 719468
}
