package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestServersAcceptOnlyTheirRevisions(t *testing.T) {
	for _, accepted := range [][]string{
		{mcptest.Modern}, {"2025-06-18"}, {"2024-11-05", "2025-11-25"}, {"2025-03-26", mcptest.Modern},
	} {
		for _, transport := range []string{"pipe", "in-memory"} {
			t.Run(fmt.Sprint(accepted, transport), func(t *testing.T) {
				s := newServer(t, &mcp.ServerOptions{Revisions: accepted})
				addTool(s, "revision", func(ctx context.Context) (string, error) {
					return mcp.RequestFrom(ctx).Revision(), nil
				})
				dial := func(revision string) (*mcp.Client, error) {
					if transport == "in-memory" {
						return mcp.Connect(t.Context(), mcp.InMemory(s), &mcp.ClientOptions{Revision: revision})
					}
					client, server := mcp.Pipe()
					go func() { _ = s.Run(context.WithoutCancel(t.Context()), server) }()
					return mcp.Connect(t.Context(), mcp.NewConnTransport(client),
						&mcp.ClientOptions{Revision: revision})
				}
				for _, revision := range append(mcptest.Revisions(), "") {
					c, err := dial(revision)
					want := revision
					if revision == "" {
						want = slices.Max(accepted)
					}
					if !slices.Contains(accepted, want) {
						if err == nil {
							t.Errorf("%s: connected with %s, want an error", revision, c.Revision())
							c.Close()
						}
						continue
					}
					if err != nil {
						t.Errorf("%s: %v", revision, err)
						continue
					}
					if got, err := mcp.CallTool[string](t.Context(), c, "revision", nil); got != want {
						t.Errorf("%s: got %q, %v; want %s", revision, got, err, want)
					}
					c.Close()
				}
			})
		}
	}
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, `Revisions has "2020-01-01", want some of [2024-11-05 `) {
			t.Errorf("got %s", got)
		}
	}()
	mcp.NewServer("s", "1", &mcp.ServerOptions{Revisions: []string{"2020-01-01"}})
}

func TestCapabilitiesCanBeTurnedOff(t *testing.T) {
	s := newServer(t, &mcp.ServerOptions{NoLogging: true, NoListChanged: true, NoSubscribe: true})
	addTool(s, "log", func(ctx context.Context) (string, error) { mcp.Logger(ctx).Error("not sent"); return "", nil })
	mcp.AddResource(s, &mcp.Resource{URI: "x://a", Name: "a"},
		func(context.Context, string) (string, error) { return "", nil })
	opts := &mcptest.Options{LogLevel: "debug"}
	mcptest.RunOn(t, s, mcptest.Combinations(), nil, func(t *testing.T, c *mcptest.Client) {
		if !c.Modern() {
			_, err := c.Try("logging/setLevel", object{"level": "debug"})
			if err == nil || err.Code != mcp.CodeMethodNotFound {
				t.Errorf("logging/setLevel: got %v", err)
			}
			_, err = c.Try("resources/subscribe", object{"uri": "x://a"})
			if err == nil || err.Code != mcp.CodeMethodNotFound {
				t.Errorf("resources/subscribe: got %v", err)
			}
		} else {
			found := string(c.Call("server/discover", nil))
			if !strings.Contains(found, `"capabilities":{"tools":{},"resources":{}}`) {
				t.Errorf("got %s", found)
			}
			c = c.Another(opts)
			defer c.Listen(mcp.SubscriptionFilter{
				ToolsListChanged: true, ResourcesListChanged: true, ResourceSubscriptions: []string{"x://a"},
			})()
		}
		c.Call("tools/call", object{"name": "log"})
		addValueTool(s, "later", "x").Remove()
		s.ResourceUpdated("x://a")
		synctest.Wait()
		for _, name := range []string{"notifications/message", "list_changed", "notifications/resources/updated",
			"logging"} {
			wire := c.Transcript()
			if c.Modern() {
				_, wire, _ = strings.Cut(wire, "subscriptions/acknowledged")
				wire = strings.ReplaceAll(wire, "modelcontextprotocol/logLevel", "")
			} else if name == "logging" {
				wire, _, _ = strings.Cut(wire, "logging/setLevel")
			}
			if strings.Contains(wire, name) {
				t.Errorf("%s was sent: %s", name, wire)
			}
		}
	})
}

func TestCustomHandlersHaveTheRequestInTheirContext(t *testing.T) {
	var h mcp.HandlerFunc = func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if mcp.RequestFrom(ctx) != req {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "RequestFrom returns another request")
		}
		if req.Method == "server/discover" {
			return mcp.RawResult(`{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private",` +
				`"capabilities":{"logging":{},"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"h","version":"1"}}}`), nil
		}
		mcp.Progress(ctx, 1, 2, "half")
		mcp.Logger(ctx).Info("hello")
		_, err := mcp.Ask[bool](ctx, "k", "Sure?", nil)
		n, _ := mcp.Once(ctx, "o", func(context.Context) (int, error) { return 7, nil })
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text(fmt.Sprint(err, n))}}, nil
	}
	opts := &mcptest.Options{LogLevel: "info"}
	mcptest.RunOn(t, h, mcptest.Combinations(), opts, func(t *testing.T, c *mcptest.Client) {
		got := decode[toolResult](t, c.Call("tools/call", object{"name": "x", "_meta": object{"progressToken": "p"}}))
		if want := "mcp: questions can only be asked in a handler of a Server 7"; got.text() != want {
			t.Errorf("got %q, want %q", got.text(), want)
		}
		wire := c.Transcript()
		if strings.Count(wire, "notifications/progress") != 1 || strings.Count(wire, `"data":"hello"`) != 1 {
			t.Errorf("want one progress and one log message: %s", wire)
		}
	})
}

