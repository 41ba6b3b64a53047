package mcp_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The names of loggers reach programs in every revision.
//
// Requirement: LOG-09
func TestClientsReceiveTheNamesOfLoggers(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "log", func(ctx context.Context) (string, error) {
		mcp.Logger(ctx).With("logger", "database").Error("slow")
		mcp.Logger(ctx).Error("plain")
		return "", nil
	})
	var mu sync.Mutex
	var got []string
	opts := &mcp.ClientOptions{Log: func(_ context.Context, m *mcp.LoggingMessage) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m.Logger+":"+m.Text())
	}}
	mcptest.RunClient(t, s, opts, func(t *testing.T, c *mcp.Client) {
		got = nil
		if _, err := c.CallTool(t.Context(), "log", nil); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"database:slow", ":plain"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Only 2025-11-25 announces that the user has completed a page; older revisions have no pages.
//
// Requirement: ELI-28, ELI-29
func TestProgramsSeeCompletedPages(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "visit", func(ctx context.Context) (string, error) {
		return "done", mcp.AskURL(ctx, "page", "https://example.com/login", "Please sign in")
	})
	var mu sync.Mutex
	var asked, completed []string
	opts := &mcp.ClientOptions{
		ElicitURL: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, p.ElicitationID)
			return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
		},
		ElicitationComplete: func(_ context.Context, id string) {
			mu.Lock()
			defer mu.Unlock()
			completed = append(completed, id)
		},
	}
	mcptest.RunClient(t, s, opts, func(t *testing.T, c *mcp.Client) {
		asked, completed = nil, nil
		res, err := c.CallTool(t.Context(), "visit", nil)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		switch revision := c.Revision(); {
		case revision < "2025-11-25":
			if err == nil || len(asked) > 0 || !strings.Contains(err.Error(), "elicitation") {
				t.Errorf("got %+v, %v and questions %q, want an error", res, err, asked)
			}
		case err != nil || len(asked) != 1:
			t.Errorf("got %v and questions %q, want one", err, asked)
		case revision == "2025-11-25" && !slices.Equal(completed, asked):
			t.Errorf("got completions %q, want %q", completed, asked)
		case revision == mcptest.Modern && len(completed) > 0:
			t.Errorf("got completions %q, want none", completed)
		}
	})
}

// A change reaches all clients that have asked for such changes, in sessions and subscriptions; log
// messages reach only the client of their call.
func TestChangesReachAllClients(t *testing.T) {
	s := newServer(t, nil)
	mcp.AddResource(s, &mcp.Resource{URI: "x://a", Name: "a"},
		func(context.Context, string) (string, error) { return "", nil })
	addValueTool(s, "tool", "x")
	mcp.AddPrompt(s, &mcp.Prompt{Name: "prompt"}, func(context.Context, struct{}) (string, error) { return "", nil })
	addTool(s, "log", func(ctx context.Context) (string, error) { mcp.Logger(ctx).Error("x"); return "", nil })
	filter := mcp.SubscriptionFilter{
		ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true,
		ResourceSubscriptions: []string{"x://a"},
	}
	opts := &mcptest.Options{LogLevel: "debug"}
	mcptest.RunOn(t, s, mcptest.Combinations(), opts, func(t *testing.T, c *mcptest.Client) {
		clients := []*mcptest.Client{c, c.Another(opts), c.Another(opts)}
		for _, each := range clients {
			defer each.Listen(filter)()
		}
		addValueTool(s, "later", "x").Remove()
		mcp.AddPrompt(s, &mcp.Prompt{Name: "later"},
			func(context.Context, struct{}) (string, error) { return "", nil }).Remove()
		mcp.AddResource(s, &mcp.Resource{URI: "x://later", Name: "later"},
			func(context.Context, string) (string, error) { return "", nil }).Remove()
		s.ResourceUpdated("x://a")
		clients[0].Call("tools/call", object{"name": "log"})
		for i, each := range clients {
			for _, method := range []string{toolsChanged, "notifications/prompts/list_changed",
				"notifications/resources/list_changed", resourceUpdated} {
				each.Await(1, method) // fails the test if it does not arrive
			}
			if got := len(each.Notifications(logged)); (got > 0) != (i == 0) {
				t.Errorf("client %d received %d log messages", i, got)
			}
		}
	})
}

// The notifications of each schema are known: changes go to all clients, the others to one.
func TestServerNotificationsOfTheProtocol(t *testing.T) {
	if mcptest.SchemaDir() == "" {
		t.Skip("no schemas found")
	}
	broadcast := []string{toolsChanged, "notifications/prompts/list_changed", "notifications/resources/list_changed",
		resourceUpdated}
	ofOneClient := []string{"notifications/cancelled", "notifications/progress", logged,
		"notifications/elicitation/complete", "notifications/tasks/status", "notifications/subscriptions/acknowledged"}
	for _, revision := range mcptest.Revisions() {
		for _, method := range serverNotifications(t, revision) {
			if !slices.Contains(broadcast, method) && !slices.Contains(ofOneClient, method) {
				t.Errorf("%s: nothing is known of %s", revision, method)
			}
		}
	}
}

// serverNotifications returns the methods of the schema's definition ServerNotification.
func serverNotifications(t *testing.T, revision string) (methods []string) {
	t.Helper()
	type definition struct {
		AnyOf []struct {
			Ref string `json:"$ref"`
		} `json:"anyOf"`
		Properties struct {
			Method struct{ Const string }
		}
	}
	var schema struct {
		Defs        map[string]definition `json:"$defs"`
		Definitions map[string]definition
	}
	if err := json.Unmarshal(readSchema(t, revision), &schema); err != nil {
		t.Fatal(err)
	}
	all := schema.Defs
	if all == nil {
		all = schema.Definitions
	}
	for _, each := range all["ServerNotification"].AnyOf {
		methods = append(methods, all[each.Ref[strings.LastIndex(each.Ref, "/")+1:]].Properties.Method.Const)
	}
	if len(methods) < 5 {
		t.Errorf("%s: got notifications %q, want at least 5", revision, methods)
	}
	return methods
}

func readSchema(t *testing.T, revision string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(mcptest.SchemaDir(), revision+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
