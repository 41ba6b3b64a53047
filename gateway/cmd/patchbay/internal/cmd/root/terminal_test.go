package root

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/visible"
)

// Text of a server is escaped on a terminal, and printed unchanged elsewhere.
func TestServerTextIsEscapedOnATerminal(t *testing.T) {
	url := listenHTTP(t, newOddServer())
	ownEscapes := strings.NewReplacer("\r\x1b[K", "", "\rconnecting to "+url+" …\x1b[K", "")
	for _, args := range [][]string{
		{"call", url, "say"}, {"read", url, "x://text"}, {"call", "--json", url, "say"},
		{"read", "--json", url, "x://text"}, {"tools", "--json", url}, {"tools", url}, {"probe", "--quick", url},
		{"rpc", url, "tools/call", `{"name":"say"}`}, {"call", "-v", url, "fail"},
		{"call", "-v", "--revision", "2025-11-25", url, "say"},
	} {
		o := atTerminal(t, "", nil, args...)
		for _, text := range []string{o.stdout, ownEscapes.Replace(o.stderr)} {
			unsafe := func(r rune) bool { return visible.Hidden(r) && r != '\n' && r != '\t' }
			if i := strings.IndexFunc(text, unsafe); i >= 0 {
				t.Errorf("%q: output contains %q unescaped", args, text[i:min(len(text), i+8)])
			}
		}
		if !strings.Contains(o.stdout+o.stderr, "alert") {
			t.Errorf("%q: got %s%s, want the escaped text", args, o.stdout, o.stderr)
		}
	}
	if o := patchbay(t, "", "read", url, "x://text"); o.stdout != hostile {
		t.Errorf("read: got %q, want %q", o.stdout, hostile)
	}
	if o := patchbay(t, "", "call", url, "say"); o.stdout != hostile+"\n" {
		t.Errorf("call: got %q, want %q", o.stdout, hostile)
	}
	var got struct {
		Content []struct{ Text string }
	}
	o := atTerminal(t, "", nil, "call", "--json", url, "say")
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || got.Content[0].Text != hostile ||
		!strings.HasPrefix(o.stdout, "{\n  \"") {
		t.Errorf("call --json at a terminal: got %s, %v, want indented JSON with the text", o.stdout, err)
	}
}

func TestProgressIsABarOnATerminal(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	o := atTerminal(t, "", nil, "call", url, "count", "steps=2")
	if o.stdout != "counted to 2\n" || !strings.Contains(o.stderr,
		"\r[############............] 1/2 step 1\x1b[K") || !strings.HasSuffix(o.stderr, "2/2 step 2\x1b[K\r\x1b[K") {
		t.Errorf("got %q, %q, want the result and a bar", o.stdout, o.stderr)
	}
}

// The order of progress and log messages relative to each other is not defined.
func TestLogMessagesAreShown(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	for level, want := range map[string]string{
		"info":  "[info] {\"msg\":\"counting\",\"step\":1}\n[info] {\"msg\":\"counting\",\"step\":2}\n",
		"error": "",
	} {
		o := patchbay(t, "", "call", url, "count", "steps=2", "--log-level", level)
		var logged strings.Builder
		for line := range strings.Lines(o.stderr) {
			if !strings.HasPrefix(line, "progress: ") {
				logged.WriteString(line)
			}
		}
		if o.status != exit.OK || logged.String() != want || !strings.Contains(o.stderr, "progress: 2/2 step 2\n") {
			t.Errorf("%s: got %d, %s, want %d, %s and progress", level, o.status, o.stderr, exit.OK, want)
		}
	}
}

func TestTraceShowsEveryMessage(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	modern := []string{"→ server/discover {", "← server/discover result {", "→ tools/call {",
		"← notifications/progress {", "← tools/call result {"}
	session := []string{"→ initialize {", "← initialize result {",
		`→ {"jsonrpc":"2.0","method":"notifications/initialized"`, "→ tools/call {", "notifications/progress",
		"← tools/call result {"}
	for revision, wants := range map[string][]string{"2026-07-28": modern, "2025-11-25": session,
		"2024-11-05": session} {
		for name, target := range map[string][]string{"HTTP": {url, "count", "steps=1"},
			"stdio": {"count", "steps=1", "--env", serveEnv + "=1", "--", self}} {
			o := patchbay(t, "", append([]string{"call", "-v", "--revision", revision}, target...)...)
			rest := o.stderr
			for _, want := range wants {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Errorf("%s over %s: trace does not contain %q in this order: %s", revision, name, want, o.stderr)
					break
				}
				rest = after
			}
			if o.status != exit.OK || o.stdout != "counted to 1\n" {
				t.Errorf("%s over %s: got %d, %q, want %d, counted to 1", revision, name, o.status, o.stdout, exit.OK)
			}
		}
	}
	o := patchbay(t, "", "call", "-v", "--header", "Authorization: Bearer s3cret", url, "deploy", "environment=staging")
	if !strings.Contains(o.stderr, "elicitation/create") || strings.Contains(o.stderr, "s3cret") {
		t.Errorf("trace %s, want elicitation/create without the token", o.stderr)
	}
	o = patchbay(t, "", "rpc", "-v", url, "no/such")
	if !strings.Contains(o.stderr, `← no/such error {"jsonrpc":"2.0"`) {
		t.Errorf("trace %s, want the error of no/such", o.stderr)
	}
}

