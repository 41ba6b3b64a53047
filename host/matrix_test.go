package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const large = 1 << 20

// featureServer returns a server whose tools use one feature of the protocol each.
func featureServer() *mcp.Server {
	s := newServer("all")
	tool := func(name string, f func(ctx context.Context) (string, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) { return f(ctx) })
	}
	tool("fail", func(context.Context) (string, error) { return "", errors.New("no paper") })
	tool("refuse", func(context.Context) (string, error) {
		return "", &mcp.Error{Code: -31000, Message: "refused", Data: json.RawMessage(`{"a":1}`)}
	})
	tool("progress", func(ctx context.Context) (string, error) {
		for n := range 3 {
			mcp.Progress(ctx, float64(n+1), 3, "step")
		}
		return "done", nil
	})
	tool("log", func(ctx context.Context) (string, error) { mcp.Logger(ctx).Warn("low on paper"); return "done", nil })
	tool("wait", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
	tool("url", func(ctx context.Context) (string, error) {
		return "visited", mcp.AskURL(ctx, "page", "https://example.com/login", "Log in")
	})
	tool("sample", func(ctx context.Context) (string, error) {
		r, err := mcp.Sample(ctx, "s", &mcp.CreateMessageParams{MaxTokens: 10,
			Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("hello")}}}})
		if err != nil {
			return "", err
		}
		return r.Text(), nil
	})
	tool("roots", func(ctx context.Context) (string, error) {
		roots, err := mcp.Roots(ctx)
		return fmt.Sprint(len(roots)), err
	})
	tool("three", func(ctx context.Context) (string, error) {
		n := 0
		for round := range 3 {
			sure, err := mcp.Ask[bool](ctx, fmt.Sprint("round", round), "Continue?", nil)
			if err != nil {
				return "", err
			}
			if sure {
				n++
			}
		}
		return fmt.Sprint(n), nil
	})
	tool("two", func(ctx context.Context) (string, error) {
		var a, b bool
		err := mcp.AskAll(ctx, mcp.FormQuestion("a", "A?", &a, nil), mcp.FormQuestion("b", "B?", &b, nil))
		return fmt.Sprint(a, b), err
	})
	tool("large", func(context.Context) (string, error) { return strings.Repeat("x", large), nil })
	mcp.AddPrompt(s, &mcp.Prompt{Name: "city", Arguments: []mcp.PromptArgument{{Name: "name"}},
		Complete: map[string]mcp.CompleteFunc{"name": func(_ context.Context, v string, _ map[string]string) ([]string, error) {
			return []string{v + "ris"}, nil
		}}}, func(context.Context, map[string]string) (string, error) { return "", nil })
	return s
}

// A feature is used by run. Both sides need the revision since.
type feature struct {
	name, since string
	run         func(t *testing.T, c *mcp.Client, seen *seen)
}

// A seen has what the client was asked and told.
type seen struct {
	mu    sync.Mutex // guards texts
	texts []string
}

func (s *seen) add(text string) { s.mu.Lock(); defer s.mu.Unlock(); s.texts = append(s.texts, text) }

func (s *seen) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(s.texts)), "; ")
}

func (s *seen) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			s.add(p.Message)
			return yes(ctx, p)
		},
		ElicitURL: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			s.add(p.Message + " " + p.URL)
			return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
		},
		Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m", Content: []mcp.ContentBlock{mcp.Text("hi")}}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///home"}, {URI: "file:///tmp"}}, nil
		},
		Log: func(_ context.Context, m *mcp.LoggingMessage) { s.add(m.Text()) }, LogLevel: "info",
	}
}

// returns is a feature whose tool returns a text, and whose client was asked or told something.
func returns(tool, since, want, told string) feature {
	return feature{tool, since, func(t *testing.T, c *mcp.Client, s *seen) {
		r, err := c.CallTool(t.Context(), "all__"+tool, nil)
		if err != nil || r.IsError || r.Text() != want {
			t.Errorf("got %+v, %v, want %q", r, err, want)
		}
		synctest.Wait()
		if s.all() != told {
			t.Errorf("the client was asked or told %q, want %q", s.all(), told)
		}
	}}
}

