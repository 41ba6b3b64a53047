package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// onClients runs a test with a client of every revision over every transport, in fake time.
func onClients(
	t *testing.T, h mcp.Handler, opts *mcp.ClientOptions,
	test func(t *testing.T, on mcptest.Combination, c *mcp.Client),
) {
	t.Helper()
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, on, mcptest.Dial(t, h, on, opts)) })
		})
	}
}

type sum struct {
	A int `json:"a"`
	B int `json:"b"`
}

type total struct {
	Total int `json:"total"`
}

// calculator returns a server with features of every kind.
func calculator(t testing.TB) *mcp.Server {
	s := newServer(t, &mcp.ServerOptions{PageSize: 2, Title: "Calculator", Instructions: "Use it to calculate."})
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, in sum) (total, error) {
		return total{in.A + in.B}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "double"}, func(_ context.Context, in sum) (int, error) { return 2 * in.A, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "say"}, func(_ context.Context, in named) (string, error) {
		return "I am " + in.Name, nil
	})
	addTool(s, "fail", func(context.Context) (string, error) { return "", errors.New("no result") })
	addTool(s, "refuse", func(context.Context) (string, error) { return "", mcp.Errorf(-31999, "not today") })
	addTool(s, "panic", func(context.Context) (string, error) { panic("secret") })
	addTool(s, "steps", func(ctx context.Context) (string, error) {
		for i := range 3 {
			mcp.Progress(ctx, float64(i+1), 3, fmt.Sprintf("step %d", i+1))
			mcp.Logger(ctx).Warn("stepping", "i", i)
			time.Sleep(time.Second)
		}
		return "done", nil
	})
	addTool(s, "stuck", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		who, err := mcp.Ask[named](ctx, "who", "Who are you?", nil)
		if err != nil {
			return "", err
		}
		sure, err := mcp.Ask[bool](ctx, "sure", "Sure, "+who.Name+"?", nil)
		return fmt.Sprintf("%s, %v", who.Name, sure), err
	})
	addTool(s, "think", func(ctx context.Context) (string, error) {
		r, err := mcp.Sample(ctx, "thought", &mcp.CreateMessageParams{MaxTokens: 9,
			Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("Think."))}})
		if err != nil {
			return "", err
		}
		return r.Model + ": " + r.Text(), nil
	})
	addTool(s, "where", func(ctx context.Context) (string, error) {
		roots, err := mcp.Roots(ctx)
		if err != nil {
			return "", err
		}
		return roots[0].URI, nil
	})
	addText(s, "mem://one", "eins")
	addText(s, "mem://two", "zwei")
	addText(s, "mem://three", "drei")
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "mem://n/{n}", Name: "n"},
		func(_ context.Context, v struct {
			N string `json:"n"`
		}) (string, error) {
			return "number " + v.N, nil
		})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "greet"}, func(_ context.Context, in struct {
		Who  string `json:"who"`
		Tone string `json:"tone,omitempty" jsonschema:"tone,enum=formal|friendly"`
	}) (string, error) {
		return "Greet " + in.Who, nil
	})
	return s
}

// collect returns the names of all items of a list.
func collect[V any](t *testing.T, seq func(yield func(*V, error) bool), name func(*V) string) (names []string) {
	t.Helper()
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name(v))
	}
	return names
}

// Requirement: PAG-06
func TestListsReturnAllPages(t *testing.T) {
	onClients(t, calculator(t), nil, func(t *testing.T, _ mcptest.Combination, c *mcp.Client) {
		tools := collect(t, c.Tools(t.Context()), func(v *mcp.Tool) string { return v.Name })
		resources := collect(t, c.Resources(t.Context()), func(v *mcp.Resource) string { return v.URI })
		templates := collect(t, c.ResourceTemplates(t.Context()), func(v *mcp.ResourceTemplate) string {
			return v.URITemplate
		})
		prompts := collect(t, c.Prompts(t.Context()), func(v *mcp.Prompt) string { return v.Name })
		got := fmt.Sprint(tools, resources, templates, prompts)
		want := "[add ask double fail panic refuse say steps stuck think where] " +
			"[mem://one mem://three mem://two] [mem://n/{n}] [greet]"
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		for range c.Tools(t.Context()) {
			break // must not leak
		}
	})
}

// Requirement: VER-23
func TestClientDescribesItsServer(t *testing.T) {
	onClients(t, calculator(t), nil, func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
		caps := c.Capabilities()
		if c.Revision() != on.Revision || c.ServerInfo().Name != "test" ||
			c.Instructions() != "Use it to calculate." || caps.Tools == nil || caps.Resources == nil {
			t.Errorf("got %s, %+v, %q, %+v, want the revision, name, instructions and capabilities of the server",
				c.Revision(), c.ServerInfo(), c.Instructions(), caps)
		}
		if !slices.Contains(c.SupportedRevisions(), on.Revision) {
			t.Errorf("got supported revisions %q, want %s among them", c.SupportedRevisions(), on.Revision)
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Errorf("ping: %v", err)
		}
	})
}

