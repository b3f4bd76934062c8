package config

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/pipeline/decode"
	"sluice/pipeline/decode/registry"
	"sluice/pipeline/mapping"
)

// SchemaRegistry is where the schemas of payloads are: a registry with Confluent's
// HTTP API.
type SchemaRegistry struct {
	// URLs are its addresses, http or https, of which one that answers is enough.
	URLs []string `yaml:"urls"`
	// User is the name to authenticate as (HTTP basic).
	User string `yaml:"user"`
	// Password is never printed. Write ${VAR} or ${file:/path}, which is read again at each
	// request.
	Password Secret `yaml:"password"`
	// Token authenticates in place of a user (bearer), as password does. It is never printed.
	Token Secret `yaml:"token"`
	// TLS is that of https addresses, which it need not enable.
	TLS TLS `yaml:"tls"`
	// RequestTimeout bounds a request and its answer.
	RequestTimeout time.Duration `yaml:"request_timeout" default:"5s"`
}

// maxSchemaFile bounds a schema_file, as decode does.
const maxSchemaFile = 4 << 20

// schemas returns a client of the registry, or nil where there is none. Its idle
// connections end by themselves.
func (c *Config) schemas() (decode.Schemas, error) {
	s := &c.SchemaRegistry
	if len(s.URLs) == 0 {
		return nil, nil
	}
	t := s.TLS
	t.Enable = slices.ContainsFunc(s.URLs, func(u string) bool { return strings.HasPrefix(u, "https:") })
	tls, roots, err := t.load("schema_registry.tls", c.renewed)
	if err != nil {
		return nil, fmt.Errorf("schema_registry.tls: %w", err)
	}
	return registry.New(&registry.Options{
		URLs: s.URLs, User: s.User, Password: string(s.Password), Token: string(s.Token), PasswordNow: c.secret("schema_registry.password", s.Password), TokenNow: c.secret("schema_registry.token", s.Token), TLS: tls, RootCAs: roots, Timeout: s.RequestTimeout,
	})
}

func (c *Config) lintRegistry(report reporter) {
	s := &c.SchemaRegistry
	secure := false
	for i, u := range s.URLs {
		if _, err := registry.ParseURL(u); err != nil {
			report(fmt.Sprintf("schema_registry.urls[%d]", i), "", "%v", err)
		}
		secure = secure || strings.HasPrefix(u, "https:")
	}
	switch {
	case (s.User == "") != (s.Password == ""):
		report("schema_registry", "", "user and password go together")
	case s.User != "" && s.Token != "":
		report("schema_registry.token", "remove one of them", "there are a user and a token")
	}
	if (s.TLS.CertFile == "") != (s.TLS.KeyFile == "") {
		report("schema_registry.tls", "", "cert_file and key_file go together")
	}
	if !secure && s.TLS != (TLS{}) {
		report("schema_registry.tls", "write https: in schema_registry.urls", "TLS is configured and no address uses it")
	}
	if s.RequestTimeout == 0 {
		report("schema_registry.request_timeout", "", "request_timeout is 0: no answer could come in time")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Pipelines)) {
		p := c.Pipelines[name]
		if p.Decode.Registered() && len(s.URLs) == 0 {
			report(join(join("pipelines", name), "decode.framing"), `add schema_registry: {urls: ["http://host:8081"]}`, "framing %s needs a schema registry", p.Decode.Framing)
		}
	}
}

// readSchema fills in the content of a pipeline's schema_file; a relative path
// starts at the configuration file.
func (c *Config) readSchema(s *mapping.DecodeSpec) error {
	if s.SchemaFile == "" {
		return nil
	}
	path := s.SchemaFile
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(c.file), path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if s.Schema, err = io.ReadAll(io.LimitReader(f, maxSchemaFile+1)); err != nil {
		return err
	}
	if len(s.Schema) > maxSchemaFile {
		return fmt.Errorf("%s is larger than %d bytes", path, maxSchemaFile)
	}
	return nil
}