func features() []feature {
	return []feature{
		{"call", "", func(t *testing.T, c *mcp.Client, _ *seen) {
			got, err := mcp.CallTool[string](t.Context(), c, "all__add", map[string]any{"A": 1, "B": 2})
			if err != nil || got != "all3" {
				t.Errorf("got %q, %v", got, err)
			}
		}},
		{"tool error", "", func(t *testing.T, c *mcp.Client, _ *seen) {
			if r, err := c.CallTool(t.Context(), "all__fail", nil); err != nil || !r.IsError || r.Text() != "no paper" {
				t.Errorf("got %+v, %v", r, err)
			}
		}},
		{"protocol error", "", func(t *testing.T, c *mcp.Client, _ *seen) {
			_, err := c.CallTool(t.Context(), "all__refuse", nil)
			var e *mcp.Error
			if !errors.As(err, &e) || e.Code != -31000 || e.Message != "refused" || string(e.Data) != `{"a":1}` {
				t.Errorf("got %v, want the error of the server", err)
			}
		}},
		{"progress", "", func(t *testing.T, c *mcp.Client, _ *seen) {
			var steps atomic.Int32
			ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { steps.Add(1) }})
			if _, err := c.CallTool(ctx, "all__progress", nil); err != nil || steps.Load() == 0 {
				t.Errorf("got %v and %d steps", err, steps.Load())
			}
		}},
		returns("log", "", "done", "low on paper"),
		{"cancel", "", func(t *testing.T, c *mcp.Client, _ *seen) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := c.CallTool(ctx, "all__wait", nil); err == nil {
				t.Error("got no error, want the end of the context")
			}
		}},
		{"completion", "2025-03-26", func(t *testing.T, c *mcp.Client, _ *seen) {
			got, err := c.Complete(t.Context(), &mcp.CompleteParams{Prompt: "all__city",
				Argument: "name", Value: "Pa"})
			if err != nil || len(got.Values) != 1 || got.Values[0] != "Paris" {
				t.Errorf("got %+v, %v", got, err)
			}
		}},
		returns("ask", "2025-06-18", "alltrue", "[all] Sure?"),
		returns("url", "2025-11-25", "visited", "[all] Log in https://example.com/login"),
		returns("sample", "", "hi", ""),
		returns("roots", "", "2", ""),
		returns("two", "2025-06-18", "true true", "[all] A?; [all] B?"),
		returns("three", "2025-06-18", "3", "[all] Continue?; [all] Continue?; [all] Continue?"),
		{"1 MiB", "", func(t *testing.T, c *mcp.Client, _ *seen) {
			if r, err := c.CallTool(t.Context(), "all__large", nil); err != nil || len(r.Text()) != large {
				t.Errorf("got %d bytes, %v", len(r.Text()), err)
			}
		}},
	}
}

// validated validates all messages of a transport by the schema of a revision.
func validated(t *testing.T, transport mcp.Transport, revision string) mcp.Transport {
	t.Helper()
	schema := schemaOf(revision)
	if schema == nil {
		t.Log("messages are not validated without the official schemas")
		return transport
	}
	methods := map[jsonrpc.ID]string{} // of requests, by the sender and the id
	return mcp.Trace(transport, func(f mcp.Frame) {
		m := f.Message
		if m == nil {
			return
		}
		method := methods[m.ID]
		if m.Kind() == jsonrpc.Request {
			methods[m.ID] = m.Method
		}
		if f.Sent && m.Kind() == jsonrpc.Request {
			m = &jsonrpc.Message{ID: m.ID, Method: m.Method, Params: withoutMeta(m.Params)}
		}
		if err := schema.Validate(m, method); err != nil {
			t.Errorf("%s, sent by the client: %t: %v", revision, f.Sent, err)
		}
	})
}

var schemas sync.Map // by revision, since compiling one takes long

func schemaOf(revision string) *mcptest.Schema {
	s, ok := schemas.Load(revision)
	if !ok {
		s, _ = mcptest.OpenSchema(mcptest.SchemaDir(), revision)
		schemas.Store(revision, s)
	}
	return s.(*mcptest.Schema)
}

// withoutMeta removes the members of _meta that the schemas define for requests in general only.
func withoutMeta(params json.RawMessage) json.RawMessage {
	var members, meta map[string]json.RawMessage
	if json.Unmarshal(params, &members) != nil || json.Unmarshal(members["_meta"], &meta) != nil {
		return params
	}
	maps.DeleteFunc(meta, func(key string, _ json.RawMessage) bool {
		return key == "com.example/own" || key == "progressToken"
	})
	members["_meta"], _ = json.Marshal(meta)
	if len(meta) == 0 {
		delete(members, "_meta")
	}
	raw, _ := json.Marshal(members)
	return raw
}

// Each feature works between clients and servers of every revision that has it, over every transport,
// and each message on both sides is valid.
func TestMatrix(t *testing.T) {
	var ran, passed atomic.Int64
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"all": featureServer(), "other": newServer("other")}, up, "{}")
		for _, f := range features() {
			if f.since != "" && (!up.Since(f.since) || !down.Since(f.since)) {
				continue
			}
			s := &seen{}
			transport := validated(t, mcptest.Transport(t, h.For(&policy.Caller{}), down.Transport), down.Revision)
			opts := s.options()
			opts.Revision = down.Revision
			c, err := mcp.Connect(t.Context(), transport, opts)
			if err != nil {
				t.Fatal(err)
			}
			f.run(t, c, s)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			ran.Add(1)
			if t.Failed() {
				t.Fatalf("feature: %s", f.name)
			}
			passed.Add(1)
		}
	})
	t.Logf("%d cells run, %d passed", ran.Load(), passed.Load())
}
