package target_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"testing"
	"time"

	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
)

// putObject writes an object as another program would.
func putObject(t testing.TB, f *targettest.FakeS3, key string, data []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.URL()+"/bucket/exports/"+key, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=access/")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("put %s: %s, %v", key, res.Status, err)
	}
}

// FuzzS3Record has a record of a run, and a note of its log, say anything: what reads them
// fails or goes on, and files of other runs stay.
func FuzzS3Record(f *testing.F) {
	f.Add([]byte(``), []byte(``))
	f.Add([]byte(`{"state":"open","attempt":"x","id":"id","notes":{"a":"eA=="},"logs":[{"name":"log"}],"open":[{"name":"b","upload":"u"}]}`),
		[]byte(`{"name":"b","data":"eA==","files":[{"name":"b","upload":"u","size":3,"parts":["e"]}],"open":[{"name":"c","upload":"v"}]}`))
	f.Add([]byte(`{"state":"left","id":"id","logs":[{"name":"log","last":1,"gone":["b"]}],"files":[{"name":"a","upload":"u","size":1}]}`), []byte(`{"files":[{"name":"b"}]}`))
	f.Add([]byte(`{"state":"removing","attempt":"x"}`), []byte(`{}`))
	f.Add([]byte(`{"state":"ended"}`), []byte(`null`))
	f.Add([]byte(`{"writer":"w","files":[{"name":"a","upload":"u","parts":["e"]}],"manifest":"_manifest","content":"eA==","replaced":[{"name":"b","upload":"v"}],"logs":[{"name":"log"}]}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, record, note []byte) {
		fake := targettest.NewFakeS3(t)
		putObject(t, fake, "_runs/"+run1, record)
		putObject(t, fake, "_notes/"+run1+"/log/000000001", note)
		putObject(t, fake, "job/run=2/a", []byte("other"))
		fake.Advance(30 * 24 * time.Hour) // whoever wrote them is gone
		s := openS3(t, fake)
		defer s.Close()
		for range 2 {
			_, _ = s.Unfinished(t.Context()) // anything may be wrong: nothing panics
			left, err := s.Leftovers(t.Context())
			for i := range left {
				if err := s.Discard(t.Context(), left[i].Name); errors.Is(err, target.ErrNotFound) && left[i].Name != "" {
					t.Errorf("%q is listed, and not found: %v", left[i].Name, err)
				}
			}
			u, resumeErr := s.Resume(t.Context(), run1, "id")
			if resumeErr == nil {
				if err != nil {
					t.Errorf("a record that cannot be listed is gone on with: %v", err)
				}
				_, _ = u.Notes(t.Context())
				_ = u.Retain(t.Context(), map[string]int64{})
				_ = u.Leave()
			}
			_ = s.Remove(t.Context(), run1)
		}
		if fake.Objects()["exports/job/run=2/a"] != "other" && fake.Objects()["job/run=2/a"] != "other" {
			t.Errorf("a file of another run is gone: %v", fake.Objects())
		}
	})
}
