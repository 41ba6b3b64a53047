package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestDocumentMatchesTheGoldenFile compares the document of fixed figures with the golden
// file.
func TestDocumentMatchesTheGoldenFile(t *testing.T) {
	b := &bench{servers: catalogueServers()[:4]}
	w := workload{name: "modern-json", title: "HTTP, modern era",
		bounds: []bound{{of: baseline, cpu: 1.2}, {of: "go-sdk", rate: 15}}}
	figure := func(name string, cpu time.Duration) *subject {
		f := figures{rate: float64(time.Second / cpu), busy: 1, cpu: cpu, allocs: 30, bytes: 2500}
		return &subject{name: name, rounds: []figures{f}}
	}
	subjects := []*subject{
		figure(baseline, 20*time.Microsecond),
		figure(ours, 25*time.Microsecond),
		figure("go-sdk", 500*time.Microsecond),
		figure("ts-v2", 800*time.Microsecond),
	}
	subjects[3].slow = true
	var tables strings.Builder
	writeHeading(&tables, w)
	writeCalls(&tables, w, pace{5, 200 * time.Millisecond, 100 * time.Millisecond}, subjects)
	d := document{Date: "2026-01-02", Conditions: []string{"go1.26, a machine", "nothing pinned"},
		Tables: strings.TrimSpace(tables.String())}
	for _, s := range b.servers {
		d.Servers = append(d.Servers, comparedServer{s.name, s.description})
	}
	var got strings.Builder
	if err := d.write(&got, documentText); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "performance.md")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the document differs from %s; run with -update and review the difference:\n%s", golden, got.String())
	}
}

// TestDocumentNamesTheVersionsInUse checks the versions in the document against go.mod
// and package.json.
func TestDocumentNamesTheVersionsInUse(t *testing.T) {
	inUse := ""
	for _, name := range []string{"go.mod", "package.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		inUse += strings.NewReplacer(`": "`, " ", `"`, "").Replace(string(text))
	}
	for _, s := range catalogueServers() {
		for _, word := range []string{"go-sdk v", "mcp-go v", "server 2", "sdk 1"} {
			at := strings.Index(s.description, word)
			if at < 0 {
				continue
			}
			end := at + len(word) + strings.IndexAny(s.description[at+len(word):]+" ", " ,")
			if named := s.description[at:end]; !strings.Contains(inUse, named) {
				t.Errorf("%s: version %q is neither in go.mod nor in package.json", s.name, named)
			}
		}
	}
}