func TestListenPrintsNotifications(t *testing.T) {
	server := newServer("demo")
	url := listenHTTP(t, server)
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		var stdout bytes.Buffer
		stderr := &trigger{when: "listening to: demo://counter",
			then: func() { server.ResourceUpdated("demo://counter") }}
		status := Run(t.Context(), []string{"listen", "--revision", revision, "--count", "1", url,
			"demo://counter"}, strings.NewReader(""), &stdout, stderr)
		if status != exit.OK || stdout.String() != "resource updated demo://counter\n" {
			t.Errorf("%s: got %d, %q, want %d and one update; standard error: %s", revision, status, &stdout, exit.OK,
				stderr.seen)
		}
	}
	var o outcome
	withLimit(time.Second, func(limit time.Duration) bool {
		o = patchbay(t, "", "listen", "--tools", "--for", limit.String(), "--json", url)
		return o.stdout != ""
	})
	if o.status != exit.OK || o.stdout != `{"event":"listening","filter":{"toolsListChanged":true}}`+"\n" {
		t.Errorf("--for: got %d, %q, %s, want %d and the filter", o.status, o.stdout, o.stderr, exit.OK)
	}
}

// Completion starts no command.
func TestCompletionConnectsToServersByURLOnly(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	mark := filepath.Join(t.TempDir(), "started")
	config := filepath.Join(t.TempDir(), "mcp.json")
	text := `{"mcpServers": {"web": {"url": "` + url +
		`"}, "wild\u001b": {"url": "x"}, "evil": {"command": "touch", "args": ["` + filepath.ToSlash(mark) + `"]}}}`
	writeFile(t, config, text)
	t.Setenv("PATCHBAY_CONFIG", config)
	freshState(t)
	n := &target.Note{Key: (&target.Target{URL: url}).Key(), ID: "noted", Started: time.Now()}
	if err := n.Save(); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"call ":                         "web evil @host",
		"tools w":                       "web",
		"call web ":                     "add count crunch deploy greet increment publish roll_dice summarize who_am_i",
		"call " + url + " a":            "add",
		"get web ":                      "review",
		"call web deploy ":              "environment=",
		"call web deploy environment=":  "environment=staging environment=production",
		"call web deploy environment=s": "environment=staging",
		"call web add a=1 ":             "b=",
		"call web add a:=1 b=2 ":        "",
		"call web add a=":               "",
		"call web nope ":                "",
		"get web review ":               "language= code=",
		"get web review language=p":     "language=python",
		"complete web review language=": "language=go language=python language=rust language=typescript",
		"call evil x ":                  "",
		"completion ":                   "bash zsh fish powershell",
		"read web demo://c":             "demo://counter",
		"call evil ":                    "",
		"ping web ":                     "",
		"ping --revision ":              "2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05",
		"ping --log-level e":            "error emergency",
		"call unknown ":                 "",
		"call " + refusedURL(t) + " ":   "",
		"task get w":                    "web",
		"task watch web ":               "noted",
		"task answer web noted x":       "",
	} {
		typed := strings.Split(args, " ")
		got := ""
		for begun := time.Now(); ; {
			o := patchbay(t, "", append([]string{"__complete"}, typed...)...)
			var names []string
			for line := range strings.Lines(o.stdout) {
				if !strings.HasPrefix(line, ":") {
					names = append(names, strings.TrimSpace(line))
				}
			}
			got = strings.Join(names, " ")
			if got != "" || want == "" || time.Since(begun) > time.Minute {
				break // else the server has not answered within completionTimeout
			}
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("completion started the command of a server")
	}
}

// An invalid configuration file is reported, even if another file has the server.
func TestInvalidConfigurationIsReported(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	t.Chdir(t.TempDir())
	t.Setenv("PATCHBAY_CONFIG", "")
	for name, text := range map[string]string{".mcp.json": "{", "mcp.json": `{"servers": {"web": {"url": "` +
		url + `"}}}`} {
		writeFile(t, name, text)
	}
	t.Setenv(userdir.EnvState, t.TempDir())
	if o := patchbay(t, "", "trust", "web", "--yes"); o.status != exit.OK {
		t.Fatalf("trust: exit code %d, %s", o.status, o.stderr)
	}
	if o := patchbay(t, "", "ping", "web"); o.status != exit.OK || !strings.Contains(o.stderr, ".mcp.json: line 1") {
		t.Errorf("ping web: got %d, %s, want %d and the invalid line", o.status, o.stderr, exit.OK)
	}
	if o := patchbay(t, "", "ping", "wbe"); o.status != exit.Usage ||
		!strings.Contains(o.stderr, `did you mean "web"?`) || !strings.Contains(o.stderr, ".mcp.json: line 1") {
		t.Errorf("ping wbe: got %d, %s, want %d, a suggestion and the invalid line", o.status, o.stderr, exit.Usage)
	}
}
