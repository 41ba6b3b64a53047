// Package conformance_test runs the official conformance suites against our servers and our client, and ours against the
// clients and servers of others.
package conformance_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
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
	"tasks-status-notifications": "the suite skips its one check whatever the server does: it would listen where these notifications are not sent",
}

// mismatched is what the client must refuse of the released suite.
var mismatched = map[string]string{
	"auth/2025-03-26-oauth-metadata-backcompat": "its metadata names another issuer than the one that it is for; the next suite has mended that",
}

// A suiteRun is one run of a suite.
type suiteRun struct {
	name  string
	entry string
	args  []string
	want  int // scenarios that must pass; more may
	// notPassed are further scenarios that need not pass in this run.
	notPassed map[string]string
}

// TestServerConformance runs every suite against one process that serves every revision.
func TestServerConformance(t *testing.T) {
	needNode(t)
	url := start(t, build(t, ".", "./server"))
	for _, run := range []suiteRun{
		{"requirements 2025-11-25", next, []string{"--requirements", "2025-11-25"}, 33, nil},
		{"requirements 2026-07-28", next, []string{"--requirements", "2026-07-28"}, 49, nil},
		{"everything, both eras in one run", next, []string{"--suite", "all"}, 64, nil},
		{"released suite", released, nil, 30, nil},
	} {
		t.Run(run.name, func(t *testing.T) { runSuite(t, run, url) })
	}
}

func runSuite(t *testing.T, run suiteRun, url string) {
	results := t.TempDir()
	args := append([]string{run.entry, "server", "--url", url, "-o", results}, run.args...)
	out, err := node(t, 10*time.Minute, args...)
	judge(t, run, readResults(t, results), out, err)
}

// TestClientConformance runs every suite with our client, which has to find out by itself what the servers speak, as in a
// host. With -pin the suite tells it.
func TestClientConformance(t *testing.T) {
	needNode(t)
	client := build(t, ".", "./client")
	for _, run := range []suiteRun{
		{"requirements 2025-11-25", next, []string{client, "--requirements", "2025-11-25"}, 25, nil},
		{"requirements 2026-07-28", next, []string{client, "--requirements", "2026-07-28"}, 39, nil},
		{"pinned to 2025-11-25", next, []string{client + " -pin", "--requirements", "2025-11-25"}, 25, nil},
		{"pinned to 2026-07-28", next, []string{client + " -pin", "--requirements", "2026-07-28"}, 39, nil},
		{"everything", next, []string{client, "--suite", "all"}, 48, nil},
		{"the servers of 2025-03-26", next, []string{client, "--suite", "backcompat"}, 2, nil},
		{"released suite", released, []string{client, "--suite", "all"}, 25, mismatched},
	} {
		t.Run(run.name, func(t *testing.T) { runClientSuite(t, run) })
	}
}

func runClientSuite(t *testing.T, run suiteRun) {
	results := t.TempDir()
	args := append([]string{run.entry, "client", "-o", results, "--command"}, run.args...)
	out, err := node(t, 10*time.Minute, args...)
	scenarios := readResults(t, results)
	judge(t, run, scenarios, out, err)
	for name, s := range scenarios {
		// A suite does not look at how its clients end.
		if run.reasonFor(name) == "" && !strings.HasPrefix(s.stdout, "played "+name+" ") {
			t.Errorf("%s: the client failed: %s%s", name, s.stdout, s.stderr)
		}
	}
}

// judge holds the results to what was expected.
func judge(t *testing.T, run suiteRun, scenarios map[string]scenario, out string, runErr error) {
	t.Helper()
	if len(scenarios) == 0 {
		t.Fatalf("the suite left no results: %v\n%s", runErr, out)
	}
	passed := 0
	for name, s := range scenarios {
		switch reason := run.reasonFor(name); {
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

// reasonFor returns why a scenario need not pass, or nothing.
func (r suiteRun) reasonFor(scenario string) string {
	for _, list := range []map[string]string{notPassed, r.notPassed} {
		for pattern, reason := range list {
			if ok, _ := path.Match(pattern, scenario); ok {
				return reason
			}
		}
	}
	return ""
}

// A scenario is what a suite wrote of one scenario.
type scenario struct {
	checks         []check
	stdout, stderr string // of our client
}

type check struct {
	ID, Status, Description, ErrorMessage string
}

// passed reports whether something was checked and nothing failed: a scenario that checked nothing has not passed.
func (s scenario) passed() bool {
	succeeded := false
	for _, c := range s.checks {
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
	for _, c := range s.checks {
		if c.Status != "SUCCESS" && c.Status != "INFO" {
			lines = append(lines, c.Status+" "+c.ID+": "+c.Description+": "+c.ErrorMessage)
		}
	}
	slices.Sort(lines)
	return strings.Join(append(lines, s.stderr), "\n\t")
}

// resultDir is the folder that a suite writes for a scenario, whose name may have a slash in it.
var resultDir = regexp.MustCompile(`^(?:server-)?(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)

func readResults(t *testing.T, dir string) map[string]scenario {
	t.Helper()
	scenarios := map[string]scenario{}
	results := os.DirFS(dir)
	err := fs.WalkDir(results, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		folder := path.Dir(name)
		match := resultDir.FindStringSubmatch(folder)
		if match == nil {
			t.Errorf("cannot tell the scenario of %s", name)
			return nil
		}
		text, err := fs.ReadFile(results, name)
		if err != nil {
			return err
		}
		var checks []check
		if err := json.Unmarshal(text, &checks); err != nil {
			return err
		}
		s := scenarios[match[1]]
		s.checks = append(s.checks, checks...)
		// Only clients have these.
		stdout, _ := fs.ReadFile(results, path.Join(folder, "stdout.txt"))
		stderr, _ := fs.ReadFile(results, path.Join(folder, "stderr.txt"))
		s.stdout, s.stderr = string(stdout), string(stderr)
		scenarios[match[1]] = s
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return scenarios
}
