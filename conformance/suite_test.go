// Package conformance_test runs the official conformance suites against our servers and our client.
// It also tests our servers and client against the clients and servers of other projects.
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

// notPassed lists the scenarios that need not pass, each with the reason. A listed scenario that
// passes fails the test, so that the list stays current.
var notPassed = map[string]string{
	"tasks-status-notifications": "the suite skips its one check: it listens on a stream without these notifications",
}

// mismatched lists the scenarios of the released suite that the client must reject.
var mismatched = map[string]string{
	"auth/2025-03-26-oauth-metadata-backcompat": "its metadata has the wrong issuer; fixed in the next suite",
}

// A suiteRun is one run of a suite.
type suiteRun struct {
	name  string
	entry string
	args  []string
	want  int // minimum number of scenarios that must pass
	// notPassed are further scenarios that need not pass in this run.
	notPassed map[string]string
}

// serverRuns are the runs of the suites against our server.
var serverRuns = []suiteRun{
	{"requirements 2025-11-25", next, []string{"--requirements", "2025-11-25"}, 33, nil},
	{"requirements 2026-07-28", next, []string{"--requirements", "2026-07-28"}, 49, nil},
	{"everything, both eras in one run", next, []string{"--suite", "all"}, 64, nil},
	{"released suite", released, nil, 30, nil},
}

// TestServerConformance runs every suite against one process that serves every revision.
func TestServerConformance(t *testing.T) {
	needNode(t)
	url := start(t, build(t, ".", "./server"))
	for _, run := range serverRuns {
		t.Run(run.name, func(t *testing.T) { runSuite(t, run, url) })
	}
}

// runSuite returns the number of scenarios that it ran, and of those that passed.
func runSuite(t *testing.T, run suiteRun, url string) (scenarios, passed int) {
	results := t.TempDir()
	args := append([]string{run.entry, "server", "--url", url, "-o", results}, run.args...)
	out, err := node(t, 10*time.Minute, args...)
	all := readResults(t, results)
	return len(all), checkResults(t, run, all, out, err)
}

// TestClientConformance runs every suite with our client, which negotiates the revision as in a
// host. With -pin it uses the revision that the suite passes.
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
	checkResults(t, run, scenarios, out, err)
	for name, s := range scenarios {
		// A suite ignores the exit status of its clients.
		if run.reasonFor(name) == "" && !strings.HasPrefix(s.stdout, "passed "+name+" ") {
			t.Errorf("%s: the client failed: %s%s", name, s.stdout, s.stderr)
		}
	}
}

// checkResults compares the results with the expected ones, and returns the number of scenarios that
// passed.
func checkResults(t *testing.T, run suiteRun, scenarios map[string]scenario, out string, runErr error) (passed int) {
	t.Helper()
	if len(scenarios) == 0 {
		t.Fatalf("the suite wrote no results: %v\n%s", runErr, out)
	}
	for name, s := range scenarios {
		switch reason := run.reasonFor(name); {
		case s.passed() && reason != "":
			t.Errorf("%s passes: remove it from the list (%s)", name, reason)
		case s.passed():
			passed++
		case reason == "":
			t.Errorf("%s: %s", name, s.report())
		}
	}
	t.Logf("%d of %d scenarios passed", passed, len(scenarios))
	if passed < run.want {
		t.Errorf("%d scenarios passed, want at least %d", passed, run.want)
	}
	return passed
}

// reasonFor returns the reason why a scenario need not pass, or an empty string.
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

// A scenario is the result of one scenario.
type scenario struct {
	checks         []check
	stdout, stderr string // of our client
}

type check struct {
	ID, Status, Description, ErrorMessage string
}

// passed reports whether the scenario has checks and none failed. A scenario without checks has not
// passed.
func (s scenario) passed() bool {
	succeeded := false
	for _, c := range s.checks {
		switch c.Status {
		case "FAILURE", "WARNING":
			return false
		case "SUCCESS":
			// The suite checks every message of every scenario. These checks do not test the
			// scenario itself.
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

// resultDir matches the result directory of a scenario, whose name may contain a slash.
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
			t.Errorf("file %q: no scenario name in its directory", name)
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
		// Only client scenarios have these files.
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
