package conformance_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A peer is a server of another SDK over one transport, and its abilities.
type peer struct {
	name     string
	path     string // of the URL; empty for stdio
	pin      string
	revision string // that must be negotiated
	able     ability
}

// An ability is something that a server can do.
type ability uint8

const (
	asks    ability = 1 << iota // sends requests to its client
	logs                        // sends log messages
	notes                       // sends all progress notifications, in order and before the response
	cancels                     // handles a cancellation
	updates                     // notifies of updated resources
	changes                     // notifies of changed lists

	everyAbility = asks | logs | notes | cancels | updates | changes
)

// goSDK is the official SDK. Abilities are missing because of the revision or because the transport
// is stateless.
var goSDK = []peer{
	{"stdio", "", "", "2026-07-28", everyAbility},
	{"stdio 2025-11-25", "", "2025-11-25", "2025-11-25", everyAbility},
	{"stdio 2024-11-05", "", "2024-11-05", "2024-11-05", everyAbility &^ asks},
	{"stateless", "/stateless", "", "2026-07-28", everyAbility},
	{"stateless 2025-06-18", "/stateless", "2025-06-18", "2025-06-18", notes},
	{"session", "/session", "", "2025-11-25", everyAbility},
	{"session 2025-03-26", "/session", "2025-03-26", "2025-03-26", everyAbility &^ asks},
	{"HTTP+SSE", "/sse", "", "2025-11-25", everyAbility},
}

// mcpGo is mcp-go. Its notifications race with its responses. It sends resource updates only to
// sessions, omits the subscription id on stdio, and sends no requests over HTTP+SSE.
var mcpGo = []peer{
	{"stdio", "", "", "2026-07-28", asks | logs | cancels},
	{"stdio 2025-11-25", "", "2025-11-25", "2025-11-25", everyAbility &^ notes},
	{"stdio 2024-11-05", "", "2024-11-05", "2024-11-05", everyAbility &^ notes &^ asks},
	{"stateless", "/stateless", "", "2026-07-28", asks | logs | cancels | changes},
	{"stateless 2025-06-18", "/stateless", "2025-06-18", "2025-06-18", cancels},
	{"session", "/session", "", "2026-07-28", asks | logs | cancels | changes},
	{"session 2025-11-25", "/session", "2025-11-25", "2025-11-25", everyAbility &^ notes},
	{"session 2025-03-26", "/session", "2025-03-26", "2025-03-26", everyAbility &^ notes &^ asks},
	{"HTTP+SSE", "/sse", "", "2025-11-25", everyAbility &^ notes &^ asks},
}

// TestPeers tests our client against servers of the other Go SDKs, over every transport that they
// support.
func TestPeers(t *testing.T) {
	for _, sdk := range []struct {
		name  string
		peers []peer
	}{{"gosdk", goSDK}, {"mcpgo", mcpGo}} {
		t.Run(sdk.name, func(t *testing.T) {
			binary := build(t, ".", "./peers/"+sdk.name)
			url := startPeer(t, exec.Command(binary, "-addr", "127.0.0.1:0"))
			for _, p := range sdk.peers {
				transport := overStdio(binary)
				if p.path != "" {
					transport = overHTTP(url + p.path)
				}
				t.Run(p.name, func(t *testing.T) { p.exercise(t, sdk.name, transport(t)) })
			}
		})
	}
}

func (p peer) can(a ability) bool { return p.able&a != 0 }

func (p peer) exercise(t *testing.T, sdk string, transport mcp.Transport) {
	ctx := within(t, time.Minute)
	h := newHost()
	c := dial(ctx, t, transport, h.options(t, p.pin))
	equal(t, "revision", c.Revision(), p.revision)
	equal(t, "server", c.ServerInfo().Name, sdk+"-peer")
	equal(t, "instructions", c.Instructions(), "A peer.")
	if err := c.Ping(ctx); err != nil {
		t.Errorf("Ping: %v", err)
	}
	p.useTools(ctx, t, c)
	usePeerData(ctx, t, c)
	if p.can(logs) {
		h.logged(ctx, t, "step 3")
	}
	if p.can(asks) {
		answerPeer(ctx, t, c)
	}
	if p.can(cancels) {
		cancelPeer(ctx, t, c)
	}
	p.listen(ctx, t, c)
}

