package conformance_test

import (
	"net/http"
	"regexp"
	"testing"
)

// A recording is what is typed into a terminal of its own for a section of the guide.
type recording struct {
	name      string
	dir       string            // the working directory, relative to the home directory
	files     map[string]string // files to write first, relative to the home directory
	steps     []step
	normalise [][2]string // patterns of what differs between runs, and what replaces them
}

// A step types keys, does act and types the keys that it returns. Then it waits until the screen has
// one more want, or one more prompt. In keys, ROOT is the URL of the demo server without /mcp, and
// FREE an address.
type step struct {
	keys string
	want string
	also string // on the screen at least once
	act  func(t *testing.T, s *studio, screen string) (keys string)
}

// commands returns the steps that run commands one after another.
func commands(lines ...string) (steps []step) {
	for _, line := range lines {
		steps = append(steps, step{keys: line + "\r"})
	}
	return steps
}

// printedKey is the key that servers over HTTP print.
var printedKey = [2]string{`Bearer [a-z2-7]{32}`, "Bearer KEY"}

var recordings = []recording{
	{name: "search", steps: commands("patchbay tools demo --search 'roll dice'")},
	{name: "tree", steps: commands("patchbay tools hotel book")},
	{name: "form", steps: []step{
		{keys: "patchbay call demo add a=1\r", want: "an integer:"},
		{keys: "2\r", want: "again [y]"},
		{keys: "y\r"},
	}},
	{name: "nested", steps: commands(
		"patchbay call hotel book guest=Ann home.street='Main St' home.zip=12345 'extras[]=breakfast'")},
	{name: "table", steps: commands("patchbay call hotel rooms", "patchbay call hotel rooms | head -3")},
	{name: "shell", steps: []step{
		{keys: "patchbay shell demo\r", want: "demo>"},
		{keys: "subscribe demo://cou\t\r", want: "demo>"},
		{keys: "increment\r", want: "demo>", also: "updated"},
		{keys: "call dep\ten\tst\t", want: "environment=staging"},
		{keys: "\r", want: "y or n:"},
		{keys: "y\r", want: "demo>"},
		{keys: "exit\r"},
	}, normalise: [][2]string{{`\br\d{4}\b`, "r1234"}, {`(\* resource updated \S+\n)1\n`, "1\n$1"}}}, // in either order
	{name: "bridge", steps: commands("patchbay call add a=1 b=2 -- patchbay bridge demo")},
	{name: "bridge-http", steps: []step{{keys: "patchbay bridge --http FREE -- patchbay serve --stdio\r",
		want: "Bearer"}}, normalise: [][2]string{printedKey}},
	{name: "servers", dir: "project", files: map[string]string{
		".cursor/mcp.json":   `{"mcpServers": {"github": {"url": "https://mcp.example.com/mcp"}}}`,
		".codex/config.toml": "[mcp_servers.files]\ncommand = \"npx\"\nargs = [\"-y\", \"@acme/files\"]\n",
		"project/.git/HEAD":  "",
		"project/.mcp.json": `{"mcpServers": {"build": {"command": "patchbay", "args": ["serve", "--stdio"],
			"env": {"TOKEN": "${GITHUB_TOKEN}"}}}}`,
	}, steps: commands("patchbay servers cursor", "patchbay servers codex", "patchbay servers project")},
	{name: "trust", dir: "other", files: map[string]string{
		"other/.git/HEAD": "",
		"other/.mcp.json": `{"mcpServers": {"build": {"command": "patchbay", "args": ["serve", "--stdio"],
			"env": {"TOKEN": "${GITHUB_TOKEN}"}}}}`,
	}, steps: []step{
		{keys: "patchbay tools build < /dev/null\r"},
		{keys: "patchbay tools build\r", want: "? [n]"},
		{keys: "n\r"},
	}},
	{name: "errors", steps: commands("patchbay tools ROOT", "patchbay tools npx -y @acme/files",
		"patchbay call demo ad a=1", "patchbay call demo add a=x b=2")},
	{name: "record", steps: commands("patchbay call add a=1 b=2 -- patchbay record calls.jsonl -- patchbay serve --stdio",
		"patchbay call add a=1 b=2 -- patchbay mock calls.jsonl",
		"patchbay call add a=5 b=2 -- patchbay mock calls.jsonl")},
	{name: "trace", steps: commands("patchbay call demo add a=1 b=2 --trace trace.jsonl",
		`grep -o '"method":"[a-z/]*"' trace.jsonl`)},
	{name: "lint", steps: commands("patchbay lint hotel")},
	{name: "bench", steps: commands("patchbay bench -n 1000 -c 8 demo add a=1 b=2"),
		normalise: [][2]string{{`[0-9.]+ ?(ms|µs|s)\b`, "… ms"}, {`[0-9.]+ per second`, "… per second"}}},
	{name: "sample", steps: []step{
		{keys: "patchbay call demo summarize text='A long text' --sample-with 'echo A summary.'\r",
			want: "Give it to echo? [y]"},
		{keys: "y\r", want: "server? [y]"},
		{keys: "y\r"},
	}},
	{name: "login", steps: []step{
		{keys: "patchbay auth login secure --no-browser\r", want: "URL:"},
		{act: logInElsewhere},
		{keys: "patchbay call secure who_am_i\r"},
		{keys: "patchbay auth status\r"},
	}, normalise: [][2]string{{`\?\S*(code_challenge|code)=\S*`, "?…"},
		{`(client +|clientId: )[\w-]{22}`, "${1}V12ko5iRiC-8GAOobZikXg"}, {`expires in \w+`, "expires in 15m0s"}}},
	{name: "timeout", steps: commands("patchbay call demo count steps=20 --timeout 1s",
		"patchbay tools --timeout 2s -- cat", "patchbay prompts hotel")},
	{name: "completion", steps: []step{
		{keys: "bind 'set bell-style none'; source <(patchbay completion bash)\r"},
		{keys: "patchbay call demo deploy environment=\t\t"},
	}},
	{name: "man", steps: commands("patchbay man ./man"), normalise: [][2]string{{`\d+ pages`, "… pages"}}},
}

// logInElsewhere logs in as the browser of another machine does, and returns the URL that it cannot show.
func logInElsewhere(t *testing.T, _ *studio, screen string) string {
	user := newLoginUser(t)
	user.name, user.password = "ann", "demo"
	last := ""
	user.client.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
		if !req.URL.Query().Has("code") {
			return nil
		}
		last = req.URL.String()
		return http.ErrUseLastResponse
	}
	page := regexp.MustCompile(`http://\S*code_challenge=\S*`).FindString(screen)
	if text, err := user.visit(t.Context(), page); err != nil || last == "" {
		t.Fatalf("page %q: %v: %s", page, err, text)
	}
	return last + "\r"
}
