package target

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// signer signs requests with AWS Signature Version 4 for the service s3
// ("Signature Calculations for the Authorization Header", Amazon S3 API Reference):
// whole payloads, all headers that are set.
type signer struct {
	credentials func() S3Credentials
	region      string
}

const amzDate = "20060102T150405Z"

// sign adds the headers of the signature to r, whose URL has its path escaped by
// escapeS3 in RawPath and its query encoded by queryS3. body is the payload's
// SHA-256.
func (s *signer) sign(r *http.Request, body [sha256.Size]byte, now time.Time) {
	keys := s.credentials()
	now = now.UTC()
	payload := hex.EncodeToString(body[:])
	r.Header.Set("X-Amz-Content-Sha256", payload)
	r.Header.Set("X-Amz-Date", now.Format(amzDate))
	if keys.SessionToken != "" {
		r.Header.Set("X-Amz-Security-Token", keys.SessionToken)
	}
	names := []string{"host"}
	values := map[string]string{"host": r.URL.Host}
	for name, v := range r.Header {
		name = strings.ToLower(name)
		names = append(names, name)
		values[name] = strings.TrimSpace(v[0])
	}
	slices.Sort(names)
	var headers strings.Builder
	for _, name := range names {
		fmt.Fprintf(&headers, "%s:%s\n", name, values[name])
	}
	signed := strings.Join(names, ";")
	request := sha256.Sum256([]byte(strings.Join([]string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, headers.String(), signed, payload}, "\n")))
	day := now.Format("20060102")
	scope := day + "/" + s.region + "/s3/aws4_request"
	toSign := strings.Join([]string{"AWS4-HMAC-SHA256", now.Format(amzDate), scope, hex.EncodeToString(request[:])}, "\n")
	key := []byte("AWS4" + keys.SecretKey)
	for _, part := range []string{day, s.region, "s3", "aws4_request", toSign} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s", keys.AccessKey, scope, signed, hex.EncodeToString(key)))
}

// escapeS3 escapes what a signature's canonical form escapes: all bytes but
// letters, digits, - . _ ~, and, where slashes is set, /.
func escapeS3(s string, slashes bool) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~", c) >= 0, c == '/' && slashes:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// queryS3 encodes a query in the signature's canonical form, sorted by name.
func queryS3(q map[string]string) string {
	parts := make([]string, 0, len(q))
	for name, v := range q {
		parts = append(parts, escapeS3(name, false)+"="+escapeS3(v, false))
	}
	slices.Sort(parts)
	return strings.Join(parts, "&")
}
