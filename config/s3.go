package config

import (
	"fmt"
	"log/slog"
	"strings"

	"sluice/jobs/target"
	"sluice/store"
)

// S3 is a service that speaks Amazon's S3 protocol.
type S3 struct {
	// Endpoint is its address, such as https://s3.eu-central-1.amazonaws.com;
	// buckets are addressed by path. Empty = no job may have an out of s3://.
	Endpoint string `yaml:"endpoint"`
	// Region is what requests are signed for.
	Region string `yaml:"region" default:"us-east-1"`
	// AccessKey names the credentials.
	AccessKey string `yaml:"access_key"`
	// SecretKey is never printed. Write ${VAR} or ${file:/path}.
	SecretKey Secret `yaml:"secret_key"`
	// SessionToken belongs to temporary credentials. It is never printed.
	SessionToken Secret `yaml:"session_token"`
	// CredentialsFile is a file of Amazon's shared format (~/.aws/credentials) with
	// the credentials, in place of the three before it. It is read again where it
	// has changed before a request: what writes temporary ones into it renews them.
	CredentialsFile string `yaml:"credentials_file"`
	// Profile is whose credentials of credentials_file.
	Profile string `yaml:"profile" default:"default"`
	// PartSize is how much of each file that is being written is in memory, and
	// sent at a time; a file has at most 10,000 parts.
	PartSize Size `yaml:"part_size" default:"16MiB"`
}

// s3Scheme begins the out of a job that publishes in a bucket.
const s3Scheme = "s3://"

// InBucket reports whether out, of a job or a join, is a bucket.
func InBucket(out string) bool { return strings.HasPrefix(out, s3Scheme) }

// urlScheme is that of an address of the net; "" = it is none.
func urlScheme(out string) string {
	scheme, _, ok := strings.Cut(out, "://")
	if !ok || scheme == "" || strings.ContainsFunc(scheme, func(r rune) bool { return r >= 128 || !strings.ContainsRune(schemeRunes, r) }) {
		return ""
	}
	return scheme
}

// schemeRunes are those of a scheme (RFC 3986, section 3.1).
const schemeRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-."

// OpenTarget opens where a job or a join publishes: s3://BUCKET/PREFIX or a
// directory, which is made where create is set. The error for a directory that is
// not there wraps target.ErrNotFound, that for another URL, or for one to be made inside
// the embedded store's own, store.ErrInvalidArgument; none quotes what may be a password. log is warned of requests to a bucket's service
// that are made again, and of credentials that cannot be read any more; nil = nobody is.
func (c *Config) OpenTarget(out string, create bool, log *slog.Logger) (target.Target, error) {
	switch {
	case InBucket(out):
		if c.S3.Endpoint == "" {
			return nil, fmt.Errorf("%w: a place in a bucket, and no s3.endpoint in the configuration", store.ErrInvalidArgument)
		}
		o := c.s3Options(out)
		o.Logger = log
		if c.S3.CredentialsFile != "" {
			keys, err := s3Credentials(c.S3.CredentialsFile, c.S3.Profile)
			if err != nil {
				return nil, fmt.Errorf("open %s: s3.credentials_file: %w", withoutSecrets(out), err)
			}
			if log == nil {
				log = slog.New(slog.DiscardHandler)
			}
			o.Credentials = tellingOf(keys, log)
		}
		s, err := target.NewS3(o)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", withoutSecrets(out), err)
		}
		return s, nil
	case urlScheme(out) != "":
		// As a directory it would be made, and named with a password in it.
		return nil, fmt.Errorf("%w: %s:// is not a place to publish in: write a directory, or s3://BUCKET/PREFIX", store.ErrInvalidArgument, urlScheme(out))
	case create:
		if c.Store.Engine == "pebble" {
			if err := refuseWithin(c.Store.Dir, out); err != nil {
				return nil, err
			}
		}
		return target.CreateLocal(out)
	}
	return target.OpenLocal(out)
}

// s3Options returns the options of a bucket without what is in files.
func (c *Config) s3Options(out string) *target.S3Options {
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(out, s3Scheme), "/")
	return &target.S3Options{
		Endpoint: c.S3.Endpoint, Region: c.S3.Region, Bucket: bucket, Prefix: prefix,
		AccessKey: c.S3.AccessKey, SecretKey: string(c.S3.SecretKey), SessionToken: string(c.S3.SessionToken), PartBytes: int(c.S3.PartSize),
	}
}

// lintBuckets checks the buckets of jobs, joins and backups. What is wrong with the
// service's own keys is said there, once, however many of them have a bucket.
func (c *Config) lintBuckets(d *decoder, report reporter) {
	if c.S3.PartSize < 5<<20 || c.S3.PartSize > 1<<30 {
		hint := "the service takes no smaller parts"
		if c.S3.PartSize > 1<<30 {
			hint = "each file that is being written has one in memory"
		}
		report("s3.part_size", hint, "part_size is %d, must be 5MiB..1GiB", int64(c.S3.PartSize))
	}
	inFile := c.S3.CredentialsFile != ""
	if inFile && (c.S3.AccessKey != "" || c.S3.SecretKey != "" || c.S3.SessionToken != "") {
		report("s3.credentials_file", "leave out access_key, secret_key and session_token, or it", "there are two sets of credentials")
	}
	used := false
	check := func(path, out string) {
		if !InBucket(out) {
			if scheme := urlScheme(out); scheme != "" {
				report(join(path, "out"), "write a directory, or s3://BUCKET/PREFIX", "%s:// is not a place to publish in", scheme)
			}
			return
		}
		if d.unread["s3.endpoint"] {
			return
		}
		if c.S3.Endpoint == "" {
			report(join(path, "out"), "set s3.endpoint, s3.access_key and s3.secret_key", "there is no service for buckets in this file")
			return
		}
		used = true
		o := c.s3Options(out)
		// A file of credentials need not be on the machine that looks for mistakes.
		if inFile || c.S3.AccessKey == "" || c.S3.SecretKey == "" {
			o.Credentials = func() target.S3Credentials { return target.S3Credentials{} }
		}
		if _, err := target.NewS3(o); err != nil {
			report(join(path, "out"), "", "%v", err)
		}
	}
	for name, spec := range c.Jobs {
		check(join("jobs", name), spec.Out)
	}
	for name, spec := range c.Joins {
		check(join("joins", name), spec.Out)
	}
	for name, spec := range c.Backups {
		check(join("backups", name), spec.Out)
	}
	if used && !inFile {
		const hint = "set s3.access_key and s3.secret_key, or s3.credentials_file"
		if c.S3.AccessKey == "" {
			report("s3.access_key", hint, "the access key is missing")
		}
		if c.S3.SecretKey == "" {
			report("s3.secret_key", hint, "the secret key is missing")
		}
	}
}
