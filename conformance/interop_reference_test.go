package conformance_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Entry points of the pinned reference servers.
const (
	everything = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
	filesystem = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
	memory     = "node_modules/@modelcontextprotocol/server-memory/dist/index.js"
)

// TestClientWorksWithEverythingServer tests our client against the reference server "everything",
// over each of its transports.
func TestClientWorksWithEverythingServer(t *testing.T) {
	node := needNode(t)
	for _, k := range []struct {
		name      string
		transport func(t *testing.T) mcp.Transport
	}{
		{"stdio", overStdio(node, everything, "stdio")},
		{"streamable HTTP", func(t *testing.T) mcp.Transport {
			return overHTTP(startEverything(t, node, "streamableHttp") + "/mcp")(t)
		}},
		{"HTTP+SSE", func(t *testing.T) mcp.Transport {
			return overHTTP(startEverything(t, node, "sse") + "/sse")(t)
		}},
	} {
		t.Run(k.name, func(t *testing.T) { useEverything(t, k.transport(t)) })
	}
}

// startEverything starts the server on a port that was free before, since the server cannot choose
// one, and waits until it responds.
func startEverything(t *testing.T, node, transport string) string {
	t.Helper()
	addr := freeport.Addr(t)
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(node, everything, transport)
	cmd.Env = append(os.Environ(), "PORT="+port)
	startPeer(t, cmd)
	return "http://" + addr
}

func useEverything(t *testing.T, transport mcp.Transport) {
	ctx := within(t, time.Minute)
	h := newHost()
	c := dial(ctx, t, transport, h.options(t, ""))
	equal(t, "revision", c.Revision(), "2025-11-25")
	equal(t, "server", c.ServerInfo().Name, "mcp-servers/everything")
	if err := c.Ping(ctx); err != nil {
		t.Errorf("Ping: %v", err)
	}
	everythingTools(ctx, t, c)
	everythingQuestions(ctx, t, c, h)
	everythingData(ctx, t, c)
	everythingChanges(ctx, t, c)
}

func everythingTools(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	tools := toolNames(ctx, t, c)
	for _, want := range []string{"echo", "get-sum", "get-structured-content", "trigger-elicitation-request",
		"trigger-url-elicitation", "trigger-sampling-request", "get-roots-list"} {
		if !slices.Contains(tools, want) {
			t.Errorf("tools %q, want %s in them", tools, want)
		}
	}
	equal(t, "get-sum", must(mcp.CallTool[string](ctx, c, "get-sum", map[string]int{"a": 20, "b": 22}))(t),
		"The sum of 20 and 22 is 42.")
	type weather struct {
		Temperature float64 `json:"temperature"`
		Conditions  string  `json:"conditions"`
	}
	equal(t, "structured", must(mcp.CallTool[weather](ctx, c, "get-structured-content",
		map[string]string{"location": "Chicago"}))(t),
		weather{36, "Light rain / drizzle"})
	image := must(mcp.CallTool[[]mcp.ContentBlock](ctx, c, "get-tiny-image", nil))(t)
	if !slices.ContainsFunc(image, func(p mcp.ContentBlock) bool {
		i, ok := p.(*mcp.ImageContent)
		return ok && len(i.Data) > 0
	}) {
		t.Errorf("get-tiny-image: got %v, want an image", image)
	}
	links := must(mcp.CallTool[[]mcp.ContentBlock](ctx, c, "get-resource-links", map[string]int{"count": 3}))(t)
	if !slices.ContainsFunc(links, func(p mcp.ContentBlock) bool {
		l, ok := p.(*mcp.ResourceLink)
		return ok && l.URI != ""
	}) {
		t.Errorf("get-resource-links: got %v, want a link", links)
	}
	if r, err := c.CallTool(ctx, "get-sum", map[string]string{"a": "not a number"}); err == nil && !r.IsError {
		t.Errorf("invalid arguments: got %v, want an error", r.Text())
	}
	var progress []float64
	onProgress := func(u mcp.ProgressUpdate) { progress = append(progress, u.Progress / *u.Total) }
	long := mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: onProgress})
	must(c.CallTool(long, "trigger-long-running-operation", map[string]float64{"duration": 0.2, "steps": 4}))(t)
	equal(t, "progress", progress, []float64{.25, .5, .75, 1})
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	cancelled = mcp.WithCallOptions(cancelled, mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { cancel() }})
	if _, err := c.CallTool(cancelled, "trigger-long-running-operation",
		map[string]int{"duration": 4, "steps": 40}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: got %v, want %v", err, context.Canceled)
	}
}