// Requirement: TOOL-14
func TestCallToolDecodesResults(t *testing.T) {
	onClients(t, calculator(t), nil, func(t *testing.T, _ mcptest.Combination, c *mcp.Client) {
		ctx := t.Context()
		for range c.Tools(ctx) { // loads the output schemas, which results are validated with
		}
		if got, err := mcp.CallTool[total](ctx, c, "add", sum{1, 2}); err != nil || got.Total != 3 {
			t.Errorf("add: %v, %v", got, err)
		}
		if got, err := mcp.CallTool[int](ctx, c, "double", sum{A: 21}); err != nil || got != 42 {
			t.Errorf("double: %v, %v", got, err)
		}
		if got, err := mcp.CallTool[string](ctx, c, "say", json.RawMessage(`{"name":"Ada"}`)); err != nil ||
			got != "I am Ada" {
			t.Errorf("say: %v, %v", got, err)
		}
		var failed *mcp.ToolError
		if _, err := mcp.CallTool[string](ctx, c, "fail", nil); !errors.As(err, &failed) ||
			failed.Error() != `tool "fail" failed: no result` {
			t.Errorf("fail: %v", err)
		}
		if r, err := c.CallTool(ctx, "fail", nil); err != nil || !r.IsError || r.Text() != "no result" {
			t.Errorf("fail, as a result: %+v, %v", r, err)
		}
		var protocolErr *mcp.Error
		if _, err := mcp.CallTool[string](ctx, c, "refuse", nil); !errors.As(err, &protocolErr) ||
			protocolErr.Code != -31999 || !protocolErr.Remote() {
			t.Errorf("refuse: %v", err)
		}
		if _, err := mcp.CallTool[string](ctx, c, "panic", nil); !errors.As(err, &protocolErr) ||
			protocolErr.Code != mcp.CodeInternalError || strings.Contains(err.Error(), "secret") {
			t.Errorf("panic: %v", err)
		}
		if _, err := mcp.CallTool[string](ctx, c, "unknown", nil); !errors.As(err, &protocolErr) ||
			protocolErr.Code != mcp.CodeInvalidParams {
			t.Errorf("unknown tool: got %v, want code -32602", err)
		}
		for _, args := range []any{5, []int{1}, json.RawMessage(`{"a":`), make(chan int)} {
			if _, err := c.CallTool(ctx, "add", args); err == nil || errors.As(err, &protocolErr) {
				t.Errorf("arguments %v: got error %v, want one of the client", args, err)
			}
		}
	})
}

// Requirement: RES-02
func TestResourcesPromptsAndCompletion(t *testing.T) {
	onClients(t, calculator(t), nil, func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
		ctx := t.Context()
		r, err := c.ReadResource(ctx, "mem://two")
		if err != nil || r.Contents[0].Text != "zwei" {
			t.Errorf("read: %v, %v", r, err)
		}
		r, err = c.ReadResource(ctx, "mem://n/7")
		if err != nil || r.Contents[0].Text != "number 7" {
			t.Errorf("read from a template: %v, %v", r, err)
		}
		var protocolErr *mcp.Error
		if _, err = c.ReadResource(ctx, "mem://none"); !errors.As(err, &protocolErr) ||
			protocolErr.Code != mcp.CodeInvalidParams || !protocolErr.Remote() {
			t.Errorf("unknown resource: got %v, want code -32602 of the server", err)
		}
		p, err := c.GetPrompt(ctx, "greet", map[string]string{"who": "Ada"})
		if err != nil || p.Messages[0].Content.(*mcp.TextContent).Text != "Greet Ada" {
			t.Errorf("prompt: %v, %v", p, err)
		}
		v, err := c.Complete(ctx, &mcp.CompleteParams{
			Prompt:   "greet",
			Argument: "tone", Value: "f",
			Arguments: map[string]string{"who": "Ada"},
		})
		if err != nil || !slices.Equal(v.Values, []string{"formal", "friendly"}) {
			t.Errorf("complete: %v, %v", v, err)
		}
		withoutRef := &mcp.CompleteParams{Argument: "tone", Value: "f"}
		if _, err = c.Complete(ctx, withoutRef); err == nil {
			t.Error("Complete without a reference: got no error")
		}
	})
}

