package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"sluice/config"
)

func TestExamplesLoad(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("Got %d example files, error %v", len(files), err)
	}
	for _, f := range files {
		c, err := config.Load(f, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Errorf("%s:\n%v", f, err)
			continue
		}
		if len(c.TableDescriptors()) != 2 || len(c.Jobs) != 2 || len(c.Pipelines) != 1 {
			t.Errorf("%s: Got %d tables, %d jobs, %d pipelines", f, len(c.TableDescriptors()), len(c.Jobs), len(c.Pipelines))
		}
		again, err := config.Parse("echo", []byte(c.String()), os.LookupEnv)
		if err != nil {
			t.Errorf("%s: the echo does not load:\n%v\n%s", f, err, c)
		} else if again.String() != c.String() {
			t.Errorf("%s: the echo of the echo is another:\n%s\n%s", f, c, again)
		}
	}
}
