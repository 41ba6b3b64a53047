package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestStartDetectsWrongResponses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	w := catalogueColdWorkloads()[1]
	const correct = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`
	for script, want := range map[string]string{
		"read line; echo '" + correct + "'":                  "",
		"read line; echo '{}'":                               "unexpected protocol version",
		"read line; exit 3":                                  "EOF",
		"read line; echo '" + correct + "'; exit 3":          "exit status 3",
		"read line; echo '" + correct + "' | tr 5 4":         "2024-11-24",
		"read line; echo not JSON; while read x; do :; done": "invalid",
	} {
		path := filepath.Join(t.TempDir(), "server")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		wall, _, err := (&starter{argv: []string{path}}).start(context.Background(), w)
		switch {
		case want == "" && (err != nil || wall <= 0):
			t.Errorf("%s: %v, %v, want a duration", script, wall, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: error %v, want %s", script, err, want)
		}
	}
}

func TestStartRatiosAreComputedPerRound(t *testing.T) {
	limit := &starter{name: baseline, wall: []float64{1, 3, 1.1}, cpu: []float64{1, 3, 1.1}, size: 2e6}
	subject := &starter{name: ours, wall: []float64{2, 6, 2.2}, cpu: []float64{3, 9, 3.3}, size: 7_300_000}
	b, w := &bench{}, catalogueColdWorkloads()[0]
	var out strings.Builder
	b.writeStarts(&out, w, []*starter{limit, subject})
	if want := "| patchbay | 2.20 | 3.30 | 7.3 | 2.00 | 3.00 |\n"; !strings.Contains(out.String(), want) {
		t.Errorf("table:\n%s\nwant %s in it", out.String(), want)
	}
	if len(b.targets) != 1 || b.targets[0].got != 2 || b.targets[0].met() {
		t.Errorf("targets = %+v, want one of 2, not met", b.targets)
	}
}
