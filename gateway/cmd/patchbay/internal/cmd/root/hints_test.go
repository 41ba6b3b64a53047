package root

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A seenRequest is a request that a web server got.
type seenRequest struct {
	path   string
	header http.Header
	query  string
}

// newWebServer serves mcp at /mcp, and status at all other paths.
func newWebServer(t *testing.T, status int, mcp http.Handler) (address string, seen func() []seenRequest) {
	t.Helper()
	var mu sync.Mutex
	var all []seenRequest
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		all = append(all, seenRequest{r.URL.Path, r.Header.Clone(), r.URL.RawQuery})
		mu.Unlock()
		if r.URL.Path == "/mcp" && mcp != nil {
			mcp.ServeHTTP(w, r)
			return
		}
		http.Error(w, "<html>nothing here</html>", status)
	}))
	t.Cleanup(web.Close)
	return web.URL, func() []seenRequest {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestForgottenPathIsSuggested(t *testing.T) {
	mcptest.NoLeaks(t)
	handler := mcphttp.NewHandler(newServer("demo"), nil)
	protected := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "no", http.StatusUnauthorized)
	})
	freshVault(t)
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed} {
		for name, mcp := range map[string]http.Handler{"open": handler, "protected": protected, "none": nil} {
			for _, path := range []string{"", "/"} {
				address, seen := newWebServer(t, status, mcp)
				withSecrets := strings.Replace(address, "http://", "http://user:s3cret@", 1) + path + "?key=s3cret"
				o := patchbay(t, "", "tools", withSecrets, "--header", "Authorization: Bearer s3cret",
					"--header", "X-Key: s3cret", "--header", "Cookie: s3cret")
				suggested := strings.Contains(o.stderr, "did you mean "+address+"/mcp?")
				if o.status != exit.Unreachable || suggested != (mcp != nil) {
					t.Errorf("%s, %d, path %q: exit code %d, %s", name, status, path, o.status, o.stderr)
				}
				for _, r := range seen() {
					if r.path == "/mcp" && strings.Contains(fmt.Sprint(r.header, r.query), "s3cret") ||
						r.path == "/mcp" && r.header.Get("Authorization") != "" {
						t.Errorf("%s: /mcp got the credentials for another path: %+v", name, r)
					}
				}
			}
		}
	}
	address, _ := newWebServer(t, http.StatusNotFound, handler)
	o := patchbay(t, "", "tools", "--json", address)
	var report struct{ Error exit.Report }
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil ||
		report.Error.Message != "no MCP server at "+address+": did you mean "+address+"/mcp?" {
		t.Errorf("--json: %s, %v", o.stdout, err)
	}
	address, seen := newWebServer(t, http.StatusNotFound, handler)
	for _, path := range []string{"/other", "/sse/", "/v1/mcp"} {
		if o := patchbay(t, "", "tools", address+path); strings.Contains(o.stderr, "did you mean") {
			t.Errorf("%s: %s, want no suggestion", path, o.stderr)
		}
	}
	for _, r := range seen() {
		if r.path == "/mcp" || r.path == "/sse/mcp" || r.path == "/v1/mcp/mcp" {
			t.Errorf("a request was sent to %s", r.path)
		}
	}
}

// A web page says nothing about MCP, whatever its status.
func TestWebPagesAreNoServers(t *testing.T) {
	mcptest.NoLeaks(t)
	handler := mcphttp.NewHandler(newServer("demo"), nil)
	for _, test := range []struct {
		status       int
		kind         string
		page, better bool
	}{
		{http.StatusOK, "text/html; charset=utf-8", true, true}, {http.StatusNotImplemented, "text/html", true, true},
		{http.StatusBadRequest, "text/html", true, true}, {http.StatusNotFound, "text/html", true, true},
		{http.StatusNotFound, "text/plain", false, true}, {http.StatusBadGateway, "text/html", false, false},
		{http.StatusForbidden, "text/html", false, false},
	} {
		for _, found := range []bool{true, false} {
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/mcp" && found {
					handler.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.status)
				fmt.Fprint(w, "<html>welcome</html>")
			}))
			o := patchbay(t, "", "tools", web.URL+"/v1?key=s3cret")
			web.Close()
			isPage := strings.Contains(o.stderr, fmt.Sprintf("no MCP server at %s/v1: the response is a web page (HTTP %d)",
				web.URL, test.status))
			suggested := strings.Contains(o.stderr, "did you mean "+web.URL+"/v1/mcp?")
			if suggested != (found && test.better) || isPage != (test.page && !suggested) || o.status == exit.OK {
				t.Errorf("%d %s: exit code %d, %s", test.status, test.kind, o.status, o.stderr)
			}
		}
	}
}

func TestDemoNamesItsURLAtTheRoot(t *testing.T) {
	next := http.NotFoundHandler()
	for path, want := range map[string]bool{"/": true, "/other": false} {
		w := httptest.NewRecorder()
		connect.NameEndpoint("http://127.0.0.1:1/mcp")(next).ServeHTTP(w, &http.Request{Method: http.MethodGet,
			URL: &url.URL{Path: path}})
		if named := strings.Contains(w.Body.String(), "http://127.0.0.1:1/mcp"); w.Code != http.StatusNotFound || named != want {
			t.Errorf("%s: status %d, %q", path, w.Code, w.Body)
		}
	}
}

