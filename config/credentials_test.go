package config

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/jobs/target"
)

func TestParseCredentials(t *testing.T) {
	t.Parallel()
	const file = `# who may write
[default]
aws_access_key_id = A
aws_secret_access_key=s=/+
  aws_session_token  =  t  ` + "\r" + `
region = eu-central-1

[other] # a comment
aws_secret_access_key = z
; another
aws_access_key_id = B
[half]
aws_access_key_id = hunter2
`
	for profile, want := range map[string]target.S3Credentials{
		"default": {AccessKey: "A", SecretKey: "s=/+", SessionToken: "t"},
		"other":   {AccessKey: "B", SecretKey: "z"},
	} {
		if got, err := parseCredentials("f", file, profile); err != nil || got != want {
			t.Errorf("%s: Got %#v, %v", profile, got, err)
		}
	}
	for _, c := range []struct{ text, profile, want string }{
		{"", "default", "f: there are no profiles"},
		{file, "none", "f: there is no profile none; it has default, half, other"},
		{file, "half", "f: profile half lacks aws_access_key_id or aws_secret_access_key"},
		{"[default", "default", "f:1: a section without ]"},
		{"[default]\n\nhunter2\n", "default", "f:3: neither a section nor a name and its value"},
	} {
		if _, err := parseCredentials("f", c.text, c.profile); err == nil || err.Error() != c.want {
			t.Errorf("%s of %q: Got %v, want %s", c.profile, c.text, err, c.want)
		}
	}
}

// FuzzParseCredentials: whatever is read without an error is a key and its secret, which no
// error quotes.
func FuzzParseCredentials(f *testing.F) {
	f.Add("[default]\naws_access_key_id = A\naws_secret_access_key = hunter2\n")
	f.Add("[default]\nhunter2")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseCredentials("f", text, "default")
		if err == nil && (keys.AccessKey == "" || keys.SecretKey == "" || !strings.Contains(text, keys.SecretKey)) {
			t.Errorf("Got %#v", keys)
		}
		if err != nil && !strings.Contains(text, "[") && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Got %v", err)
		}
	})
}

// TestCredentialsReplaced: a target that is open makes its requests with what the file holds
// at the time.
func TestCredentialsReplaced(t *testing.T) {
	t.Parallel()
	var seen []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, signer, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		key, _, _ := strings.Cut(signer, "/")
		seen = append(seen, key+" "+r.Header.Get("X-Amz-Security-Token"))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer service.Close()
	name := filepath.Join(t.TempDir(), "credentials")
	clock := time.Now().Add(-time.Hour)
	write := func(key, token string) {
		t.Helper()
		clock = clock.Add(time.Second)
		text := "[sluice]\naws_access_key_id = " + key + "\naws_secret_access_key = s\naws_session_token = " + token + "\n"
		if err := errors.Join(os.WriteFile(name, []byte(text), 0o600), os.Chtimes(name, clock, clock)); err != nil {
			t.Fatal(err)
		}
	}
	c := Default()
	c.S3 = S3{Endpoint: service.URL, CredentialsFile: name, Profile: "sluice", PartSize: 16 << 20}
	if _, err := c.OpenTarget("s3://b/p", true, nil); err == nil || !strings.Contains(err.Error(), "s3.credentials_file") {
		t.Errorf("without the file: Got %v", err)
	}
	write("A", "t1")
	var log bytes.Buffer
	bucket, err := c.OpenTarget("s3://b/p", true, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A t1", "B t2"} {
		seen = nil
		if _, err := bucket.Begin(t.Context(), "run", "1"); err == nil {
			t.Error("Got no error of a service that refuses all")
		}
		if len(seen) == 0 || seen[0] != want {
			t.Errorf("Got requests by %q, want %s", seen, want)
		}
		write("B", "t2")
	}
	// One that cannot be read is told of once, and changes nothing.
	told := func(want ...string) {
		t.Helper()
		for range 2 {
			seen = nil
			if _, err := bucket.Begin(t.Context(), "run", "1"); err == nil || len(seen) == 0 || seen[0] != "B t2" {
				t.Errorf("Got %v and requests by %q", err, seen)
			}
		}
		var got []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "credentials_file") {
				got = append(got, line)
			}
		}
		log.Reset()
		if len(got) != len(want) {
			t.Fatalf("Got %q", got)
		}
		for i, line := range got {
			if !strings.Contains(line, want[i]) || strings.Contains(line, "hunter2") {
				t.Errorf("Got %q, want %q", line, want[i])
			}
		}
	}
	told()
	clock = clock.Add(time.Second)
	if err := errors.Join(os.WriteFile(name, []byte("[sluice]\nhunter2"), 0o600), os.Chtimes(name, clock, clock)); err != nil {
		t.Fatal(err)
	}
	told(name + ":2: neither a section")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	told("no such file")
	write("B", "t2")
	told("can be read again")
}