func (p peer) useTools(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	tools := toolNames(ctx, t, c)
	for _, want := range []string{"add", "cancelled", "count", "fail", "greet", "grow", "increment", "summarize", "wait", "where"} {
		if !slices.Contains(tools, want) {
			t.Errorf("the tools are %q, without %s", tools, want)
		}
	}
	type sum struct{ Sum int }
	equal(t, "add", must(mcp.CallTool[sum](ctx, c, "add", map[string]int{"A": 20, "B": 22}))(t), sum{42})
	var toolFailed *mcp.ToolError
	if _, err := mcp.CallTool[string](ctx, c, "fail", nil); !errors.As(err, &toolFailed) || !strings.Contains(err.Error(), "it failed, as it should") {
		t.Errorf("fail: %v", err)
	}
	var progress []float64
	counting := mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: func(u mcp.ProgressUpdate) { progress = append(progress, u.Progress) }})
	equal(t, "count", must(mcp.CallTool[string](counting, c, "count", map[string]int{"Steps": 3}))(t), "counted to 3")
	if p.can(notes) {
		equal(t, "progress", progress, []float64{1, 2, 3})
	}
	// The official SDK answers older requests of this kind with a bare HTTP status.
	var e *mcp.Error
	var failed *mcp.TransportError
	_, err := c.Do(ctx, "nobody/knows", nil)
	if unknown := errors.As(err, &e) && e.Remote() && e.Code == mcp.CodeMethodNotFound; !unknown && !(errors.As(err, &failed) && !failed.MayHaveRun) {
		t.Errorf("an unknown method: %v", err)
	}
}

func usePeerData(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	equal(t, "resources", names(t, c.Resources(ctx), func(v *mcp.Resource) string { return v.URI }),
		[]string{"demo://counter", "demo://guide", "demo://logo"})
	equal(t, "templates", names(t, c.ResourceTemplates(ctx), func(v *mcp.ResourceTemplate) string { return v.URITemplate }),
		[]string{"demo://cities/{country}/{city}"})
	for _, uri := range []string{"demo://guide", "demo://cities/japan/kyoto"} {
		equal(t, "read", must(c.ReadResource(ctx, uri))(t).Contents[0].Text, "this is "+uri)
	}
	var e *mcp.Error
	if _, err := c.ReadResource(ctx, "demo://nowhere"); !errors.As(err, &e) || e.Code != mcp.CodeInvalidParams {
		t.Errorf("an unknown resource: %v", err)
	}
	equal(t, "prompts", names(t, c.Prompts(ctx), func(v *mcp.Prompt) string { return v.Name }), []string{"review"})
	prompt := must(c.GetPrompt(ctx, "review", map[string]string{"language": "go", "code": "x := 1"}))(t)
	equal(t, "prompt", prompt.Messages[0].Content, mcp.Text("Review this go code: x := 1"))
	languages := must(c.Complete(ctx, &mcp.CompleteParams{Ref: mcp.CompletionRef{Prompt: "review"}, Argument: mcp.CompleteArgument{Name: "language", Value: "p"}}))(t)
	equal(t, "completion", languages.Values, []string{"python", "typescript"})
	if c.Revision() >= "2025-06-18" { // older ones have no context
		cities := must(c.Complete(ctx, &mcp.CompleteParams{Ref: mcp.CompletionRef{Template: "demo://cities/{country}/{city}"}, Argument: mcp.CompleteArgument{Name: "city", Value: ""}, Context: mcp.CompleteContext{Arguments: map[string]string{"country": "japan"}}}))(t)
		equal(t, "completion in context", cities.Values, []string{"kyoto", "osaka"})
	}
}

