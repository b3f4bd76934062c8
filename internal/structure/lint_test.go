package structure

import (
	"go/build/constraint"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// systems are the tags that Go sets by itself: what is built for one machine is looked at
// there.
var systems = []string{"unix", "linux", "darwin", "windows", "amd64", "arm64", "race", "cgo"}

// tagsOf returns the tags of the build constraint of a file, but for systems.
func tagsOf(source string) (tags []string, err error) {
	for line := range strings.Lines(source) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "package ") {
			return tags, nil
		}
		if !constraint.IsGoBuild(line) {
			continue
		}
		x, err := constraint.Parse(line)
		if err != nil {
			return nil, err
		}
		x.Eval(func(tag string) bool {
			if !slices.Contains(systems, tag) {
				tags = append(tags, tag)
			}
			return true
		})
	}
	return tags, nil
}

// TestLintSeesTaggedFiles: make lint looks at the files of every build tag, with vet and
// with staticcheck, which pass over what is not built.
func TestLintSeesTaggedFiles(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../..")
	makefile, err := fs.ReadFile(root, "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, lint, _ := strings.Cut(string(makefile), "\nlint:")
	lint, _, _ = strings.Cut(lint, "\n\n")
	tagged := map[string]string{} // the first file of a tag
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		tags, err := tagsOf(string(source))
		for _, tag := range tags {
			if tagged[tag] == "" {
				tagged[tag] = name
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if tagged["integration"] == "" {
		t.Errorf("Got no file of the integration suite in %v", tagged)
	}
	for tag, name := range tagged {
		for _, tool := range []string{"vet", "staticcheck"} {
			if !strings.Contains(lint, tool+" -tags "+tag+" ./...") {
				t.Errorf("make lint runs no %s -tags %s ./..., so that %s is not looked at", tool, tag, name)
			}
		}
	}
}
