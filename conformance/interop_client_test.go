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
	can      ability
	behind   bool // a gateway
}

// An ability is something that a server can do.
type ability uint8

const (
	sendsRequests ability = 1 << iota // to its client
	sendsLogs
	sendsProgress // all notifications, in order and before the response
	handlesCancel
	sendsUpdates // of resources
	sendsChanges // of lists

	everyAbility = sendsRequests | sendsLogs | sendsProgress | handlesCancel | sendsUpdates | sendsChanges
)

// goSDK is the official SDK. Abilities are missing because of the revision or because the transport
// is stateless.
var goSDK = []peer{
	{"stdio", "", "", "2026-07-28", everyAbility, false},
	{"stdio 2025-11-25", "", "2025-11-25", "2025-11-25", everyAbility, false},
	{"stdio 2024-11-05", "", "2024-11-05", "2024-11-05", everyAbility &^ sendsRequests, false},
	{"stateless", "/stateless", "", "2026-07-28", everyAbility, false},
	{"stateless 2025-06-18", "/stateless", "2025-06-18", "2025-06-18", sendsProgress, false},
	{"session", "/session", "", "2025-11-25", everyAbility, false},
	{"session 2025-03-26", "/session", "2025-03-26", "2025-03-26", everyAbility &^ sendsRequests, false},
	{"HTTP+SSE", "/sse", "", "2025-11-25", everyAbility, false},
}

// mcpGo is mcp-go. The order of its notifications and responses is not defined. It sends resource
// updates only to sessions, omits the subscription id on stdio, and sends no requests over
// HTTP+SSE.
var mcpGo = []peer{
	{"stdio", "", "", "2026-07-28", sendsRequests | sendsLogs | handlesCancel, false},
	{"stdio 2025-11-25", "", "2025-11-25", "2025-11-25", everyAbility &^ sendsProgress, false},
	{"stdio 2024-11-05", "", "2024-11-05", "2024-11-05", everyAbility &^ sendsProgress &^ sendsRequests, false},
	{"stateless", "/stateless", "", "2026-07-28", sendsRequests | sendsLogs | handlesCancel | sendsChanges, false},
	{"stateless 2025-06-18", "/stateless", "2025-06-18", "2025-06-18", handlesCancel, false},
	{"session", "/session", "", "2026-07-28", sendsRequests | sendsLogs | handlesCancel | sendsChanges, false},
	{"session 2025-11-25", "/session", "2025-11-25", "2025-11-25", everyAbility &^ sendsProgress, false},
	{"session 2025-03-26", "/session", "2025-03-26", "2025-03-26", everyAbility &^ sendsProgress &^ sendsRequests, false},
	{"HTTP+SSE", "/sse", "", "2025-11-25", everyAbility &^ sendsProgress &^ sendsRequests, false},
}

// TestClientWorksWithOtherGoSDKs tests our client against servers of the other Go SDKs, over every
// transport that they support.
func TestClientWorksWithOtherGoSDKs(t *testing.T) {
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

func (p peer) has(a ability) bool { return p.can&a != 0 }

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
	if p.has(sendsLogs) {
		p.awaitLog(ctx, t, sdk, h, c)
	}
	if p.has(sendsRequests) {
		answerPeer(ctx, t, c)
	}
	if p.has(handlesCancel) {
		cancelPeer(ctx, t, c)
	}
	p.listen(ctx, t, c)
}

// awaitLog waits for a log message of the tool count. Servers of mcp-go over HTTP lose a notification that is
// being sent when the call ends: the call is repeated.
func (p peer) awaitLog(ctx context.Context, t *testing.T, sdk string, h *host, c *mcp.Client) {
	t.Helper()
	for range 5 {
		if sdk != "mcpgo" || p.path == "" {
			break
		}
		soon, cancel := context.WithTimeout(ctx, 3*time.Second)
		arrived := h.hasLogged(soon, "step 3")
		cancel()
		if arrived {
			return
		}
		must(mcp.CallTool[string](ctx, c, "count", map[string]int{"Steps": 3}))(t)
	}
	h.logged(ctx, t, "step 3")
}