// everythingQuestions makes the server send every kind of request to the client.
func everythingQuestions(ctx context.Context, t *testing.T, c *mcp.Client, h *host) {
	t.Helper()
	form := must(mcp.CallTool[string](ctx, c, "trigger-elicitation-request", nil))(t)
	for _, want := range []string{"Name: Ada", "Favorite Integer: 42", "dark and stormy", `"fish-1"`} {
		if !strings.Contains(form, want) {
			t.Errorf("elicitation: got %s, want %q in it", form, want)
		}
	}
	const page = "https://example.com/consent"
	visit := must(mcp.CallTool[string](ctx, c, "trigger-url-elicitation", map[string]any{"url": page}))(t)
	if !strings.Contains(visit, "accept") || !slices.Equal(h.pages(), []string{page}) {
		t.Errorf("elicitation by URL: got %s, visited %q, want %s", visit, h.pages(), page)
	}
	sampled := must(mcp.CallTool[string](ctx, c, "trigger-sampling-request", map[string]string{"prompt": "hello"}))(t)
	if !strings.Contains(sampled, "a summary") {
		t.Errorf("sampling: got %s, want a summary", sampled)
	}
	roots := must(mcp.CallTool[string](ctx, c, "get-roots-list", nil))(t)
	if !strings.Contains(roots, "file:///srv/area") {
		t.Errorf("roots: got %s, want file:///srv/area", roots)
	}
	h.logged(ctx, t, "Roots updated: 1")
	if err := c.RootsChanged(ctx); err != nil {
		t.Errorf("RootsChanged: %v", err)
	}
	h.logged(ctx, t, "Roots updated: 1")
}

func everythingData(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	resources := names(t, c.Resources(ctx), func(v *mcp.Resource) string { return v.URI })
	if len(resources) < 5 {
		t.Errorf("resources %q, want at least 5", resources)
	}
	read := must(c.ReadResource(ctx, resources[0]))(t)
	equal(t, "uri", read.Contents[0].URI, resources[0])
	equal(t, "templates", names(t, c.ResourceTemplates(ctx),
		func(v *mcp.ResourceTemplate) string { return v.URITemplate }),
		[]string{"demo://resource/dynamic/blob/{resourceId}", "demo://resource/dynamic/text/{resourceId}"})
	blob := must(c.ReadResource(ctx, "demo://resource/dynamic/blob/7"))(t)
	if !strings.HasPrefix(string(blob.Contents[0].Blob), "Resource 7:") {
		t.Errorf("blob %q, want Resource 7", blob.Contents[0].Blob)
	}
	var e *mcp.Error
	if _, err := c.ReadResource(ctx, "demo://unknown"); !errors.As(err, &e) || e.Code != mcp.CodeInvalidParams {
		t.Errorf("an unknown resource: got %v, want code %d", err, mcp.CodeInvalidParams)
	}
	equal(t, "prompts", names(t, c.Prompts(ctx), func(v *mcp.Prompt) string { return v.Name }),
		[]string{"args-prompt", "completable-prompt", "resource-prompt", "simple-prompt"})
	prompt := must(c.GetPrompt(ctx, "args-prompt", map[string]string{"city": "Kyoto"}))(t)
	equal(t, "prompt", prompt.Messages[0].Content, mcp.Text("What's weather in Kyoto?"))
	leads := must(c.Complete(ctx, &mcp.CompleteParams{Prompt: "completable-prompt",
		Argument: "name", Value: "A",
		Arguments: map[string]string{"department": "Engineering"}}))(t)
	equal(t, "completion", leads.Values, []string{"Alice"})
	ids := must(c.Complete(ctx, &mcp.CompleteParams{
		Template: "demo://resource/dynamic/text/{resourceId}",
		Argument: "resourceId", Value: "7",
	}))(t)
	equal(t, "completion of a template", ids.Values, []string{"7"})
}

