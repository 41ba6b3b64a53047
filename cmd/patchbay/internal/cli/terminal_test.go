package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Text of a server is escaped on a terminal, and printed unchanged elsewhere.
func TestServerTextIsEscapedOnATerminal(t *testing.T) {
	url := listen(t, newOddServer())
	own := strings.NewReplacer("\r\x1b[K", "", "\rconnecting to "+url+" …\x1b[K", "") // our own escapes
	for _, args := range [][]string{{"call", url, "say"}, {"read", url, "x://text"},
		{"call", "--json", url, "say"}, {"read", "--json", url, "x://text"}, {"tools", "--json", url},
		{"tools", url}, {"probe", "--quick", url}, {"rpc", url, "tools/call", `{"name":"say"}`}, {"call", "-v",
			url, "fail"}, {"call", "-v", "--revision", "2025-11-25", url, "say"}} {
		o := atTerminal(t, "", nil, args...)
		for _, text := range []string{o.stdout, own.Replace(o.stderr)} {
			if i := strings.IndexFunc(text,
				func(r rune) bool { return isUnsafe(r) && r != '\n' && r != '\t' }); i >= 0 {
				t.Errorf("%q prints %q", args, text[i:min(len(text), i+8)])
			}
		}
		if !strings.Contains(o.stdout+o.stderr, "alert") {
			t.Errorf("%q prints %s%s", args, o.stdout, o.stderr)
		}
	}
	if o := patchbay(t, "", "read", url, "x://text"); o.stdout != hostile {
		t.Errorf("read printed %q", o.stdout)
	}
	if o := patchbay(t, "", "call", url, "say"); o.stdout != hostile+"\n" {
		t.Errorf("call printed %q", o.stdout)
	}
	var got struct {
		Content []struct{ Text string }
	}
	o := atTerminal(t, "", nil, "call", "--json", url, "say")
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || got.Content[0].Text != hostile ||
		!strings.HasPrefix(o.stdout, "{\n  \"") {
		t.Errorf("JSON on a terminal is %s, %v", o.stdout, err)
	}
}

func TestProgressIsABarOnATerminal(t *testing.T) {
	url := listen(t, newServer("demo"))
	o := atTerminal(t, "", nil, "call", url, "count", "steps=2")
	if o.stdout != "counted to 2\n" || !strings.Contains(o.stderr,
		"\r[############............] 1/2 step 1\x1b[K") || !strings.HasSuffix(o.stderr, "2/2 step 2\x1b[K\r\x1b[K") {
		t.Errorf("got %q, %q", o.stdout, o.stderr)
	}
}

// Progress and log messages are ordered only among themselves.
func TestLogMessagesAreShown(t *testing.T) {
	url := listen(t, newServer("demo"))
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
		if o.status != exitOK || logged.String() != want || !strings.Contains(o.stderr, "progress: 2/2 step 2\n") {
			t.Errorf("%s: got %d, %s", level, o.status, o.stderr)
		}
	}
}

func TestScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		s := &screen{w: &b, terminal: true, width: func() int { return 40 }}
		wants := func(want string) {
			t.Helper()
			if b.String() != want {
				t.Errorf("got %q, want %q", b.String(), want)
			}
			b.Reset()
		}
		total := 4.0
		s.progress(mcp.ProgressUpdate{Progress: 1, Total: &total, Message: "a\x1bb " + strings.Repeat("long ", 20)})
		wants("\r[######..................] 1/4 a\\x1bb …\x1b[K")
		s.progress(mcp.ProgressUpdate{Progress: 2, Total: &total})
		wants("") // too soon
		time.Sleep(redrawInterval)
		s.progress(mcp.ProgressUpdate{Progress: 3, Total: &total})
		wants("\r[##################......] 3/4\x1b[K")
		s.printf("said %d", 1)
		wants("\r\x1b[Ksaid 1\n\r[##################......] 3/4\x1b[K")
		_, _ = s.Write([]byte("\x1b[2J\n"))
		wants("\r\x1b[K\\x1b[2J\n\r[##################......] 3/4\x1b[K")
		s.progress(mcp.ProgressUpdate{Progress: 9, Total: &total, Message: "done"})
		wants("\r[########################] 9/4 done\x1b[K")
		s.prompt("name: ")
		wants("\r\x1b[Kname: ")
		time.Sleep(redrawInterval)
		s.progress(mcp.ProgressUpdate{Progress: 1e300})
		wants("\r1e+300\x1b[K")
		s.done()
		wants("\r\x1b[K")
		s.done()
		wants("")
		s.terminal = false
		time.Sleep(redrawInterval)
		s.progress(mcp.ProgressUpdate{Progress: 5, Message: "x\ny"})
		wants("progress: x y\n")
	})
}

