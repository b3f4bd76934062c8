package jobs

import (
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"sluice/store"
)

// Bucket is how readers reach a bucket. Credentials are no part of it: what Snippet
// prints takes them from where the tools of S3 do, such as AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY.
type Bucket struct {
	// Endpoint is the address of the service, such as
	// https://s3.eu-central-1.amazonaws.com. Buckets are addressed by path.
	Endpoint string
	// Region is what requests are signed for.
	Region string
}

// place is where a run lies.
type place struct {
	dir    string  // an absolute directory, or s3://BUCKET/PREFIX
	bucket *Bucket // nil = a directory
	secure bool    // of a bucket: https
	host   string  // of its endpoint, with a port
}

// SnippetInBucket is Snippet of a run in a bucket, whose directory is at,
// s3://BUCKET/PREFIX. No reader is told of credentials.
func SnippetInBucket(reader string, m *Manifest, at string, b *Bucket, before ...*Manifest) (string, error) {
	u, err := url.Parse(b.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("%w: the endpoint: readers take http://HOST:PORT or https://HOST", store.ErrInvalidArgument)
	}
	rest, ok := strings.CutPrefix(strings.TrimRight(at, "/"), "s3://")
	if !ok || rest == "" {
		return "", fmt.Errorf("%w: %q is not s3://BUCKET/PREFIX", store.ErrInvalidArgument, at)
	}
	// What is more is an escape, a pattern or a query to one reader or another.
	if i := strings.IndexFunc(rest, func(c rune) bool { return !keyRune(c) }); i >= 0 {
		c, _ := utf8.DecodeRuneInString(rest[i:])
		return "", fmt.Errorf("%w: %q has %q, of which no reader in a bucket can be told safely; give it another prefix", store.ErrInvalidArgument, at, c)
	}
	return snippet(reader, m, &place{dir: "s3://" + rest, bucket: b, secure: u.Scheme == "https", host: u.Host}, before)
}

// keyRune reports whether every reader takes c in the key of an object for itself.
func keyRune(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("/-_.=", c)
}

// beside is another run of the job.
func (p *place) beside(dir string) *place {
	other := *p
	other.dir = path.Join(path.Dir(p.dir), dir)
	if p.bucket != nil {
		other.dir = "s3://" + path.Join(path.Dir(p.key(p.dir)), dir)
	}
	return &other
}

// file is a file of the run, by what the readers but pyarrow call it.
func (p *place) file(name string) string { return p.dir + "/" + path.Clean(name) }

// key is what pyarrow calls a place in a bucket.
func (p *place) key(name string) string { return strings.TrimPrefix(name, "s3://") }

// duckDB is what comes before a query, which says how to get there.
func (p *place) duckDB() string {
	if p.bucket == nil {
		return ""
	}
	return fmt.Sprintf("-- The credentials are those of the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.\nINSTALL httpfs;\nLOAD httpfs;\nINSTALL aws;\nLOAD aws;\nCREATE OR REPLACE SECRET sluice (TYPE s3, PROVIDER credential_chain, SCOPE %s, ENDPOINT %s, REGION %s, URL_STYLE 'path', USE_SSL %t);\n\n",
		sqlText(p.dir), sqlText(p.host), sqlText(p.bucket.Region), p.secure)
}

// polars is the argument that says how to get there, with a comma before it.
func (p *place) polars() string {
	if p.bucket == nil {
		return ""
	}
	return fmt.Sprintf(", storage_options={\"aws_endpoint_url\": %s, \"aws_region\": %s, \"aws_allow_http\": \"%t\", \"aws_virtual_hosted_style_request\": \"false\"}",
		pythonText(strings.TrimRight(p.bucket.Endpoint, "/")), pythonText(p.bucket.Region), !p.secure)
}

// arrow is the lines that make the file system s3 of pyarrow.
func (p *place) arrow() string {
	if p.bucket == nil {
		return ""
	}
	scheme := "https"
	if !p.secure {
		scheme = "http"
	}
	return fmt.Sprintf("import pyarrow.fs\n\ns3 = pyarrow.fs.S3FileSystem(endpoint_override=%s, scheme=%s, region=%s)\n", pythonText(p.host), pythonText(scheme), pythonText(p.bucket.Region))
}

// spark is the options of a session, and the URL of the run's directory.
func (p *place) spark() (options, at string) {
	if p.bucket == nil {
		return "", "file://" + p.dir
	}
	for _, o := range [][2]string{
		{"endpoint", strings.TrimRight(p.bucket.Endpoint, "/")},
		{"endpoint.region", p.bucket.Region},
		{"path.style.access", "true"},
		{"connection.ssl.enabled", fmt.Sprint(p.secure)},
	} {
		options += fmt.Sprintf(".config(%s, %s)", pythonText("spark.hadoop.fs.s3a."+o[0]), pythonText(o[1]))
	}
	return options, "s3a://" + p.key(p.dir)
}
