package target

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSign has the examples of "Examples: Signature Calculations" in Amazon's S3 API
// Reference.
func TestSign(t *testing.T) {
	t.Parallel()
	keys := S3Credentials{AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	s := &signer{credentials: func() S3Credentials { return keys }, region: "us-east-1"}
	now := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		method, path string
		query        map[string]string
		header       map[string]string
		body, want   string
	}{
		{"GET", "/test.txt", nil, map[string]string{"Range": "bytes=0-9"}, "", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{
			"PUT", "/test$file.text", nil,
			map[string]string{"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
			"Welcome to Amazon S3.", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
		},
		{"GET", "/", map[string]string{"lifecycle": ""}, nil, "", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"GET", "/", map[string]string{"prefix": "J", "max-keys": "2"}, nil, "", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), test.method, "https://examplebucket.s3.amazonaws.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = test.path, escapeS3(test.path, true), queryS3(test.query)
		for name, v := range test.header {
			r.Header.Set(name, v)
		}
		s.sign(r, sha256.Sum256([]byte(test.body)), now)
		if got := r.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+test.want) {
			t.Errorf("%s %s: Got %s, want %s", test.method, test.path, got, test.want)
		}
	}
}