func TestTraceShowsEveryMessage(t *testing.T) {
	url := listen(t, newServer("demo"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	modern := []string{"→ server/discover {", "← server/discover result {", "→ tools/call {",
		"← notifications/progress {", "← tools/call result {"}
	before := []string{"→ initialize {", "← initialize result {",
		`→ {"jsonrpc":"2.0","method":"notifications/initialized"`, "→ tools/call {", "notifications/progress", "← tools/call result {"}
	for revision, wants := range map[string][]string{"2026-07-28": modern, "2025-11-25": before, "2024-11-05": before} {
		for name, target := range map[string][]string{"HTTP": {url, "count", "steps=1"},
			"stdio": {"count", "steps=1", "--env", serveEnv + "=1", "--", self}} {
			o := patchbay(t, "", append([]string{"call", "-v", "--revision", revision}, target...)...)
			rest := o.stderr
			for _, want := range wants {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Errorf("%s over %s: no %q, or too early: %s", revision, name, want, o.stderr)
					break
				}
				rest = after
			}
			if o.status != exitOK || o.stdout != "counted to 1\n" {
				t.Errorf("%s over %s: got %d, %q", revision, name, o.status, o.stdout)
			}
		}
	}
	o := patchbay(t, "", "call", "-v", "--header", "Authorization: Bearer s3cret", url, "deploy", "environment=staging")
	if !strings.Contains(o.stderr, "elicitation/create") || strings.Contains(o.stderr, "s3cret") {
		t.Errorf("the trace is %s", o.stderr)
	}
	o = patchbay(t, "", "rpc", "-v", url, "no/such")
	if !strings.Contains(o.stderr, `← no/such error {"jsonrpc":"2.0"`) {
		t.Errorf("the trace is %s", o.stderr)
	}
}

func TestListen(t *testing.T) {
	server := newServer("demo")
	url := listen(t, server)
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		var stdout bytes.Buffer
		heard := &trigger{when: "listening to: demo://counter",
			then: func() { server.ResourceUpdated("demo://counter") }}
		status := Run(t.Context(), []string{"listen", "--revision", revision, "--count", "1", url,
			"demo://counter"}, strings.NewReader(""), &stdout, heard)
		if status != exitOK || stdout.String() != "resource updated demo://counter\n" {
			t.Errorf("%s: got %d, %q; %s", revision, status, &stdout, heard.seen)
		}
	}
	o := patchbay(t, "", "listen", "--tools", "--for", "1s", "--json", url)
	if o.status != exitOK || o.stdout != `{"event":"listening","filter":{"toolsListChanged":true}}`+"\n" {
		t.Errorf("got %d, %q, %s", o.status, o.stdout, o.stderr)
	}
}

