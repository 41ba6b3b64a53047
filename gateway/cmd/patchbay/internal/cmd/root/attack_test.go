package root

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/internal/osuser"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An attack is a gateway in front of servers that are processes, and what its user sees of an attack:
// testdata/attacks/NAME.txt, in which "# " is a comment, "$ " begins a command, "< " is what the user
// types, "! " a line on standard error, and "? " the exit code unless that is 0. -update rewrites it.
type attack struct {
	t          *testing.T
	name       string
	dir        string // of the logs of the servers
	config     string
	g          *runningGateway
	transcript strings.Builder
	replace    []string
}

// newAttack starts a gateway of servers with roles, of further entries, and with settings. Audit is on.
func newAttack(t *testing.T, name string, roles []string, entries, settings string) *attack {
	t.Helper()
	mcptest.NoLeaks(t)
	freshVault(t)
	t.Setenv(userdir.EnvState, t.TempDir())
	a := &attack{t: t, name: name, dir: t.TempDir()}
	var servers []string
	for _, role := range roles {
		servers = append(servers, fmt.Sprintf("%q: %s", role, attackEntry(t, role, a.dir)))
	}
	if entries != "" {
		servers = append(servers, entries)
	}
	if settings != "" {
		settings = ", " + settings
	}
	a.config = filepath.Join(a.dir, "servers.json")
	writeFile(t, a.config, fmt.Sprintf(`{"mcpServers": {%s}, "patchbay": {"audit": {"dir": "log", "strict": true}%s}}`,
		strings.Join(servers, ", "), settings))
	a.start()
	return a
}

// start starts the gateway, again after a stop.
func (a *attack) start() {
	a.t.Helper()
	a.g = startGateway(a.t, nil, "--config", a.config)
	a.replace = append(a.replace, a.g.url, "$URL", strings.TrimSuffix(a.g.url, "/mcp"), "$ORIGIN", a.g.key, "$KEY",
		a.dir, "$DIR", "\t"+osuser.Name()+"\tconsole", "\t$USER\tconsole")
}

// note writes a comment.
func (a *attack) note(text string) { fmt.Fprintf(&a.transcript, "# %s\n", text) }

// run runs a command of the user, on a terminal if something is typed.
func (a *attack) run(typed string, args ...string) outcome {
	a.t.Helper()
	return a.show(typed, nil, args...)
}

// client runs a command of a client of the gateway, with the key.
func (a *attack) client(typed string, args ...string) outcome {
	a.t.Helper()
	return a.show(typed, a.g.header(), args...)
}

func (a *attack) show(typed string, hidden []string, args ...string) (o outcome) {
	a.t.Helper()
	all := append(append([]string{}, args...), hidden...)
	if typed == "" {
		o = patchbay(a.t, "", all...)
	} else {
		o = atTerminal(a.t, typed, nil, all...)
	}
	words := make([]string, len(args))
	for i, word := range args {
		if words[i] = word; strings.ContainsAny(word, " {\"") {
			words[i] = "'" + word + "'"
		}
	}
	fmt.Fprintf(&a.transcript, "$ patchbay %s\n", strings.Join(words, " "))
	for line := range strings.Lines(typed) {
		a.transcript.WriteString("< " + line)
	}
	a.transcript.WriteString(o.stdout)
	for line := range strings.Lines(o.stderr) {
		a.transcript.WriteString(strings.TrimRight("! "+strings.TrimSuffix(line, "\n"), " ") + "\n")
	}
	if o.status != exit.OK {
		fmt.Fprintf(&a.transcript, "? %d\n", o.status)
	}
	return o
}

// until waits until the gateway does something in the background.
func (a *attack) until(what string, done func() bool) {
	a.t.Helper()
	eventually(a.t, what, done)
}

// listed waits until the servers with roles have started, and their tools are listed.
func (a *attack) listed(url string, roles ...string) {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("the tools of %q are listed", roles), func() bool {
		o := patchbay(a.t, "", append([]string{"tools", url}, a.g.header()...)...)
		return !slices.ContainsFunc(roles, func(role string) bool {
			return !strings.Contains("\n"+o.stdout, "\n"+role+"__")
		})
	})
}

// executed returns the log of a server, and writes it to the transcript.
func (a *attack) executed(role string) string {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(a.dir, role+".log"))
	if err != nil && !os.IsNotExist(err) {
		a.t.Fatal(err)
	}
	shown := "nothing"
	if len(text) > 0 {
		shown = strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "; ")
	}
	a.note("Server " + role + " has executed: " + shown)
	return string(text)
}

