package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// featuresEnv makes the test binary a stdio server like newFeatureServer.
const featuresEnv = "PATCHBAY_TEST_FEATURES"

// newFeatureServer returns a server with a tool for each feature that a bridge has to pass on.
func newFeatureServer() *mcp.Server {
	var cancelled atomic.Int64
	s := mcp.NewServer("features", "1", &mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	mcp.AddResource(s, &mcp.Resource{URI: "x://r", Name: "r"},
		func(context.Context, string) (string, error) { return "r", nil })
	add := func(name string, f func(ctx context.Context) (string, error)) *mcp.Registration[mcp.Tool] {
		return mcp.AddTool(s, &mcp.Tool{Name: name},
			func(ctx context.Context, _ struct{}) (string, error) { return f(ctx) })
	}
	add("work", func(ctx context.Context) (string, error) {
		mcp.Progress(ctx, 1, 2, "half")
		mcp.Logger(ctx).Warn("half")
		mcp.Logger(ctx).Debug("not wanted")
		mcp.Progress(ctx, 2, 2, "all")
		return "worked", nil
	})
	add("ask", func(ctx context.Context) (string, error) {
		sure, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
		return fmt.Sprint(sure), err
	})
	add("sample", func(ctx context.Context) (string, error) {
		res, err := mcp.Sample(ctx, "s", &mcp.CreateMessageParams{MaxTokens: 1,
			Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("?")}}}})
		if err != nil {
			return "", err
		}
		return res.Text(), nil
	})
	add("roots", func(ctx context.Context) (string, error) {
		roots, err := mcp.Roots(ctx)
		return fmt.Sprint(len(roots)), err
	})
	add("wait", func(ctx context.Context) (string, error) {
		mcp.Progress(ctx, 1, 2, "waiting")
		<-ctx.Done()
		cancelled.Add(1)
		return "", ctx.Err()
	})
	add("cancelled", func(context.Context) (string, error) { return fmt.Sprint(cancelled.Load()), nil })
	add("change", func(context.Context) (string, error) {
		add("later", func(context.Context) (string, error) { return "", nil }).Remove()
		s.ResourceUpdated("x://r")
		return "changed", nil
	})
	return s
}

func featureServer() {
	if err := newFeatureServer().Run(context.Background(), mcp.Stdio()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A featureClient is a client that answers, and notes what it receives.
type featureClient struct {
	*mcp.Client
	t        *testing.T
	mu       sync.Mutex
	received []string
}

func (c *featureClient) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, fmt.Sprintf(format, args...))
}

func connectFeatures(t *testing.T, transport mcp.Transport, revision string) *featureClient {
	t.Helper()
	c := &featureClient{t: t}
	var err error
	c.Client, err = mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: revision, Timeout: timeout,
		Logger: slog.New(slog.DiscardHandler), LogLevel: "info",
		Log: func(_ context.Context, m *mcp.LoggingMessage) { c.note("log %s", m.Level) },
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":true}`)}, nil
		},
		Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m", Role: mcp.RoleAssistant,
				Content: []mcp.ContentBlock{mcp.Text("sampled")}}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///a"}, {URI: "file:///b"}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *featureClient) call(ctx context.Context, tool string) string {
	c.t.Helper()
	res, err := c.CallTool(ctx, tool, nil)
	if err != nil {
		c.t.Errorf("%s: %v", tool, err)
		return ""
	}
	if res.IsError {
		return "failed: " + res.Text()
	}
	return res.Text()
}

// checkFeatures uses every feature of the server, which has the revision upstream, through a bridge.
func checkFeatures(t *testing.T, transport mcp.Transport, revision, upstream string) {
	c := connectFeatures(t, transport, revision)
	ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(p mcp.ProgressUpdate) {
		c.note("progress %v %v", p.Progress, *p.Total)
	}})
	if got := c.call(ctx, "work"); got != "worked" {
		t.Errorf("work: got %q", got)
	}
	answers := map[string]string{"ask": "true", "sample": "sampled", "roots": "2"}
	if min(revision, upstream) < "2025-06-18" { // has no elicitation
		delete(answers, "ask")
		if res, err := c.CallTool(t.Context(), "ask", nil); err == nil && !res.IsError {
			t.Errorf("ask: got %+v, want an error", res)
		}
	}
	for tool, want := range answers {
		if got := c.call(t.Context(), tool); got != want {
			t.Errorf("%s: got %q, want %q", tool, got, want)
		}
	}
	c.checkCancellation()
	c.checkChanges()
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.received)
	if want := []string{"log warning", "progress 1 2", "progress 2 2"}; !slices.Equal(c.received, want) {
		t.Errorf("notifications of work: got %q, want %q", c.received, want)
	}
}

// checkCancellation cancels a call that has reached the server.
func (c *featureClient) checkCancellation() {
	c.t.Helper()
	before := c.call(c.t.Context(), "cancelled")
	ctx, cancel := context.WithCancel(c.t.Context())
	_, err := c.CallTool(mcp.WithCallOptions(ctx, mcp.CallOptions{
		Progress: func(mcp.ProgressUpdate) { cancel() }}), "wait", nil)
	if cancel(); err == nil {
		c.t.Error("cancelled call: got no error")
	}
	limit, stop := context.WithTimeout(c.t.Context(), timeout)
	defer stop()
	for c.call(limit, "cancelled") == before && limit.Err() == nil { // the notification is not awaited
	}
	if limit.Err() != nil {
		c.t.Error("the cancellation did not reach the server")
	}
}

// checkChanges subscribes, and waits for the changes that a tool makes.
func (c *featureClient) checkChanges() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), timeout)
	defer cancel()
	seen := map[mcp.EventKind]bool{}
	filter := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x://r"}}
	for e, err := range c.Listen(ctx, filter) {
		if err != nil {
			c.t.Errorf("listen: %v", err)
			return
		}
		seen[e.Kind] = true
		if e.Kind == mcp.EventListening {
			if got := c.call(c.t.Context(), "change"); got != "changed" {
				c.t.Errorf("change: got %q", got)
			}
		}
		if seen[mcp.EventToolsChanged] && seen[mcp.EventResourceUpdated] {
			return
		}
	}
	c.t.Errorf("changes: got events %v, want a changed list and a changed resource", seen)
}

func TestBridgePassesFeaturesOverHTTP(t *testing.T) {
	for _, upstream := range mcptest.Revisions() {
		url := bridge(t, "--http", ":0", "--revision", upstream, "--env", featuresEnv+"=1", "--", os.Args[0])
		for _, revision := range mcptest.Revisions() {
			t.Run(revision+" to "+upstream, func(t *testing.T) {
				checkFeatures(t, mcphttp.NewTransport(url, nil), revision, upstream)
			})
		}
	}
}

func TestBridgePassesFeaturesOnStdio(t *testing.T) {
	h := mcphttp.NewHandler(newFeatureServer(), &mcphttp.Options{Logger: slog.New(slog.DiscardHandler)})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	for _, upstream := range mcptest.Revisions() {
		for _, revision := range mcptest.Revisions() {
			t.Run(revision+" to "+upstream, func(t *testing.T) {
				var stderr strings.Builder
				command := mcp.Command(built, "bridge", server.URL, "--revision", upstream)
				command.Stderr = io.MultiWriter(&stderr, t.Output())
				t.Cleanup(func() {
					if stderr.Len() > 0 {
						t.Error("the bridge wrote to standard error, want nothing")
					}
				})
				checkFeatures(t, command, revision, upstream)
			})
		}
	}
}