func TestCompleteIsCalledForArgumentsWithoutCompletions(t *testing.T) {
	total := int64(500)
	s := newServer(t, &mcp.ServerOptions{Complete: func(_ context.Context, p *mcp.CompleteParams) (*mcp.Completion, error) {
		if p.Argument == "none" {
			return nil, nil
		}
		text := p.Prompt + p.Template + "/" + p.Argument + "/" + p.Value + "/" + p.Arguments["other"]
		return &mcp.Completion{Values: slices.Repeat([]string{text}, 150), Total: &total}, nil
	}})
	type in struct {
		Free string `json:"free,omitempty"`
		None string `json:"none,omitempty"`
		Own  string `json:"own,omitempty" jsonschema:"enum=a|b"`
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "p"}, func(context.Context, in) (string, error) { return "", nil })
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		complete := func(name string) mcp.Completion {
			return decode[mcp.CompleteResult](t, c.Call("completion/complete", object{
				"ref": object{"type": "ref/prompt", "name": "p"}, "argument": object{"name": name, "value": ""},
			})).Completion
		}
		if got := complete("free"); len(got.Values) != 100 || got.Values[0] != "p/free//" || *got.Total != total ||
			!got.HasMore {
			t.Errorf("got %+v", got)
		}
		if got := complete("none"); got.Values == nil || len(got.Values) != 0 || got.Total != nil || got.HasMore {
			t.Errorf("got %+v, want no values", got)
		}
		if got := complete("own"); len(got.Values) != 2 || got.HasMore {
			t.Errorf("got %+v, want the values of the type", got)
		}
		if _, err := c.Try("completion/complete", object{
			"ref": object{"type": "ref/prompt", "name": "other"}, "argument": object{"name": "free", "value": ""},
		}); err == nil {
			t.Error("an unknown prompt has completions")
		}
	})
}

func TestClientsDeclareExperimentalAndSamplingContext(t *testing.T) {
	for _, revision := range mcptest.Revisions() {
		s := newServer(t, nil)
		addTool(s, "declared", func(ctx context.Context) (string, error) {
			declared, err := json.Marshal(mcp.RequestFrom(ctx).Capabilities())
			return string(declared), err
		})
		client, server := mcp.Pipe()
		go func() { _ = s.Run(context.WithoutCancel(t.Context()), server) }()
		web := httptest.NewServer(mcphttp.NewHandler(s, nil))
		defer web.Close()
		for name, transport := range map[string]mcp.Transport{
			"in memory": mcp.InMemory(s), "pipe": mcp.NewConnTransport(client),
			"HTTP": mcphttp.NewTransport(web.URL, nil),
		} {
			c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{
				Revision: revision, Experimental: map[string]any{"a/b": object{"n": 1}}, SampleContext: true,
				Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
					return nil, nil
				},
			})
			if err != nil {
				t.Fatal(name, revision, err)
			}
			got, err := mcp.CallTool[string](t.Context(), c, "declared", nil)
			want := `{"sampling":{"context":{}},"experimental":{"a/b":{"n":1}}}`
			if revision < "2025-11-25" {
				want = `{"sampling":{},"experimental":{"a/b":{"n":1}}}`
			}
			if got != want {
				t.Errorf("%s, %s: got %s, %v; want %s", name, revision, got, err, want)
			}
			c.Close()
		}
	}
}

// The schemas of all revisions have an object for each experimental capability.
func TestClientsRefuseExperimentalCapabilitiesThatAreNotObjects(t *testing.T) {
	for _, value := range []any{nil, true, "x", []int{1}, make(chan int)} {
		for _, revision := range mcptest.Revisions() {
			c, err := mcp.Connect(t.Context(), mcp.InMemory(newServer(t, nil)), &mcp.ClientOptions{
				Revision: revision, Experimental: map[string]any{"a/b": value},
			})
			if err == nil {
				t.Errorf("%s: %v: connected, want an error", revision, value)
				c.Close()
			} else if !strings.Contains(err.Error(), `mcp: ClientOptions.Experimental: "a/b": `) {
				t.Errorf("%s: %v: got error %v", revision, value, err)
			}
		}
	}
}

// An outer is a handler in front of another one; unwrapping is one that shows it.
type outer struct{ next mcp.Handler }

func (o outer) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return o.next.ServeMCP(ctx, req)
}

type unwrapping struct{ outer }

func (u unwrapping) Unwrap() mcp.Handler { return u.next }

func TestHandlersWithUnwrapNegotiateTheRevisionsOfTheirServer(t *testing.T) {
	for _, accepted := range [][]string{{"2025-03-26", "2025-06-18"}, {"2024-11-05"}, {mcptest.Modern}} {
		s := newServer(t, &mcp.ServerOptions{Revisions: accepted})
		h := unwrapping{outer{unwrapping{outer{s}}}}
		for _, transport := range mcptest.Transports() {
			for _, revision := range append(mcptest.Revisions(), "") {
				c, err := mcp.Connect(t.Context(), mcptest.Transport(t, h, transport), &mcp.ClientOptions{
					Revision: revision, Logger: discardLogger(),
				})
				want := slices.Max(accepted)
				if revision != "" {
					want = revision
				}
				switch {
				case slices.Contains(accepted, want) && (err != nil || c.Revision() != want):
					t.Errorf("%v over %s: %q: got error %v, want revision %s", accepted, transport, revision, err, want)
				case !slices.Contains(accepted, want) && err == nil:
					t.Errorf("%v over %s: connected with %s, want an error", accepted, transport, revision)
				}
				if err == nil {
					c.Close()
				}
			}
		}
	}
}