func (p peer) useTools(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	tools := toolNames(ctx, t, c)
	for _, want := range []string{"add", "cancelled", "count", "fail", "greet", "grow", "increment", "summarize",
		"wait", "where"} {
		if !slices.Contains(tools, want) {
			t.Errorf("tools %q, want %s in them", tools, want)
		}
	}
	type sum struct{ Sum int }
	equal(t, "add", must(mcp.CallTool[sum](ctx, c, "add", map[string]int{"A": 20, "B": 22}))(t), sum{42})
	var toolFailed *mcp.ToolError
	if _, err := mcp.CallTool[string](ctx, c, "fail", nil); !errors.As(err, &toolFailed) ||
		!strings.Contains(err.Error(), "it failed, as it should") {
		t.Errorf("fail: got %v, want a tool error", err)
	}
	var progress []float64
	onProgress := func(u mcp.ProgressUpdate) { progress = append(progress, u.Progress) }
	counting := mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: onProgress})
	equal(t, "count", must(mcp.CallTool[string](counting, c, "count", map[string]int{"Steps": 3}))(t), "counted to 3")
	if p.has(sendsProgress) {
		equal(t, "progress", progress, []float64{1, 2, 3})
	}
	// The official SDK answers older requests of this kind with a bare HTTP status.
	var e *mcp.Error
	var failed *mcp.TransportError
	_, err := c.Do(ctx, "unknown/method", nil)
	isUnknown := errors.As(err, &e) && e.Remote() && e.Code == mcp.CodeMethodNotFound
	isHTTPError := errors.As(err, &failed) && !failed.MayHaveRun ||
		p.behind && errors.As(err, &e) && e.Remote() && strings.Contains(err.Error(), "did not run")
	if !isUnknown && !isHTTPError {
		t.Errorf("an unknown method: got %v, want code %d or a transport error", err, mcp.CodeMethodNotFound)
	}
}

func usePeerData(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	// Requirement: PAG-02
	equal(t, "resources on pages of two", names(t, c.Resources(ctx), func(v *mcp.Resource) string { return v.URI }),
		[]string{"demo://counter", "demo://guide", "demo://logo"})
	equal(t, "templates", names(t, c.ResourceTemplates(ctx),
		func(v *mcp.ResourceTemplate) string { return v.URITemplate }),
		[]string{"demo://cities/{country}/{city}"})
	for _, uri := range []string{"demo://guide", "demo://cities/japan/kyoto"} {
		equal(t, "read", must(c.ReadResource(ctx, uri))(t).Contents[0].Text, "this is "+uri)
	}
	var e *mcp.Error
	if _, err := c.ReadResource(ctx, "demo://unknown"); !errors.As(err, &e) || e.Code != mcp.CodeInvalidParams {
		t.Errorf("an unknown resource: got %v, want code %d", err, mcp.CodeInvalidParams)
	}
	equal(t, "prompts", names(t, c.Prompts(ctx), func(v *mcp.Prompt) string { return v.Name }), []string{"review"})
	prompt := must(c.GetPrompt(ctx, "review", map[string]string{"language": "go", "code": "x := 1"}))(t)
	equal(t, "prompt", prompt.Messages[0].Content, mcp.Text("Review this go code: x := 1"))
	languages := must(c.Complete(ctx, &mcp.CompleteParams{Prompt: "review",
		Argument: "language", Value: "p"}))(t)
	equal(t, "completion", languages.Values, []string{"python", "typescript"})
	if c.Revision() >= "2025-06-18" { // older revisions have no context
		cities := must(c.Complete(ctx, &mcp.CompleteParams{
			Template: "demo://cities/{country}/{city}",
			Argument: "city", Value: "",
			Arguments: map[string]string{"country": "japan"},
		}))(t)
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
		t.Errorf("wait: got %v, want %v", err, context.Canceled)
	}
	equal(t, "cancelled", must(mcp.CallTool[string](ctx, c, "cancelled", nil))(t), "yes")
}

// listen subscribes and triggers changes.
func (p peer) listen(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	var filter mcp.SubscriptionFilter
	var triggers []string
	var want []mcp.Event
	if p.has(sendsChanges) {
		filter.ToolsListChanged = true
		triggers = append(triggers, "grow")
		want = append(want, mcp.Event{Kind: mcp.EventToolsChanged})
	}
	if p.has(sendsUpdates) {
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

// The error of the call says that it may have run.
func TestKilledServersAreRestarted(t *testing.T) {
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
				t.Run(cmp.Or(revision, "newest"),
					func(t *testing.T) { killDuringCall(t, command, k.slow, k.args, revision) })
			}
		})
	}
}

func killDuringCall(t *testing.T, command []string, slow string, args any, revision string) {
	ctx := within(t, time.Minute)
	pidFile := filepath.Join(t.TempDir(), "pid")
	server := mcp.Command("sh", append([]string{"-c", `echo $$ > "$0"; exec "$@"`, pidFile}, command...)...)
	c := dial(ctx, t, server, newHost().options(t, revision))
	before := c.Revision()
	killed := false
	onProgress := func(mcp.ProgressUpdate) {
		if !killed {
			killed = true
			if err := kill(pidFile); err != nil {
				t.Error(err)
			}
		}
	}
	_, err := c.CallTool(mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: onProgress}), slow, args)
	var failed *mcp.TransportError
	if !errors.As(err, &failed) || !failed.MayHaveRun || !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("call of the killed server: got %v, want a TransportError that may have run", err)
	}
	if !killed {
		t.Error("the call sent no progress, so the server was not killed")
	}
	if tools := toolNames(ctx, t, c); !slices.Contains(tools, slow) {
		t.Errorf("tools after the restart: %q, want %s in them", tools, slow)
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
