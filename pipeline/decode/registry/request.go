package registry

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sluice/pipeline/decode"
)

// registered is the registry's answer to a question for a schema.
type registered struct {
	Schema     string `json:"schema"`
	SchemaType string `json:"schemaType"` // "" = AVRO
	References []struct {
		Name    string `json:"name"`
		Subject string `json:"subject"`
		Version int    `json:"version"`
	} `json:"references"`
	bytes int // of the answer
}

// failure is the body of an answer that is an error.
type failure struct {
	Code    int    `json:"error_code"`
	Message string `json:"message"`
}

// The registry's own codes, by which its 404 differs from that of a proxy or of a
// wrong address.
const (
	codeNoSubject = 40401
	codeNoVersion = 40402
	codeNoSchema  = 40403
)

// get returns the schema with all that it references. Its error wraps decode.ErrNoSchema,
// ErrUnusable, decode.ErrUnavailable or the context's.
func (c *Client) get(ctx context.Context, id int) (*decode.Schema, error) {
	path := "/schemas/ids/" + strconv.Itoa(id)
	r, err := c.ask(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	s := &decode.Schema{ID: id, Type: r.SchemaType}
	if s.Type == "" {
		s.Type = decode.SchemaAvro
	}
	if s.Text, err = c.text(ctx, path, nil, s.Type, r); err != nil {
		return nil, err
	}
	if s.Bytes() > decode.MaxSchemaBytes {
		return nil, errTooLarge
	}
	if err := c.references(ctx, s, r, &visit{seen: map[string]bool{}, bytes: r.bytes}); err != nil {
		return nil, err
	}
	return s, nil
}

// visit is what was asked for of a schema.
type visit struct {
	seen  map[string]bool // references, by name
	bytes int             // of the answers
}

// references gets what r references, each behind what it references itself.
func (c *Client) references(ctx context.Context, s *decode.Schema, r *registered, v *visit) error {
	for _, ref := range r.References {
		path := "/subjects/" + url.PathEscape(ref.Subject) + "/versions/" + strconv.Itoa(ref.Version)
		if v.seen[ref.Name] {
			continue
		}
		if v.seen[ref.Name] = true; len(v.seen) > maxReferences {
			return fmt.Errorf("%w: it references more than %d others", ErrUnusable, maxReferences)
		}
		// A schema may outlive the subject of what it references.
		query := url.Values{"deleted": {"true"}}
		inner, err := c.ask(ctx, path, query)
		if err == nil {
			if v.bytes += inner.bytes; v.bytes > maxAnswers {
				err = fmt.Errorf("%w: the answers about it and what it references have more than %d bytes", ErrUnusable, maxAnswers)
			} else {
				err = c.references(ctx, s, inner, v)
			}
		}
		var text []byte
		if err == nil {
			text, err = c.text(ctx, path, query, s.Type, inner)
		}
		if err == nil && s.Bytes()+len(ref.Name)+len(text) > decode.MaxSchemaBytes {
			err = errTooLarge
		}
		if err != nil {
			return fmt.Errorf("reference %s (version %d of %s): %w", ref.Name, ref.Version, ref.Subject, err)
		}
		s.References = append(s.References, decode.Reference{Name: ref.Name, Text: text})
	}
	return nil
}

// text returns the schema's text: of Protobuf its compiled descriptor, which is
// asked for apart.
func (c *Client) text(ctx context.Context, path string, query url.Values, typ string, r *registered) ([]byte, error) {
	if typ != decode.SchemaProtobuf {
		return []byte(r.Schema), nil
	}
	serialized := url.Values{"format": {"serialized"}}
	for k, v := range query {
		serialized[k] = v
	}
	r, err := c.ask(ctx, path, serialized)
	if err != nil {
		return nil, err
	}
	// What is no base64 is the source text: the registry does not know the format.
	text, err := base64.StdEncoding.DecodeString(r.Schema)
	if err != nil {
		return nil, decode.ErrNoDescriptor
	}
	return text, nil
}

// ask gets the answer to a question for a schema from the first address that has
// one. The registry's word that there is none counts where no other address knows
// better.
func (c *Client) ask(ctx context.Context, path string, query url.Values) (*registered, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	wait := firstWait
	var missing, last error
	for attempt := range c.opts.Attempts {
		if attempt > 0 {
			if err := sleep(ctx, wait); err != nil {
				return nil, err
			}
			wait *= 2
		}
		for _, u := range c.urls {
			r, again, err := c.once(ctx, u+path)
			switch {
			case err == nil:
				return r, nil
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case errors.Is(err, decode.ErrNoSchema), errors.Is(err, ErrUnusable):
				missing = err
			default:
				last = fmt.Errorf("%w: %w", decode.ErrUnavailable, err)
				wait = max(wait, min(again, maxWait))
			}
		}
		if missing != nil {
			return nil, missing
		}
	}
	return nil, last
}

// once asks one address. again is how long it asks to wait.
func (c *Client) once(ctx context.Context, address string) (r *registered, again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Accept", "application/vnd.schemaregistry.v1+json, application/json")
	c.authorize(req)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, err // a *url.Error: it names the address, which holds no secret
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("read the answer of %s: %w", address, err)
	case len(body) > maxAnswer && resp.StatusCode == http.StatusOK && isJSON(resp, body):
		return nil, 0, fmt.Errorf("%w: %s answers more than %d bytes", ErrUnusable, address, maxAnswer)
	case len(body) > maxAnswer:
		return nil, 0, fmt.Errorf("%s answers more than %d bytes", address, maxAnswer)
	case resp.StatusCode != http.StatusOK:
		return nil, retryAfter(resp), refusal(address, resp.StatusCode, body)
	}
	r = &registered{}
	if err := json.Unmarshal(body, r); err != nil || r.Schema == "" {
		return nil, 0, fmt.Errorf("%s answers no schema: is it the address of a registry?", address)
	}
	r.bytes = len(body)
	return r, 0, nil
}

// isJSON reports whether an answer is, as a registry's and no proxy's page is, by what
// its head or its first byte says: what was cut off cannot be parsed.
func isJSON(resp *http.Response, body []byte) bool {
	return strings.Contains(resp.Header.Get("Content-Type"), "json") || bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{"))
}

// refusal returns the error of an answer that is none.
func refusal(address string, status int, body []byte) error {
	var f failure
	if err := json.Unmarshal(body, &f); err != nil {
		f = failure{}
	}
	said := f.Message
	if len(said) > 200 {
		said = said[:200] + "…"
	}
	switch {
	case status == http.StatusNotFound && (f.Code == codeNoSchema || f.Code == codeNoVersion || f.Code == codeNoSubject):
		return fmt.Errorf("%w (%d: %q)", decode.ErrNoSchema, f.Code, said)
	case status == http.StatusNotFound:
		return fmt.Errorf("%s: 404 that is not the registry's own: is it the address of a registry?", address)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("%s: %d: the registry refuses the credentials: %q", address, status, said)
	case said != "":
		return fmt.Errorf("%s: %d: %q", address, status, said)
	}
	return fmt.Errorf("%s: %d %s", address, status, http.StatusText(status))
}

// retryAfter returns the seconds that an answer asks to wait.
func retryAfter(resp *http.Response) time.Duration {
	s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(s) * time.Second
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