// Requirement: PROG-03, PROG-04
func TestUpdatesArriveInOrderBeforeTheResult(t *testing.T) {
	onClients(t, calculator(t), nil, func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
		var got []string
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(p mcp.ProgressUpdate) {
			got = append(got, fmt.Sprintf("%v/%v %s", p.Progress, *p.Total, p.Message))
		}})
		if _, err := c.CallTool(ctx, "steps", nil); err != nil {
			t.Fatal(err)
		}
		want := []string{"1/3 step 1", "2/3 step 2", "3/3 step 3"}
		if !on.Since("2025-03-26") { // updates have no message
			want = []string{"1/3 ", "2/3 ", "3/3 "}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestLogMessagesReachTheHandler(t *testing.T) {
	var mu sync.Mutex
	var got []string
	opts := &mcp.ClientOptions{LogLevel: "warning", Log: func(_ context.Context, m *mcp.LoggingMessage) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(m.Level)+" "+m.Text())
	}}
	onClients(t, calculator(t), opts, func(t *testing.T, _ mcptest.Combination, c *mcp.Client) {
		mu.Lock()
		got = nil
		mu.Unlock()
		if _, err := c.CallTool(t.Context(), "steps", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(got) != 3 || got[0] != "warning stepping" {
			t.Errorf("got messages %q, want 3 of warning stepping", got)
		}
	})
}

// acceptingOptions are those of a client that accepts all input requests and records them.
func acceptingOptions(asked *[]string, mu *sync.Mutex) *mcp.ClientOptions {
	record := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		*asked = append(*asked, what)
	}
	return &mcp.ClientOptions{
		Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			record(p.Message)
			if strings.HasPrefix(p.Message, "Who") {
				return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"name":"Ada"}`)}, nil
			}
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":true}`)}, nil
		},
		Sample: func(_ context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			record(fmt.Sprint(p.MaxTokens))
			return &mcp.CreateMessageResult{Model: "m1", StopReason: "endTurn",
				Content: []mcp.ContentBlock{mcp.Text("hm")}}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) {
			record("roots")
			return []mcp.Root{{URI: "file:///home"}}, nil
		},
	}
}

// Requirement: MRTR-07
func TestClientAnswersInEveryRevision(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	opts := acceptingOptions(&asked, &mu)
	onClients(t, calculator(t), opts, func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
		mu.Lock()
		asked = nil
		mu.Unlock()
		if on.Since("2025-06-18") {
			if got, err := mcp.CallTool[string](t.Context(), c, "ask", nil); err != nil || got != "Ada, true" {
				t.Errorf("ask: %q, %v", got, err)
			}
		}
		if got, err := mcp.CallTool[string](t.Context(), c, "think", nil); err != nil || got != "m1: hm" {
			t.Errorf("think: %q, %v", got, err)
		}
		if got, err := mcp.CallTool[string](t.Context(), c, "where", nil); err != nil || got != "file:///home" {
			t.Errorf("where: %q, %v", got, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := "Who are you?,Sure, Ada?,9,roots"; !strings.HasSuffix(want, strings.Join(asked, ",")) {
			t.Errorf("asked %q, want %q", asked, want)
		}
	})
}

// Requirement: ELI-02, ELI-04
func TestUndeclaredInputIsNotRequested(t *testing.T) {
	onClients(t, calculator(t), nil, func(t *testing.T, _ mcptest.Combination, c *mcp.Client) {
		for _, tool := range []string{"ask", "think", "where"} {
			var protocolErr *mcp.Error
			if _, err := c.CallTool(t.Context(), tool, nil); !errors.As(err, &protocolErr) || !protocolErr.Remote() {
				t.Errorf("%s: got %v, want an error of the server", tool, err)
			}
		}
	})
}

// Requirement: CAN-10, CAN-11
func TestEndOfTheContextCancelsTheCall(t *testing.T) {
	s := newServer(t, nil)
	running, cancelled := make(chan struct{}, 1), make(chan error, 1)
	addTool(s, "stuck", func(ctx context.Context) (string, error) {
		running <- struct{}{}
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		return "", ctx.Err()
	})
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			mcptest.NoLeaks(t)
			c := mcptest.Dial(t, s, on, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			reason := errors.New("call is no longer needed")
			go func() {
				<-running
				cancel(reason)
			}()
			_, err := c.CallTool(ctx, "stuck", nil)
			var failed *mcp.TransportError
			if !errors.As(err, &failed) || !failed.MayHaveRun || !errors.Is(err, reason) {
				t.Errorf("got %v, want a TransportError with MayHaveRun and cause %v", err, reason)
			}
			select {
			case cause := <-cancelled:
				if strings.Contains(cause.Error(), reason.Error()) && on.Transport != mcptest.InMemory {
					t.Errorf("cause at the server: got %v, want none of the client's text", cause)
				}
			case <-time.After(10 * time.Second):
				t.Error("the context of the handler has not ended")
			}
			if err := c.Ping(t.Context()); err != nil {
				t.Errorf("ping after the cancellation: %v", err)
			}
		})
	}
}

