package gatewayconfig_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// parse parses a file with servers and settings, which begin in line 2.
func parse(t *testing.T, settings string) *config.File {
	t.Helper()
	f, err := config.Parse([]byte("{\"servers\": {\"fs\": {\"command\": \"x\"}}, // comment\n" +
		"\t\"patchbay\": " + settings + "}"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, settings string) *gatewayconfig.Settings {
	t.Helper()
	s, err := gatewayconfig.Read(parse(t, settings))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func checkProblem(t *testing.T, settings, want string) {
	t.Helper()
	f := parse(t, settings)
	f.Path = filepath.Join(t.TempDir(), "mcp.json")
	s, err := gatewayconfig.Read(f)
	if err == nil || s != nil || !strings.HasPrefix(err.Error(), f.Path+": line 2, column ") ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%s:\n got %v\nwant %s", settings, err, want)
	}
}

func TestSettings(t *testing.T) {
	s := read(t, `{}`)
	if s.Listen != "127.0.0.1:7777" || !slices.Equal(s.Approve, []string{"client", "console"}) || s.Names.Max != 48 ||
		s.Servers["fs"] == nil || s.Auth != nil || s.Audit != nil || s.Policy != nil {
		t.Errorf("defaults: got %+v", s)
	}
	s = read(t, `{"listen": "[::1]:0", "ops": "127.0.0.1:9464", "pprof": true, "approve": ["client"], "names": {"max": 64},
		"servers": {"fs": {"limits": {"cpu": 1.0, "processes": 2.0}}}, "policy": {"default": "deny"}}`)
	if s.Listen != "[::1]:0" || s.Ops != "127.0.0.1:9464" || !s.Pprof || !slices.Equal(s.Approve, []string{"client"}) ||
		s.Names.Max != 64 || s.Servers["fs"].Limits.Processes != 2 || s.Policy.Default != "deny" {
		t.Errorf("got %+v", s)
	}
	if s := read(t, `{"servers": {"fs": {"limits": {"processes": 2.0}}}}`); len(s.Approve) != 2 || s.Profiles == nil {
		t.Errorf("an integer in the form 2.0 removes defaults: %+v", s)
	}
}

func TestInvalidSettingsAreErrorsWithTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                     `line 2, column 2: patchbay: got an array, want an object`,
		`{"lisen": 1}`:                           `line 2, column 15: patchbay.lisen: unknown member "lisen" (did you mean "listen"?)`,
		`{"listen": "7777"}`:                     `patchbay.listen: got "7777", want host:port, such as "127.0.0.1:7777"`,
		`{"listen": ":7777"}`:                    `patchbay.listen: got ":7777", want host:port`,
		`{"listen": "localhost:http"}`:           `patchbay.listen: got "localhost:http", want host:port`,
		`{"listen": "localhost:65536"}`:          `patchbay.listen: got "localhost:65536", want host:port`,
		`{"ops": "9464"}`:                        `patchbay.ops: got "9464", want host:port, such as "127.0.0.1:9464"`,
		`{"ops": ":9464"}`:                       `patchbay.ops: got ":9464", want host:port`,
		`{"ops": {}}`:                            `patchbay.ops: got an object, want a string`,
		`{"ops": "127.0.0.1:7777"}`:              `patchbay.ops: got "127.0.0.1:7777", which is also listen`,
		`{"ops": "0.0.0.0:9464", "pprof": true}`: `patchbay.pprof: got true, and other machines reach ops, "0.0.0.0:9464"`,
		`{"listen": 7777}`:                       `patchbay.listen: got the number 7777, want a string`,
		`{"servers": {"fs": {"sahre": 1}}}`:      `patchbay.servers.fs.sahre: unknown member "sahre" (did you mean "share"?)`,
		`{"servers": {"fss": {}}}`:               `patchbay.servers.fss: unknown server "fss" (did you mean "fs"?)`,
		`{"limits": {"argumentBytes": "1B"}}`:    `patchbay.limits.argumentBytes: got "1B", want at least 1KiB`,
	} {
		checkProblem(t, text, want)
	}
	_, err := gatewayconfig.Read(parse(t, "{\n\t\"listen\": 1,\n\t\"nmaes\": {}\n}"))
	const want = "line 3, column 2: patchbay.listen: got the number 1, want a string\n" +
		"line 4, column 2: patchbay.nmaes: unknown member \"nmaes\" (did you mean \"names\"?), want one of listen, ops, pprof, " +
		"trustTraceContext, store, cluster, names, tools, servers, profiles, limits, connect, audit, policy, approve, " +
		"webhook, " +
		"publicURL, allowedHosts, tls, card and 4 more"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
