package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) {
	if ok, err := runRole(); ok {
		if err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(1)
		}
		return
	}
	if config := os.Getenv(childVariable); config != "" {
		if err := serveChild(config); err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(testhome.Main(m, (*testing.M).Run))
}

// needRedis skips a test without redis-server, which fails in CI on Linux.
func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil && (os.Getenv("CI") != "true" || runtime.GOOS != "linux") {
		t.Skip("redis-server is not installed")
	}
}

// A short run, so that the program does not rot.
func TestThreeRounds(t *testing.T) {
	var out bytes.Buffer
	passed, err := run(options{rounds: 3, seed: 1, dir: t.TempDir(), every: 3, out: &out})
	if err != nil || !passed {
		t.Errorf("run returned %t, %v:\n%s", passed, err, &out)
	}
}

// The same of several processes with a Redis.
func TestThreeRoundsOfReplicas(t *testing.T) {
	needRedis(t)
	var out bytes.Buffer
	passed, err := run(options{rounds: 3, seed: 1, dir: t.TempDir(), every: 3, out: &out, replicas: replicaCount,
		engine: engineSingle})
	if err != nil || !passed {
		t.Errorf("run returned %t, %v:\n%s", passed, err, &out)
	}
}