func TestCommandWithoutDashesIsExplained(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATCHBAY_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir()) // without node and npx
	writeFile(t, "srv.js", "")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string // "" for no advice
	}{
		{[]string{"tools", "go", "-x", "run", "."}, "patchbay tools -- go -x run ."},
		{[]string{"tools", "go", "run", "."}, "patchbay tools -- go run ."},
		{[]string{"tools", "--json", "go", "-y", "a b"}, "patchbay tools -- go -y 'a b'"},
		{[]string{"tools", "npx", "-y", "server"}, "patchbay tools -- npx -y server"},
		{[]string{"tools", "node", "srv.js"}, "patchbay tools -- node srv.js"},
		{[]string{"tools", "./srv.js"}, "patchbay tools -- ./srv.js"},
		{[]string{"tools", self, "--stdio"}, "patchbay tools -- " + self + " --stdio"},
		{[]string{"call", "go", "run", "."}, "patchbay call TOOL [ARGUMENT…] -- go run ."},
		{[]string{"tools", "nosuchprogram", "-y"}, ""},
		{[]string{"tools", "--nope", "http://127.0.0.1:1"}, ""},
		{[]string{"tools", "unknown"}, ""},
	} {
		o := patchbay(t, "", test.args...)
		advised := strings.Contains(o.stderr, "put the command after --")
		if o.status != exit.Usage || advised != (test.want != "") || !strings.Contains(o.stderr, test.want) {
			t.Errorf("%q: exit code %d, %s, want %q", test.args, o.status, o.stderr, test.want)
		}
	}
}

func TestJSONIsHonouredWhenFlagsAreWrong(t *testing.T) {
	for _, args := range [][]string{{"tools", "--nope", "--json"}, {"tools", "--json", "--nope"}, {"--nope", "--json"},
		{"tools", "--timeout", "x", "--json"}, {"nosuch", "--json"}, {"tools", "-Z", "--json=true"}, {"tools", "--json"}} {
		o := patchbay(t, "", args...)
		var report struct{ Error exit.Report }
		if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || o.status != exit.Usage ||
			report.Error.Kind != "usage" || report.Error.Exit != exit.Usage {
			t.Errorf("%q: exit code %d, %q, %v, want an error in JSON", args, o.status, o.stdout, err)
		}
	}
	for _, args := range [][]string{{"tools", "--nope", "--", "x", "--json"}, {"tools", "--nope", "--json=false"}, {"tools", "--nope"}} {
		if o := patchbay(t, "", args...); o.stdout != "" || o.status != exit.Usage {
			t.Errorf("%q: exit code %d, %q, want no JSON", args, o.status, o.stdout)
		}
	}
}

// A missing or broken configuration file is one sentence, and its consequence the next one.
func TestBrokenConfigurationIsReportedFirst(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	t.Setenv("AppData", filepath.Join(home, ".config"))
	project := t.TempDir()
	t.Chdir(project)
	absent := filepath.Join(home, "absent.json")
	cursor := filepath.Join(home, ".cursor", "mcp.json")
	for name, test := range map[string]struct {
		file, variable     string   // the broken file, and the environment variable
		args               []string // of the command
		cause, consequence string
	}{
		"project file": {".mcp.json", "", []string{"tools", "web"}, ".mcp.json: line 1", `unknown server "web"`},
		"trust":        {".mcp.json", "", []string{"trust", "web"}, ".mcp.json: line 1", `unknown server "web"`},
		"user's file": {cursor, "", []string{"tools", "cursor:web"}, cursor + ": line 1",
			`unknown server "cursor:web": found no servers in ` + cursor + ", " + filepath.Join(".cursor", "mcp.json")},
		"other server of that name": {cursor, "", []string{"tools", "other"}, "ignored a configuration file: " + cursor + ": line 1",
			"server vscode:other of the project file"},
		"missing file": {"", "", []string{"tools", "web", "--config", "absent.json"},
			"configuration file absent.json does not exist (named by --config)", `unknown server "web": found no servers in absent.json`},
		"missing file of the environment": {"", absent, []string{"tools", "web"},
			"configuration file " + absent + " does not exist (named by $PATCHBAY_CONFIG)", `unknown server "web": found no servers in ` + absent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATCHBAY_CONFIG", test.variable)
			if test.file != "" {
				writeProjectFile(t, test.file, "{")
				defer os.Remove(test.file)
			}
			if slices.Contains(test.args, "other") {
				writeProjectFile(t, filepath.Join(".vscode", "mcp.json"), `{"servers": {"other": {"command": "x"}}}`)
				defer os.Remove(filepath.Join(".vscode", "mcp.json"))
			}
			o := patchbay(t, "", test.args...)
			lines := strings.Split(strings.TrimSpace(o.stderr), "\n")
			if o.status != exit.Usage || len(lines) != 2 || !strings.HasPrefix(lines[0], "patchbay: "+test.cause) ||
				!strings.HasPrefix(strings.TrimPrefix(lines[1], "patchbay: "), test.consequence) {
				t.Errorf("exit code %d, %q, want %s and then %s", o.status, lines, test.cause, test.consequence)
			}
		})
	}
}

// The reason of an internal error is often in the server's standard error.
func TestInternalErrorShowsStandardErrorOfTheCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) outcome {
		return patchbay(t, "", append(append([]string{"call"}, args...), "--env", failEnv+"=1", "--", self)...)
	}
	o := call("internal")
	if o.status != exit.Failure || !strings.Contains(o.stderr, "standard error of the command:\n") ||
		!strings.Contains(o.stderr, `  line 39 \x1b[2J`) || strings.Contains(o.stderr, "line 1 ") ||
		strings.Index(o.stderr, "line 39") < strings.Index(o.stderr, "patchbay: ") {
		t.Errorf("internal error: exit code %d, %s, want the last lines of standard error", o.status, o.stderr)
	}
	if o := call("fine"); strings.Contains(o.stderr, "line") {
		t.Errorf("without an error: %s", o.stderr)
	}
	if o := call("internal", "-v"); strings.Count(o.stderr, "line 39 ") != 1 {
		t.Errorf("with -v: %s, want each line once", o.stderr)
	}
}
