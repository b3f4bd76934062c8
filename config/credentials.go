package config

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"sluice/internal/reread"
	"sluice/jobs/target"
)

// s3Credentials returns the credentials of a profile in a file of Amazon's shared format.
func s3Credentials(file, profile string) (*reread.Value[target.S3Credentials], error) {
	return reread.New(func() (target.S3Credentials, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return target.S3Credentials{}, err
		}
		return parseCredentials(file, string(text), profile)
	}, file)
}

// tellingOf returns what keys are at the time. It tells log, once for each reason, that what
// has replaced them cannot be read, and that it can be again.
func tellingOf(keys *reread.Value[target.S3Credentials], log *slog.Logger) func() target.S3Credentials {
	var told atomic.Pointer[string] // the last reason; nil or "" = none
	return func() target.S3Credentials {
		reason := ""
		now, err := keys.Now()
		if err != nil {
			reason = err.Error()
		}
		switch before := told.Swap(&reason); {
		case before == nil && reason == "", before != nil && *before == reason:
		case reason != "":
			log.Warn("the credentials of the bucket cannot be read again: requests go on with those of before, until they expire; put the file right", "setting", "s3.credentials_file", "err", reason)
		default:
			log.Info("the credentials of the bucket can be read again", "setting", "s3.credentials_file")
		}
		return now
	}
}

// parseCredentials reads the credentials of a profile from text, which is that of file:
// sections in brackets, names and values on a line, and comments ("Configuration and
// credential file settings", AWS CLI User Guide). Its errors name the line and quote nothing
// of it but the names of profiles.
func parseCredentials(file, text, profile string) (keys target.S3Credentials, err error) {
	var profiles []string
	section := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			// A comment may follow the bracket.
			name, _, ok := strings.Cut(line[1:], "]")
			if !ok {
				return keys, fmt.Errorf("%s:%d: a section without ]", file, i+1)
			}
			section = strings.TrimSpace(name)
			profiles = append(profiles, section)
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return keys, fmt.Errorf("%s:%d: neither a section nor a name and its value", file, i+1)
		}
		if section != profile {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "aws_access_key_id":
			keys.AccessKey = value
		case "aws_secret_access_key":
			keys.SecretKey = value
		case "aws_session_token":
			keys.SessionToken = value
		}
	}
	switch {
	case len(profiles) == 0:
		return keys, fmt.Errorf("%s: there are no profiles", file)
	case !slices.Contains(profiles, profile):
		slices.Sort(profiles)
		return keys, fmt.Errorf("%s: there is no profile %s; it has %s", file, profile, strings.Join(slices.Compact(profiles), ", "))
	case keys.AccessKey == "" || keys.SecretKey == "":
		return keys, fmt.Errorf("%s: profile %s lacks aws_access_key_id or aws_secret_access_key", file, profile)
	}
	return keys, nil
}