// Completion starts no command.
func TestCompletion(t *testing.T) {
	url := listen(t, newServer("demo"))
	mark := filepath.Join(t.TempDir(), "started")
	config := filepath.Join(t.TempDir(), "mcp.json")
	text := `{"mcpServers": {"web": {"url": "` + url +
		`"}, "wild\u001b": {"url": "x"}, "evil": {"command": "touch", "args": ["` + filepath.ToSlash(mark) + `"]}}}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATCHBAY_CONFIG", config)
	freshState(t)
	n := &note{Key: (&target{url: url}).key(), ID: "noted", Started: time.Now()}
	if err := n.save(); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"call ":                     "web evil",
		"tools w":                   "web",
		"call web ":                 "add count crunch deploy greet increment publish roll_dice summarize who_am_i",
		"call " + url + " a":        "add",
		"get web ":                  "review",
		"read web demo://c":         "demo://counter",
		"call evil ":                "",
		"ping web ":                 "",
		"ping --revision ":          "2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05",
		"ping --log-level e":        "error emergency",
		"call nobody ":              "",
		"call " + refusing(t) + " ": "",
		"task get w":                "web",
		"task watch web ":           "noted",
		"task answer web noted x":   "",
	} {
		typed := strings.Split(args, " ")
		o := patchbay(t, "", append([]string{"__complete"}, typed...)...)
		var names []string
		for line := range strings.Lines(o.stdout) {
			if !strings.HasPrefix(line, ":") {
				names = append(names, strings.TrimSpace(line))
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a command was started")
	}
}

// An invalid configuration file is reported, even if another file has the server.
func TestInvalidConfigurationIsReported(t *testing.T) {
	url := listen(t, newServer("demo"))
	t.Chdir(t.TempDir())
	t.Setenv("PATCHBAY_CONFIG", "")
	for name, text := range map[string]string{".mcp.json": "{", "mcp.json": `{"servers": {"web": {"url": "` +
		url + `"}}}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(envStateDir, t.TempDir())
	if o := patchbay(t, "", "trust", "web", "--yes"); o.status != exitOK {
		t.Fatalf("trust: exit code %d, %s", o.status, o.stderr)
	}
	if o := patchbay(t, "", "ping", "web"); o.status != exitOK || !strings.Contains(o.stderr, ".mcp.json: line 1") {
		t.Errorf("got %d, %s", o.status, o.stderr)
	}
	if o := patchbay(t, "", "ping", "wbe"); o.status != exitUsage ||
		!strings.Contains(o.stderr, `did you mean "web"?`) || !strings.Contains(o.stderr, ".mcp.json: line 1") {
		t.Errorf("got %d, %s", o.status, o.stderr)
	}
}

func TestInput(t *testing.T) {
	k := newInput(strings.NewReader("one\r\ntwo"))
	for _, want := range []string{"one", "two"} {
		if got, err := k.readLine(t.Context()); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := k.readLine(t.Context()); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if _, err := newInput(strings.NewReader(strings.Repeat("x",
		maxLine+1))).readLine(t.Context()); err == nil || err == io.EOF {
		t.Errorf("a line that is too long: %v", err)
	}
	if _, err := newInput(io.LimitReader(zeros{}, maxInput+1)).readSource(t.Context(), "-"); err == nil {
		t.Error("an input that is too long is accepted")
	}
	if got, err := newInput(io.LimitReader(zeros{}, maxInput)).readSource(t.Context(), "-"); err != nil ||
		len(got) != maxInput {
		t.Errorf("the longest input: %d bytes, %v", len(got), err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestSavedFileNames(t *testing.T) {
	for _, test := range []struct{ name, mimeType, stem, extension string }{
		{"image", "image/png", "image", ".png"},
		{"file:///a/b.txt", "", "b", ".txt"},
		{"x://h/../../etc/passwd", "", "passwd", ".bin"},
		{"..", "text/plain", "content", ".bin"},
		{`C:\CON.txt`, "", "CCON", ".txt"},
		{"a b\x00\n.t\x1bxt", "", "ab", ".txt"},
		{"x/", "image/jpeg; a=b", "x", ".jpg"},
		{strings.Repeat("n", 99) + "." + strings.Repeat("e", 99), "", strings.Repeat("n", 60), "." +
			strings.Repeat("e", 60)},
	} {
		if stem, extension := fileName(test.name, test.mimeType); stem != test.stem || extension != test.extension {
			t.Errorf("%q is %q %q, want %q %q", test.name, stem, extension, test.stem, test.extension)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add(hostile)
	f.Add("\xff\U000E0041\uFFFD\u2028\U000F0000 e\u0301")
	f.Fuzz(func(t *testing.T, text string) {
		for _, clean := range []string{clean(text), cleanLine(text)} {
			if !utf8.ValidString(clean) ||
				strings.ContainsFunc(clean, func(r rune) bool { return isUnsafe(r) && r != '\n' && r != '\t' }) {
				t.Errorf("%q became %q", text, clean)
			}
		}
		if strings.ContainsAny(cleanLine(text), "\n\t") {
			t.Errorf("%q has lines", text)
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			return
		}
		var before, after string
		safe := cleanJSON(string(encoded))
		if err := json.Unmarshal([]byte(safe), &after); err != nil {
			t.Fatalf("invalid JSON %q: %v", safe, err)
		}
		if json.Unmarshal(encoded, &before) != nil || before != after || strings.ContainsFunc(safe, isUnsafe) {
			t.Errorf("%q became %q", encoded, safe)
		}
	})
}
