package main

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

// A short run, so that the program does not rot.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" && runtime.GOOS == "linux" {
			t.Fatal(err)
		}
		t.Skip("redis-server is not installed")
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out, 20, 30, 1); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range append(names(), "bytes of Redis for each", "three processes with Redis") {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
}

func names() (all []string) {
	for _, o := range operations {
		all = append(all, o.name)
	}
	return all
}
