package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// newHost returns a host of servers in this process, which use the revision and the transport of a
// combination.
func newHost(t *testing.T, servers map[string]mcp.Handler, on mcptest.Combination, settings string) *host.Host {
	t.Helper()
	return openHost(t, servers, on, settings, on.Revision, nil)
}

// openHost is [newHost] with keys. The messages are validated by the schema of a revision; if it is
// empty, they are not.
func openHost(t *testing.T, servers map[string]mcp.Handler, on mcptest.Combination, settings, schema string,
	keys [][]byte) *host.Host {
	t.Helper()
	entries := map[string]any{}
	for name := range servers {
		entries[name] = map[string]string{"command": name}
	}
	text, err := json.Marshal(map[string]any{"mcpServers": entries, "patchbay": json.RawMessage(settings)})
	if err != nil {
		t.Fatal(err)
	}
	f, err := config.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var h *host.Host
	h, err = host.Open(t.Context(), f, &host.Options{
		Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
			if servers[s.Command] == nil {
				return nil, errors.New("no such program")
			}
			transport := mcptest.Transport(t, servers[s.Command], on.Transport)
			if schema != "" {
				transport = validated(t, transport, schema)
			}
			t.Cleanup(func() { _ = h.Close() }) // before the end of the server, which waits for that
			return transport, nil
		},
		Client: mcp.ClientOptions{Revision: on.Revision},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), StateKeys: keys,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func newServer(name string) *mcp.Server {
	s := mcp.NewServer(name, "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, in struct{ A, B int }) (string, error) {
		return fmt.Sprint(name, in.A+in.B), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		sure, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
		return fmt.Sprint(name, sure), err
	})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "greet"}, func(context.Context, struct{}) (string, error) {
		return "I am " + name, nil
	})
	mcp.AddResource(s, &mcp.Resource{URI: "file:///" + name, Name: name}, func(context.Context, string) (string, error) {
		return "text of " + name, nil
	})
	return s
}

func yes(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":true}`)}, nil
}

// oneProcess omits [mcptest.Replicas]: package host knows no processes, and its tests run each server
// with each client.
func oneProcess(all []mcptest.Combination) []mcptest.Combination {
	return slices.DeleteFunc(all, func(on mcptest.Combination) bool { return on.Transport == mcptest.Replicas })
}

// forEachPair runs a test, in fake time, for servers and clients of every revision over every
// transport. With -short and with the race detector, which takes six times as long, it runs each server
// with the client of the same combination and with one other client.
func forEachPair(t *testing.T, f func(t *testing.T, up, down mcptest.Combination)) {
	all := oneProcess(mcptest.Combinations())
	for i, up := range all {
		t.Run("server "+up.String(), func(t *testing.T) {
			for j, down := range all {
				if (testing.Short() || raceDetector) && i != j && i+j != len(all)-1 {
					continue
				}
				t.Run("client "+down.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { f(t, up, down) })
				})
			}
		})
	}
}

// Clients of every revision use servers of every revision, under unique names.
func TestViewServesAllServers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"calc": newServer("calc"), "shop": newServer("shop")}, up, "{}")
		useServers(t, mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{Elicit: yes}), up)
	})
}

// useServers uses the tools, prompts and resources of two servers.
func useServers(t *testing.T, c *mcp.Client, up mcptest.Combination) {
	tools, err := mcp.Collect(c.Tools(t.Context()))
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
	}
	if want := []string{"calc__add", "calc__ask", "shop__add", "shop__ask"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("tools: got %q, %v, want %q", names, err, want)
	}
	got, err := mcp.CallTool[string](t.Context(), c, "shop__add", map[string]any{"A": 1, "B": 2})
	if err != nil || got != "shop3" {
		t.Errorf("call: got %q, %v", got, err)
	}
	if up.Since("2025-06-18") && c.Revision() >= "2025-06-18" {
		got, err = mcp.CallTool[string](t.Context(), c, "calc__ask", nil)
		if err != nil || got != "calctrue" {
			t.Errorf("question: got %q, %v", got, err)
		}
	}
	p, err := c.GetPrompt(t.Context(), "calc__greet", nil)
	if err != nil || len(p.Messages) != 1 {
		t.Errorf("prompt: got %+v, %v", p, err)
	}
	r, err := c.ReadResource(t.Context(), "file:///shop")
	if err != nil || r.Contents[0].Text != "text of shop" {
		t.Errorf("resource: got %+v, %v", r, err)
	}
	_, err = c.CallTool(t.Context(), "none__add", nil)
	var refused *mcp.Error
	if !errors.As(err, &refused) || refused.Code != mcp.CodeInvalidParams {
		t.Errorf("unknown tool: got %v", err)
	}
}

// A server may return links to resources that it does not list: they are read from this server.
func TestReadOfLinkedResource(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !down.Since("2025-06-18") || !up.Since("2025-06-18") {
			return // has no links
		}
		servers := map[string]mcp.Handler{}
		for _, name := range []string{"calc", "shop"} {
			s := newServer(name)
			mcp.AddTool(s, &mcp.Tool{Name: "link"}, func(context.Context, struct{}) (*mcp.ResourceLink, error) {
				return &mcp.ResourceLink{URI: "db://" + name, Name: name}, nil
			})
			servers[name] = mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				if raw, _ := req.Param("uri"); req.Method == "resources/read" && string(raw) == `"db://`+name+`"` {
					return mcp.RawResult(`{"resultType":"complete","contents":[{"uri":"db://` + name + `","text":"row"}],` +
						`"ttlMs":0,"cacheScope":"private"}`), nil
				}
				return s.ServeMCP(ctx, req)
			})
		}
		h := newHost(t, servers, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		var missing *mcp.Error
		if _, err := c.ReadResource(t.Context(), "db://shop"); !errors.As(err, &missing) {
			t.Errorf("before a result has named it: got %v, want an error of the protocol", err)
		}
		if _, err := c.CallTool(t.Context(), "shop__link", nil); err != nil {
			t.Fatal(err)
		}
		r, err := c.ReadResource(t.Context(), "db://shop")
		if err != nil || r.Contents[0].Text != "row" {
			t.Errorf("got %+v, %v, want the resource", r, err)
		}
	})
}