// post sends a call of 2026-07-28 that the attacker has written, from a client that can ask its user.
func (a *attack) post(url, params string) (result map[string]json.RawMessage) {
	a.t.Helper()
	text, err := a.send(url, params, `{"elicitation":{"form":{}}}`)
	if err != nil {
		a.t.Fatal(err)
	}
	var message struct {
		Result map[string]json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &message); err != nil {
		a.t.Fatalf("%v: %s", err, text)
	}
	if message.Result == nil {
		return map[string]json.RawMessage{"error": message.Error}
	}
	return message.Result
}

// inBackground sends a call that waits for an approval, from a client that cannot ask its user.
func (a *attack) inBackground(url, params string) <-chan string {
	result := make(chan string, 1)
	go func() {
		text, err := a.send(url, params, "{}")
		if err != nil {
			text = err.Error()
		}
		result <- text
	}()
	return result
}

func (a *attack) send(url, params, capabilities string) (string, error) {
	var name struct{ Name string }
	if err := json.Unmarshal([]byte(params), &name); err != nil {
		return "", err
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + strings.TrimSuffix(params, "}") +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":` +
		`{"name":"attacker","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + capabilities + `}}}`
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	for header, value := range map[string]string{"Authorization": "Bearer " + a.g.key, "Content-Type": "application/json",
		"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
		"Mcp-Name": name.Name} {
		req.Header.Set(header, value)
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	res, err := (&http.Client{Transport: base}).Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if _, event, ok := strings.Cut(string(text), "data: "); ok {
		text = []byte(event)
	}
	return string(text), err
}

// message returns the text that a question asks the user with.
func (a *attack) message(question map[string]json.RawMessage) string {
	a.t.Helper()
	var requests map[string]struct{ Params struct{ Message string } }
	if err := json.Unmarshal(question["inputRequests"], &requests); err != nil || len(requests) != 1 {
		a.t.Fatalf("got %s, want a question: %v", question, err)
	}
	return strings.Join(strings.Fields(requests["approval"].Params.Message), " ")
}

// approval returns the members of params that approve the call of a question once.
func (a *attack) approval(question map[string]json.RawMessage) string {
	return `"requestState": ` + string(question["requestState"]) +
		`, "inputResponses": {"approval": {"action": "accept", "content": {"decision": "once"}}}`
}

// shownText returns the text of a result, or the error.
func shownText(result map[string]json.RawMessage) string {
	var content []struct{ Text string }
	if json.Unmarshal(result["content"], &content) != nil || len(content) != 1 {
		return string(result["error"])
	}
	return content[0].Text
}

// approveNext approves the request that waits, and denyNext refuses it.
func (a *attack) approveNext(flags ...string) {
	a.t.Helper()
	a.run("", append(append([]string{"gateway", "approve", a.pending()}, flags...), "--config", a.config)...)
}

func (a *attack) denyNext() {
	a.t.Helper()
	a.run("", "gateway", "deny", a.pending(), "--config", a.config)
}

// pending shows what waits for approval, and returns the id of the only request.
func (a *attack) pending() string {
	a.t.Helper()
	var list struct{ Pending []struct{ ID string } }
	a.until("a request waits for approval", func() bool {
		o := patchbay(a.t, "", "gateway", "pending", "--json", "--config", a.config)
		return json.Unmarshal([]byte(o.stdout), &list) == nil && len(list.Pending) == 1
	})
	a.replace = append(a.replace, list.Pending[0].ID, "ID")
	a.run("", "gateway", "pending", "--config", a.config)
	return list.Pending[0].ID
}

// changing matches what differs between runs of an attack.
var changing = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?|\d+(\.\d+)? ms\b|\b[A-Z2-7]{12,26}(-\d+)?\b|` +
	`\b[0-9a-f]{12,64}\b|(expires in )\S+`)

// end compares what the user has seen with the golden transcript.
func (a *attack) end() {
	a.t.Helper()
	text := strings.NewReplacer(a.replace...).Replace(a.transcript.String())
	text = changing.ReplaceAllString(text, "${4}N")
	file := filepath.Join("testdata", "attacks", a.name+".txt")
	if update() {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			a.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		a.t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		a.t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