// Requirement: LIFE-19
func TestProgressResetsTheTimeoutButNotTheMaximum(t *testing.T) {
	onClients(t, calculator(t), nil, func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
		call := func(tool string, o mcp.CallOptions) (time.Duration, error) {
			began := time.Now()
			_, err := c.CallTool(mcp.WithCallOptions(t.Context(), o), tool, nil)
			return time.Since(began), err
		}
		ignore := func(mcp.ProgressUpdate) {}
		took, err := call("steps", mcp.CallOptions{Timeout: 1500 * time.Millisecond, Progress: ignore})
		if err != nil || took != 3*time.Second {
			t.Errorf("with progress: got error %v after %v, want none after 3s", err, took)
		}
		for _, o := range []mcp.CallOptions{
			{Timeout: 1500 * time.Millisecond},
			{Timeout: 1200 * time.Millisecond, MaxTimeout: 1500 * time.Millisecond, Progress: ignore},
		} {
			if on.Transport == mcptest.InMemory && on.Modern() {
				continue // in memory, the call waits for the handler, which ignores its context
			}
			took, err := call("steps", o)
			var failed *mcp.TransportError
			if !errors.Is(err, mcp.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) ||
				!errors.As(err, &failed) || !failed.MayHaveRun || took > 1600*time.Millisecond {
				t.Errorf("%+v: got error %v after %v, want ErrTimeout with MayHaveRun within 1.6s", o, err, took)
			}
			time.Sleep(5 * time.Second) // the tool ends
		}
	})
}

func TestInputHandlersPauseTheTimeout(t *testing.T) {
	declineSlowly := func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		time.Sleep(4 * time.Minute)
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
	}
	opts := &mcp.ClientOptions{Timeout: time.Minute, Elicit: declineSlowly}
	onClients(t, calculator(t), opts, func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
		if !on.Since("2025-06-18") {
			return
		}
		if r, err := c.CallTool(t.Context(), "ask", nil); err != nil || !r.IsError {
			t.Errorf("got %+v, %v, want the declined call as a tool error", r, err)
		}
	})
}

func TestCloseEndsRequestsInProgress(t *testing.T) {
	s := newServer(t, nil)
	running := make(chan struct{}, 2)
	addTool(s, "stuck", func(ctx context.Context) (string, error) {
		running <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	})
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			mcptest.NoLeaks(t)
			c := mcptest.Dial(t, s, on, nil)
			failed := make(chan error, 1)
			go func() {
				_, err := c.CallTool(context.Background(), "stuck", nil)
				failed <- err
			}()
			<-running
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err := <-failed; !errors.Is(err, mcp.ErrClosed) {
				t.Errorf("call in progress: got %v, want ErrClosed", err)
			}
			if _, err := c.CallTool(context.Background(), "stuck", nil); !errors.Is(err, mcp.ErrClosed) {
				t.Errorf("call after Close: got %v, want ErrClosed", err)
			}
			for _, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
				if !errors.Is(err, mcp.ErrClosed) {
					t.Errorf("Listen after Close: got %v, want ErrClosed", err)
				}
			}
		})
	}
}

func TestListenReportsChangesInEveryRevision(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := calculator(t)
				c := mcptest.Dial(t, s, on, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var got []string
				filter := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"mem://one"}}
				for e, err := range c.Listen(ctx, filter) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, strings.TrimSpace(e.Kind.String()+" "+e.URI))
					switch len(got) {
					case 1:
						if !e.Filter.ToolsListChanged ||
							!slices.Equal(e.Filter.ResourceSubscriptions, filter.ResourceSubscriptions) {
							t.Errorf("got filter %+v, want tools and mem://one", e.Filter)
						}
						s.ResourceUpdated("mem://two")
						s.ResourceUpdated("mem://one")
					case 2:
						addTool(s, "new", func(context.Context) (string, error) { return "", nil })
					case 3:
						cancel()
					}
				}
				if want := "[listening resource updated mem://one tools changed]"; fmt.Sprint(got) != want {
					t.Errorf("got %v, want %v", got, want)
				}
			})
		})
	}
}

// Requirement: CAN-06, CAN-07
func TestResponseThatCrossesTheCancellationIsIgnored(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			s := mcp.NewServer("test", "1.0.0", nil)
			var started atomic.Pointer[context.CancelFunc]
			addTool(s, "now", func(context.Context) (string, error) {
				go (*started.Load())()
				return "done", nil
			})
			c := mcptest.Dial(t, s, on, nil)
			for range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				started.Store(&cancel)
				if _, err := c.CallTool(ctx, "now", nil); err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				cancel()
			}
		})
	}
}
