package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// settings parses the settings of a file.
func settings(t *testing.T, text string) *config.Settings {
	t.Helper()
	s, err := parse(t, text).Settings()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// defaultServer returns the settings that a server has without any.
func defaultServer(share config.Share) *config.ServerSettings {
	return &config.ServerSettings{Share: share, Era: config.EraAuto, Timeout: config.Duration(time.Minute), MaxTimeout: config.Duration(10 * time.Minute),
		Idle: config.Duration(10 * time.Minute), StartTimeout: config.Duration(2 * time.Minute), Validate: config.ValidateWarn, Concurrency: 8, Instances: 16,
		Queue: 64, QueueTimeout: config.Duration(10 * time.Second), Breaker: config.Breaker{Failures: 5, Open: config.Duration(10 * time.Second)}}
}

// remoteServer is defaultServer for a URL.
func remoteServer(share config.Share) *config.ServerSettings {
	s := defaultServer(share)
	s.Concurrency, s.Instances = 64, 1000
	return s
}

// defaultLimits are the limits of callers without any settings.
var defaultLimits = config.CallerLimits{PerCaller: config.Rate{Count: 1000, Per: time.Second, Burst: 2000},
	ArgumentBytes: 1 << 20, ResultBytes: 8 << 20, Result: config.ResultError, Processes: 100}

func TestSettingsHaveDefaults(t *testing.T) {
	want := &config.Settings{Names: config.Names{Mode: config.NamesPrefix, Max: 48},
		Tools: config.ToolListing{Mode: config.ListAuto}, Profiles: map[string]*config.Profile{}, Limits: defaultLimits,
		Servers: map[string]*config.ServerSettings{"a": defaultServer(config.ShareCaller),
			"b": remoteServer(config.ShareCaller), "c": remoteServer(config.ShareCaller),
			"broken": defaultServer(config.ShareCaller)}}
	const servers = `"mcpServers": {"a": {"command": "x"}, "b": {"url": "https://example.com/mcp"},
		"c": {"type": "sse", "url": "https://example.com/sse"}, "broken": {}}`
	for _, text := range []string{`{` + servers + `}`, `{` + servers + `, "patchbay": {}}`,
		`{"patchbay": {"names": {}, "tools": {}, "servers": {"b": {"limits": {}}}, "profiles": {}}, ` + servers + `}`} {
		if diff := cmp.Diff(want, settings(t, text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// fullSettings has every member.
const fullSettings = `{
	"mcpServers": {"fs": {"command": "x", "allowedTools": ["ignored"], "excludedTools": ["format"]}, "web": {"url": "x"}},
	"patchbay": {
		"names": {"mode": "conflict", "max": 64},
		"tools": {"mode": "search", "keep": ["fs__*"]},
		"servers": {
			"fs": {"share": "session", "era": "session", "allow": ["read_*"], "deny": ["*_all"], "timeout": "1m30s",
				"maxTimeout": "1h", "idle": "0s", "startTimeout": "500ms", "roots": ["file:///srv/app"],
				"limits": {"memory": "512MiB", "processes": 8, "openFiles": 64, "cpu": 0.5, "bestEffort": true},
				"sandbox": {"read": ["/srv"], "write": ["/srv/w"], "network": "host", "addressSpace": "4GiB", "processes": 64,
					"cpuTime": "1h", "openFiles": 100, "fileSize": "1GiB"},
				"rename": {"read.file": "read"}, "describe": {"read.file": "Reads a file."},
				"hideArgs": {"read.file": ["encoding"]}, "validate": "off", "methods": ["acme/*"],
				"rate": "100/m", "toolRates": {"read.file": "5/h burst 2", "write": "off"}, "concurrency": 1, "instances": 3, "queue": 0,
				"queueTimeout": "1s", "breaker": {"failures": 2, "open": "1m"}},
			"web": {"share": "shared", "era": "modern", "roots": "pass", "breaker": {"failures": 0}}
		},
		"limits": {"perCaller": "20/s burst 40", "perTool": "60/m", "callsPerDay": 1000, "bytesPerDay": "1GiB",
			"argumentBytes": "64KiB", "resultBytes": "1500B", "result": "spill", "processes": 20},
		"profiles": {"code": {"servers": ["fs"], "tools": ["fs__read*"]}, "all": {}}
	}
}`

func TestSettingsHaveEveryMember(t *testing.T) {
	web := remoteServer(config.ShareShared)
	web.Breaker.Failures = 0
	web.Era, web.Roots = config.EraModern, config.Roots{Mode: config.RootsPass}
	want := &config.Settings{
		Names: config.Names{Mode: config.NamesConflict, Max: 64},
		Tools: config.ToolListing{Mode: config.ListSearch, Keep: []string{"fs__*"}},
		Servers: map[string]*config.ServerSettings{"web": web, "fs": {
			Share: config.ShareSession, Era: config.EraSession, Allow: []string{"read_*"},
			Deny: []string{"*_all", "format"}, Timeout: config.Duration(90 * time.Second), MaxTimeout: config.Duration(time.Hour),
			StartTimeout: config.Duration(500 * time.Millisecond),
			Roots:        config.Roots{Mode: config.RootsList, URIs: []string{"file:///srv/app"}},
			Limits:       config.Limits{Memory: 512 << 20, Processes: 8, OpenFiles: 64, CPU: 0.5, BestEffort: true},
			Sandbox: &config.Sandbox{Read: []string{"/srv"}, Write: []string{"/srv/w"}, Network: config.NetworkHost,
				AddressSpace: 4 << 30, Processes: 64, CPUTime: config.Duration(time.Hour), OpenFiles: 100, FileSize: 1 << 30},
			Rename: map[string]string{"read.file": "read"}, Describe: map[string]string{"read.file": "Reads a file."},
			HideArgs: map[string][]string{"read.file": {"encoding"}}, Validate: config.ValidateOff,
			Methods: []string{"acme/*"}, Rate: config.Rate{Count: 100, Per: time.Minute, Burst: 100},
			ToolRates:   map[string]config.Rate{"read.file": {Count: 5, Per: time.Hour, Burst: 2}, "write": {}},
			Concurrency: 1, Instances: 3, QueueTimeout: config.Duration(time.Second), Breaker: config.Breaker{Failures: 2, Open: config.Duration(time.Minute)},
		}},
		Limits: config.CallerLimits{PerCaller: config.Rate{Count: 20, Per: time.Second, Burst: 40},
			Local:   config.Rate{Count: 20, Per: time.Second, Burst: 40},
			PerTool: config.Rate{Count: 60, Per: time.Minute, Burst: 60}, CallsPerDay: 1000, BytesPerDay: 1 << 30,
			ArgumentBytes: 64 << 10, ResultBytes: 1500, Result: config.ResultSpill, Processes: 20},
		Profiles: map[string]*config.Profile{"all": {}, "code": {Servers: []string{"fs"}, Tools: []string{"fs__read*"}}},
	}
	if diff := cmp.Diff(want, settings(t, fullSettings)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAllowedToolsOfTheEntryAreTheDefault(t *testing.T) {
	s := settings(t, `{"servers": {"a": {"command": "x", "includeTools": ["read"], "disabledTools": ["write"]}}}`)
	want := defaultServer(config.ShareCaller)
	want.Allow, want.Deny = []string{"read"}, []string{"write"}
	if diff := cmp.Diff(want, s.Servers["a"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestInvalidSettingsAreErrorsWithTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                 `line 2, column 2: patchbay: got an array, want an object`,
		`{"nmaes": 1}`:                       `line 2, column 15: patchbay.nmaes: unknown member "nmaes" (did you mean "names"?), want one of names, tools`,
		`{"names": {"mode": "prefx"}}`:       `patchbay.names.mode: got the string "prefx", want one of "prefix"`,
		`{"names": {"max": 8}}`:              `patchbay.names.max: got the number 8, want a number of at least 36`,
		`{"tools": {"keep": [1]}}`:           `patchbay.tools.keep[0]: got the number 1, want a string`,
		`{"tools": {"keep": ["a", ""]}}`:     `patchbay.tools.keep[1]: got 0 characters, want at least 1`,
		`{"tools": null}`:                    `patchbay.tools: got null, want an object`,
		`{"servers": {"x.y": {"sahre": 1}}}`: `patchbay.servers["x.y"].sahre: unknown member "sahre" (did you mean "share"?)`,
		`{"servers": {"fss": {}}}`:           `patchbay.servers.fss: unknown server "fss" (did you mean "fs"?)`,
		`{"profiles": {"p": {"servers": ["fs", "gone"]}}}`: `patchbay.profiles.p.servers[1]: unknown server "gone"`,
	} {
		checkProblem(t, text, want)
	}
	for text, want := range map[string]string{
		`"share": "everyone"`:                   `share: got the string "everyone", want one of "shared", "cluster", "caller", "session", "call"`,
		`"era": "legacy"`:                       `era: got the string "legacy", want one of "auto", "modern", "session"`,
		`"timeout": "60"`:                       `timeout: got the string "60", want a duration such as "90s" or "10m"`,
		`"timeout": "1.2.3s"`:                   `timeout: got "1.2.3s", want a duration of more than 0`,
		`"timeout": 60`:                         `timeout: got the number 60, want a string`,
		`"timeout": "0s"`:                       `timeout: got "0s", want a duration of more than 0`,
		`"idle": "9999999999h"`:                 `idle: got "9999999999h", want a duration of more than 0 and at most 2562047h0m0s`,
		`"timeout": "1h"`:                       `timeout: got 1h0m0s, want at most maxTimeout, 10m0s`,
		`"roots": "all"`:                        `roots: got the string "all", want "none", "pass" or an array of file URIs`,
		`"roots": ["/srv"]`:                     `roots[0]: got the string "/srv", want a URI such as "file:///srv/app"`,
		`"roots": ["file:///a?b"]`:              `roots[0]: got "file:///a?b", want a URI`,
		`"roots": 1`:                            `roots: got the number 1, want "none", "pass" or an array`,
		`"limits": {"memory": "1 GB"}`:          `limits.memory: got the string "1 GB", want a size such as "512MiB"`,
		`"limits": {"memory": "1KiB"}`:          `limits.memory: got "1KiB", want at least 1MiB`,
		`"limits": {"memory": "9999999999TiB"}`: `limits.memory: got "9999999999TiB", want a size of less than 8388608TiB`,
		`"limits": {"processes": 0}`:            `limits.processes: got the number 0, want a number of at least 1`,
		`"sandbox": {"read": ["srv"]}`:          `sandbox.read[0]: got "srv", want an absolute path`,
		`"sandbox": {"read": ["/srv/"]}`:        `sandbox.read[0]: got "/srv/", want an absolute path`,
		`"sandbox": {"network": "all"}`:         `sandbox.network: got the string "all", want one of "none", "host"`,
		`"sandbox": {"networks": "none"}`:       `sandbox.networks: unknown member "networks"`,
		`"sandbox": {"cpuTime": "1500ms"}`:      `sandbox.cpuTime: got 1.5s, want whole seconds`,
		`"sandbox": true`:                       `sandbox: got`,
		`"limits": {"processes": 1.5}`:          `limits.processes: got the number 1.5, want an integer`,
		`"limits": {"cpu": -1}`:                 `limits.cpu: got the number -1, want a number of at least 0.01`,
		`"rename": {"a": "b c"}`:                `rename.a: got "b c", want 1 to 64 of the characters`,
		`"rename": {"a": "x", "b": "x"}`:        `rename.b: got "x", which is also the name of "a"`,
		`"hideArgs": {"a": "b"}`:                `hideArgs.a: got the string "b", want an array`,
		`"validate": "error"`:                   `validate: got the string "error", want one of "off", "warn"`,
		`"methods": [""]`:                       `methods[0]: got 0 characters`,
		`"allow": "*"`:                          `allow: got the string "*", want an array`,
	} {
		checkProblem(t, `{"servers": {"fs": {`+text+`}}}`, "patchbay.servers.fs."+want)
	}
	checkProblem(t, `{"servers": {"web": {"limits": {"processes": 2}}}}`, "servers.web.limits: the server is a URL")
	checkProblem(t, `{"servers": {"web": {"sandbox": {}}}}`, "servers.web.sandbox: the server is a URL")
	checkProblem(t, `{"servers": {"fs": {"sandbox": {"write": ["/srv"]}}, "a": {"sandbox": {"read": ["/srv/a"]}}}}`,
		`servers.a.sandbox: the folder "/srv/a" is within "/srv", where the server "fs" can replace it by a link`)
}

// A host ignores the members of other programs, and never a misspelt member of its own.
func TestSettingsOfOtherProgramsAreIgnored(t *testing.T) {
	s := settings(t, `{"servers": {"a": {"command": "x"}}, "patchbay": {"listen": 1, "x": {"timeout": "5"}, "tools": {"mode": "search"}, "audit": []}}`)
	if s.Tools.Mode != config.ListSearch {
		t.Errorf("got %+v", s.Tools)
	}
	checkProblem(t, `{"listen": 1, "limts": {}}`, `column 28: patchbay.limts: unknown member "limts" (did you mean "limits"?)`)
}

// checkProblem checks the error of settings, which begin in line 2 of a file with three servers.
func checkProblem(t *testing.T, text, want string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "mcp.json")
	text = `{"servers": {"fs": {"command": "x"}, "x.y": {"command": "x"}, "web": {"url": "x"}}, // comment
	"patchbay": ` + text + `}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Settings()
	if err == nil || s != nil || !strings.HasPrefix(err.Error(), path+": line 2, column ") || !strings.Contains(err.Error(), want) {
		t.Errorf("%s:\n got %v\nwant %s", text, err, want)
	}
}

func TestEveryProblemHasItsLine(t *testing.T) {
	_, err := parse(t, "{\"servers\": {\"a\": {\"command\": \"x\"}},\n\"patchbay\": {\n\t\"tools\": 1,\n\t\"nmaes\": {}\n}}").Settings()
	const want = "line 3, column 2: patchbay.tools: got the number 1, want an object\n" +
		"line 4, column 2: patchbay.nmaes: unknown member \"nmaes\" (did you mean \"names\"?), " +
		"want one of names, tools, servers, profiles, limits, connect"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestPatternsMatchNames(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"read", "read", true}, {"read", "reads", false}, {"", "", true}, {"*", "", true}, {"*", "a/b.c", true},
		{"read_*", "read_file", true}, {"read_*", "read", false}, {"*_all", "delete_all", true}, {"*a*b*", "xaybz", true},
		{"*a*b*", "xbya", false}, {"?", "é", true}, {"?", "", false}, {"r??d", "read", true}, {"[a]", "a", false},
		{"[a]", "[a]", true}, {"a*", "b", false}, {"**", "x", true}, {"a*c*c", "abcabc", true},
	} {
		if got := config.Match([]string{"never", c.pattern}, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %t, want %t", c.pattern, c.name, got, c.want)
		}
	}
	if config.Match(nil, "a") {
		t.Error("no patterns match a name")
	}
	slow := strings.Repeat("*a", 100) + "b" // must not take exponential time
	if config.Match([]string{slow}, strings.Repeat("a", 10_000)) {
		t.Error("a name without b matches")
	}
}

func TestIDsAreUniqueInAFile(t *testing.T) {
	ids := func(names ...string) (got []string) {
		t.Helper()
		var entries []string
		for _, name := range names {
			entries = append(entries, `"`+name+`": {"command": "x"}`)
		}
		f := parse(t, `{"servers": {`+strings.Join(entries, ",")+`}}`)
		for _, name := range names {
			got = append(got, f.ID(name))
		}
		return got
	}
	long := strings.Repeat("x", 30)
	if got := ids("github", "My Server!", "ключ", long, "a_b"); !cmp.Equal(got,
		[]string{"github", "my-server", "server", long[:24], "a-b"}) {
		t.Errorf("got %q", got)
	}
	names := []string{"a-b", "a b", "a.b", "A-B", long, long + "y", strings.ToUpper(long), "server", "", "!"}
	first := ids(names...)
	seen := map[string]bool{}
	for i, id := range first {
		if seen[id] || len(id) > 24 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || id == "" {
			t.Errorf("id of %q is %q, want a unique one", names[i], id)
		}
		seen[id] = true
	}
	// A valid name that is the id of another server keeps its id.
	clash := first[1]
	if got := ids("a-b", "a b", "a.b", clash); got[3] != clash || got[1] == clash || got[1] == got[2] {
		t.Errorf("got %q, want %q for itself only", got, clash)
	}
	if got := ids("a.b", "a b", "a-b"); got[0] != first[2] || got[1] != first[1] {
		t.Errorf("in another order: got %q, want the ids of %q", got, first)
	}
	if got := parse(t, `{"servers": {}}`).ID("a"); got != "" {
		t.Errorf("id of an unknown server is %q, want none", got)
	}
}