func everythingChanges(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	const uri = "demo://resource/dynamic/text/1"
	for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{uri}}) {
		if err != nil {
			t.Fatalf("Listen: %v", err)
		}
		switch e.Kind {
		case mcp.EventListening:
			equal(t, "filter", e.Filter, mcp.SubscriptionFilter{ResourceSubscriptions: []string{uri}})
			must(c.CallTool(ctx, "toggle-subscriber-updates", nil))(t)
		case mcp.EventResourceUpdated:
			equal(t, "updated", e.URI, uri)
			must(c.CallTool(ctx, "toggle-subscriber-updates", nil))(t) // its timer would keep the server running
			return
		}
	}
	t.Error("Listen ended without an update of the resource")
}

// TestClientWorksWithFilesystemServer uses the reference server with a directory, first from its
// arguments and then from a root.
func TestClientWorksWithFilesystemServer(t *testing.T) {
	node := needNode(t)
	ctx := within(t, time.Minute)
	dir, other := t.TempDir(), t.TempDir()
	opts := newHost().options(t, "")
	var root atomic.Value
	root.Store(dir)
	opts.Roots = func(context.Context) ([]mcp.Root, error) {
		return []mcp.Root{{URI: "file://" + root.Load().(string)}}, nil
	}
	c := dial(ctx, t, mcp.Command(node, filesystem, dir), opts)
	equal(t, "revision", c.Revision(), "2025-11-25")
	if tools := toolNames(ctx, t, c); !slices.Contains(tools, "write_file") {
		t.Errorf("tools %q, want write_file in them", tools)
	}
	file := filepath.Join(dir, "note.txt")
	must(mcp.CallTool[*mcp.CallToolResult](ctx, c, "write_file",
		map[string]string{"path": file, "content": "hé\nllo"}))(t)
	equal(t, "written", string(must(os.ReadFile(file))(t)), "hé\nllo")
	type content struct {
		Content string `json:"content"`
	}
	equal(t, "read", must(mcp.CallTool[content](ctx, c, "read_text_file", map[string]string{"path": file}))(t),
		content{"hé\nllo"})
	var failed *mcp.ToolError
	if _, err := mcp.CallTool[string](ctx, c, "read_text_file",
		map[string]string{"path": "/etc/passwd"}); !errors.As(err, &failed) {
		t.Errorf("file outside the directory: got %v, want a tool error", err)
	}
	root.Store(other)
	if err := c.RootsChanged(ctx); err != nil {
		t.Fatal(err)
	}
	// The server requests the roots asynchronously.
	for allowed := ""; !strings.Contains(allowed, other); {
		allowed = must(mcp.CallTool[*mcp.CallToolResult](ctx, c, "list_allowed_directories", nil))(t).Text()
	}
}

// TestClientWorksWithMemoryServer stores a graph on the reference server and reads it after a
// restart.
func TestClientWorksWithMemoryServer(t *testing.T) {
	node := needNode(t)
	ctx := within(t, time.Minute)
	file := filepath.Join(t.TempDir(), "graph.jsonl")
	server := func() mcp.Transport {
		s := mcp.Command(node, memory)
		s.Env = []string{"MEMORY_FILE_PATH=" + file}
		return s
	}
	type entity struct {
		Name         string   `json:"name"`
		EntityType   string   `json:"entityType"`
		Observations []string `json:"observations"`
	}
	type graph struct {
		Entities  []entity `json:"entities"`
		Relations []any    `json:"relations"`
	}
	want := graph{[]entity{{"Ada", "person", []string{"writes programs"}}}, []any{}}
	first := dial(ctx, t, server(), nil)
	must(first.CallTool(ctx, "create_entities", map[string]any{"entities": want.Entities}))(t)
	equal(t, "graph", must(mcp.CallTool[graph](ctx, first, "read_graph", nil))(t), want)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	second := dial(ctx, t, server(), nil)
	found := must(mcp.CallTool[graph](ctx, second, "search_nodes", map[string]string{"query": "programs"}))(t)
	equal(t, "found", found, want)
}
