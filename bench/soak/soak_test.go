package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) {
	if status, ok := serve(); ok { // the test program is also the servers
		os.Exit(status)
	}
	os.Exit(testhome.Main(m, (*testing.M).Run))
}

// The soak works; a run of two seconds proves no more.
func TestSoak(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var log, out bytes.Buffer
	s := &soak{config: config{
		program: program, duration: 2 * time.Second, calls: 100, rate: 1000, log: &log, out: &out,
		restart: time.Second, quiet: 700 * time.Millisecond,
	}}
	err = s.run(t.Context())
	if err != nil || !strings.Contains(out.String(), "PASS") {
		t.Errorf("%v\n%s", err, out.String())
	}
	kinds := map[string]int{}
	for lines := json.NewDecoder(&log); lines.More(); {
		var r record
		if err := lines.Decode(&r); err != nil {
			t.Fatal(err)
		}
		kinds[r.Kind]++
	}
	if kinds["second"] == 0 || kinds["quiet"] == 0 {
		t.Errorf("got records %v, want some of each kind", kinds)
	}
}
