// Package conformance_test runs the official conformance suites and the official clients against our servers.
package conformance_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Entry points of the pinned suites.
const (
	released = "node_modules/conformance-released/dist/index.js"
	next     = "node_modules/conformance-next/dist/index.js"
)

// notPassed lists the scenarios that need not pass, each with the reason. One of them that passes fails the test, so
// that the list stays true.
var notPassed = map[string]string{
	"tasks-*":    "the tasks extension is not offered yet",
	"sep-2640-*": "the skills extension is not offered yet: the suite skips every check of it",
}

// A suiteRun is one run of a suite against the one server.
type suiteRun struct {
	name  string
	entry string
	args  []string
	want  int // scenarios that must pass; more may
}

// TestServerConformance runs every suite against one process that serves every revision.
func TestServerConformance(t *testing.T) {
	needNode(t)
	url := start(t, build(t, ".", "./server"))
	for _, run := range []suiteRun{
		{"requirements 2025-11-25", next, []string{"--requirements", "2025-11-25"}, 30},
		{"requirements 2026-07-28", next, []string{"--requirements", "2026-07-28"}, 37},
		{"everything, both eras in one run", next, []string{"--suite", "all"}, 52},
		{"released suite", released, nil, 30},
	} {
		t.Run(run.name, func(t *testing.T) { runSuite(t, run, url) })
	}
}

func runSuite(t *testing.T, run suiteRun, url string) {
	results := t.TempDir()
	args := append([]string{run.entry, "server", "--url", url, "-o", results}, run.args...)
	out, runErr := node(t, 10*time.Minute, args...)
	scenarios := readResults(t, results)
	if len(scenarios) == 0 {
		t.Fatalf("the suite left no results: %v\n%s", runErr, out)
	}
	passed := 0
	for name, s := range scenarios {
		switch reason := reasonFor(name); {
		case s.passed() && reason != "":
			t.Errorf("%s passes: take it off the list (%s)", name, reason)
		case s.passed():
			passed++
		case reason == "":
			t.Errorf("%s: %s", name, s.report())
		}
	}
	t.Logf("%d of %d scenarios passed", passed, len(scenarios))
	if passed < run.want {
		t.Errorf("%d scenarios passed, want %d", passed, run.want)
	}
}

// reasonFor gives why a scenario need not pass, or nothing.
func reasonFor(scenario string) string {
	for pattern, reason := range notPassed {
		if ok, _ := filepath.Match(pattern, scenario); ok {
			return reason
		}
	}
	return ""
}

// A scenario is the checks of one scenario, as the suite wrote them.
type scenario []struct {
	ID, Status, Description, ErrorMessage string
}

// passed reports whether something was checked and nothing failed: a scenario that checked nothing has not passed.
func (s scenario) passed() bool {
	succeeded := false
	for _, c := range s {
		switch c.Status {
		case "FAILURE", "WARNING":
			return false
		case "SUCCESS":
			// The suite checks every message of every scenario: that says nothing of the scenario itself.
			succeeded = succeeded || c.ID != "wire-schema-valid"
		}
	}
	return succeeded
}

func (s scenario) report() string {
	var lines []string
	for _, c := range s {
		if c.Status != "SUCCESS" && c.Status != "INFO" {
			lines = append(lines, c.Status+" "+c.ID+": "+c.Description+": "+c.ErrorMessage)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n\t")
}

// resultDir is the name of the folder that a suite writes for a scenario.
var resultDir = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)

func readResults(t *testing.T, dir string) map[string]scenario {
	t.Helper()
	scenarios := map[string]scenario{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		match := resultDir.FindStringSubmatch(filepath.Base(filepath.Dir(path)))
		if match == nil {
			t.Errorf("cannot tell the scenario of %s", path)
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var s scenario
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		scenarios[match[1]] = append(scenarios[match[1]], s...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return scenarios
}