// answerPeer calls the tools that send requests to the client.
func answerPeer(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	equal(t, "elicitation", must(mcp.CallTool[string](ctx, c, "greet", nil))(t), "Hello, Ada! (state)")
	equal(t, "sampling", must(mcp.CallTool[string](ctx, c, "summarize", nil))(t), "a summary")
	equal(t, "roots", must(mcp.CallTool[string](ctx, c, "where", nil))(t), "file:///srv/area")
}

// cancelPeer cancels a running call and checks that the server stops.
func cancelPeer(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting = mcp.WithCallOptions(waiting, mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { cancel() }})
	if _, err := c.CallTool(waiting, "wait", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	equal(t, "cancelled", must(mcp.CallTool[string](ctx, c, "cancelled", nil))(t), "yes")
}

// listen subscribes and triggers changes.
func (p peer) listen(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	var filter mcp.SubscriptionFilter
	var triggers []string
	var want []mcp.Event
	if p.can(changes) {
		filter.ToolsListChanged = true
		triggers = append(triggers, "grow")
		want = append(want, mcp.Event{Kind: mcp.EventToolsChanged})
	}
	if p.can(updates) {
		filter.ResourceSubscriptions = []string{"demo://counter"}
		triggers = append(triggers, "increment")
		want = append(want, mcp.Event{Kind: mcp.EventResourceUpdated, URI: "demo://counter"})
	}
	if len(want) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var got []mcp.Event
	for e, err := range c.Listen(ctx, filter) {
		if err != nil {
			t.Fatalf("Listen: %v", err)
		}
		if e.Kind == mcp.EventListening {
			equal(t, "filter", e.Filter, filter)
		} else {
			got = append(got, e)
		}
		if len(got) == len(want) {
			break
		}
		must(c.CallTool(ctx, triggers[len(got)], nil))(t)
	}
	equal(t, "events", got, want)
}

// TestKilledServer kills servers during a call. The call fails with an error that says that it may
// have run, and the next call succeeds.
func TestKilledServer(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs a shell for the process id")
	}
	built := func(pkg string) func(t *testing.T) []string {
		return func(t *testing.T) []string { return []string{build(t, ".", pkg)} }
	}
	for _, k := range []struct {
		name    string
		command func(t *testing.T) []string
		slow    string
		args    any
	}{
		{"gosdk", built("./peers/gosdk"), "wait", nil},
		{"mcpgo", built("./peers/mcpgo"), "wait", nil},
		{"everything", func(t *testing.T) []string { return []string{needNode(t), everything, "stdio"} },
			"trigger-long-running-operation", map[string]int{"duration": 4, "steps": 40}},
	} {
		t.Run(k.name, func(t *testing.T) {
			command := k.command(t)
			for _, revision := range []string{"", "2025-11-25"} {
				t.Run(cmp.Or(revision, "newest"), func(t *testing.T) { killAmid(t, command, k.slow, k.args, revision) })
			}
		})
	}
}

func killAmid(t *testing.T, command []string, slow string, args any, revision string) {
	ctx := within(t, time.Minute)
	pidFile := filepath.Join(t.TempDir(), "pid")
	server := mcp.Command("sh", append([]string{"-c", `echo $$ > "$0"; exec "$@"`, pidFile}, command...)...)
	c := dial(ctx, t, server, newHost().options(t, revision))
	before := c.Revision()
	killed := false
	begun := func(mcp.ProgressUpdate) {
		if !killed {
			killed = true
			if err := kill(pidFile); err != nil {
				t.Error(err)
			}
		}
	}
	_, err := c.CallTool(mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: begun}), slow, args)
	var failed *mcp.TransportError
	if !errors.As(err, &failed) || !failed.MayHaveRun || !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("call of the killed server: %v", err)
	}
	if !killed {
		t.Error("the call did not start")
	}
	if tools := toolNames(ctx, t, c); !slices.Contains(tools, slow) {
		t.Errorf("after a restart the tools are %q", tools)
	}
	equal(t, "revision", c.Revision(), before)
}

// kill kills the process whose id is in a file.
func kill(pidFile string) error {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return process.Kill()
}
