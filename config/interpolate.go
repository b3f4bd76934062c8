package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxSecretFile bounds ${file:…}: a secret is a line, not an archive.
const maxSecretFile = 64 << 10

// interpolate replaces the references of one scalar:
//
//	${VAR}            the environment variable; an error where it is not set
//	${VAR:-default}   or the default, where it is not set or empty
//	${VAR:?message}   or an error with this message
//	${file:/path}     the file's content without its last line break
//	$$                a dollar sign
//
// It works on the parsed value, so that what a variable holds can never add
// YAML; values with line breaks are refused all the same, as they are a mistake
// wherever a setting is one line. A lone dollar sign stands for itself.
func (d *decoder) interpolate(text string) (string, error) {
	if !strings.Contains(text, "$") {
		return text, nil
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			b.WriteString(text)
			return b.String(), nil
		}
		b.WriteString(text[:i])
		switch text[i+1] {
		case '$':
			b.WriteByte('$')
			text = text[i+2:]
		case '{':
			end := strings.IndexByte(text[i:], '}')
			if end < 0 {
				return "", fmt.Errorf("%q has no closing brace", text[i:])
			}
			value, err := d.reference(text[i+2 : i+end])
			if err != nil {
				return "", err
			}
			b.WriteString(value)
			text = text[i+end+1:]
		default:
			b.WriteByte('$')
			text = text[i+1:]
		}
	}
}

// reference resolves what stands between the braces.
func (d *decoder) reference(ref string) (string, error) {
	if strings.Contains(ref, "${") {
		return "", fmt.Errorf("${%s}: references cannot be nested", ref)
	}
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		return d.secretFile(path)
	}
	name, rest, hasRest := strings.Cut(ref, ":")
	if !isVariable(name) {
		return "", fmt.Errorf("${%s}: %q is not the name of a variable; write $$ for a dollar sign", ref, name)
	}
	value, set := d.lookup(name)
	switch {
	case hasRest && strings.HasPrefix(rest, "-"):
		if value == "" {
			value = rest[1:]
		}
	case hasRest && strings.HasPrefix(rest, "?"):
		if value == "" {
			return "", fmt.Errorf("%s: %s", name, rest[1:])
		}
	case hasRest:
		return "", fmt.Errorf("${%s}: write ${%s}, ${%s:-default} or ${%s:?message}", ref, name, name, name)
	case !set:
		return "", fmt.Errorf("environment variable %s is not set; set it, or write ${%s:-default}", name, name)
	}
	if strings.ContainsAny(value, "\r\n") {
		return "", fmt.Errorf("the value of environment variable %s has line breaks", name)
	}
	return value, nil
}

func isVariable(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// secretFile reads the file of a ${file:…}; a relative path starts at the
// configuration file.
func (d *decoder) secretFile(path string) (string, error) {
	if path == "" {
		return "", errors.New("${file:} names no file")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.file), path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("${file:…}: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("${file:…}: %w", err)
	case len(content) > maxSecretFile:
		return "", fmt.Errorf("${file:%s} is larger than %d bytes", path, maxSecretFile)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if strings.ContainsAny(value, "\r\n") {
		return "", fmt.Errorf("${file:%s} has more than one line", path)
	}
	if value == "" && d.again {
		return "", fmt.Errorf("${file:%s} is empty", path) // it is being written
	}
	return value, nil
}
