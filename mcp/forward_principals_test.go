package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A forwarder is what package host sees of the Handler that Forward returns.
type forwarder interface {
	mcp.Handler
	driver.Forwarder[*mcp.Request, mcp.Result]
}

// requestsOf returns a handler that serves requests as those of a principal.
func requestsOf(principal string, h mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		own := *req
		own.Principal = &mcp.Principal{Subject: principal}
		return h.ServeMCP(ctx, &own)
	})
}

// samplingServer has a tool that asks for a message a second after it was called.
func samplingServer(t *testing.T) *mcp.Server {
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "sample"}, func(ctx context.Context, in struct{ For string }) (string, error) {
		time.Sleep(time.Second)

		mcp.Logger(ctx).Info("for " + in.For)
		res, err := mcp.Sample(ctx, "q", &mcp.CreateMessageParams{MaxTokens: 1, SystemPrompt: in.For,
			Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("?")}}}})
		if err != nil {
			return "", err
		}
		return res.Model, nil
	})
	return s
}

// A principal answers questions with its own name, and records what reached it.
type principal struct {
	name string
	*mcp.Client

	mu  sync.Mutex
	got []string // questions and log messages
}

func (p *principal) record(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, text)
}

func dialPrincipal(t *testing.T, h mcp.Handler, on mcptest.Combination, name string) *principal {
	p := &principal{name: name}
	p.Client = mcptest.Dial(t, requestsOf(name, h), on, &mcp.ClientOptions{
		Sample: func(_ context.Context, params *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			p.record(params.SystemPrompt)
			return &mcp.CreateMessageResult{Model: name, Content: []mcp.ContentBlock{mcp.Text(".")}}, nil
		},
		Log: func(_ context.Context, m *mcp.LoggingMessage) { p.record(m.Text()) },
	})
	return p
}

// Two principals have calls in progress. A question and a log message reach the principal whose call
// they belong to, if the transport shows that, else nobody.
func TestForwardKeepsPrincipalsApart(t *testing.T) {
	s := samplingServer(t)
	for _, on := range mcptest.Combinations() {
		for _, revision := range mcptest.Revisions() {
			t.Run(on.String()+" to "+revision, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					upstream := mcptest.Combination{Transport: on.Transport, Revision: revision}
					h := mcp.Forward(mcptest.Dial(t, s, upstream, &mcp.ClientOptions{ForwardInput: true}))
					exact := revision == mcptest.Modern || on.OverHTTP()
					var calls sync.WaitGroup
					for _, name := range []string{"ann", "bob"} {
						p := dialPrincipal(t, h, on, name)
						calls.Go(func() {
							res, err := p.CallTool(t.Context(), "sample", map[string]any{"For": name})
							text := ""
							if err == nil && !res.IsError {
								text = decode[toolResult](t, encode(t, res)).text()
							}
							if text != name && (exact || text != "") {
								t.Errorf("%s: got %q, %v, want the own answer (or an error: %t)", name, text, err, !exact)
							}
							time.Sleep(time.Second) // until late log messages have arrived
							p.mu.Lock()
							defer p.mu.Unlock()
							for _, got := range p.got {
								if got != name && got != "for "+name {
									t.Errorf("%s received %q", name, got)
								}
							}
							if exact && len(p.got) == 0 {
								t.Errorf("%s received nothing", name)
							}
						})
					}
					calls.Wait()
				})
			})
		}
	}
}

func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// The functions of the options answer questions that belong to no forwarded request.
func TestForwardInputHasDefaults(t *testing.T) {
	s := samplingServer(t)
	for _, on := range mcptest.Before(mcptest.Modern) {
		synctest.Test(t, func(t *testing.T) {
			upstream := mcptest.Dial(t, s, on, &mcp.ClientOptions{ForwardInput: true,
				Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
					return &mcp.CreateMessageResult{Model: "own", Content: []mcp.ContentBlock{mcp.Text(".")}}, nil
				}})
			got, err := mcp.CallTool[string](t.Context(), upstream, "sample", map[string]any{"For": "me"})
			if err != nil || got != "own" {
				t.Errorf("%s: got %q, %v, want the answer of the options", on, got, err)
			}
			// With a forwarded call in progress, only a stream shows that the question is not of that call.
			p := dialPrincipal(t, mcp.Forward(upstream), on, "ann")
			var calls sync.WaitGroup
			calls.Go(func() { _, _ = p.CallTool(t.Context(), "sample", map[string]any{"For": "ann"}) })
			got, err = mcp.CallTool[string](t.Context(), upstream, "sample", map[string]any{"For": "me"})
			if on.OverHTTP() && (err != nil || got != "own") {
				t.Errorf("%s: got %q, %v, want the answer of the options", on, got, err)
			}
			calls.Wait()
		})
	}
}

// What sessions declare can be chosen. A client that lacks it looks like a user who dismisses the
// question.
func TestForwardCapabilities(t *testing.T) {
	s := newServer(t, nil)
	var declared mcp.ClientCapabilities
	addTool(s, "declared", func(ctx context.Context) (string, error) {
		declared = mcp.RequestFrom(ctx).Capabilities()
		return "", nil
	})
	addTool(s, "ask", func(ctx context.Context) (string, error) {
		_, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
		return fmt.Sprint(err), nil
	})
	yes := &struct{}{}
	for _, on := range mcptest.Since("2025-06-18") {
		if on.Revision == mcptest.Modern {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			upstream := mcptest.Dial(t, s, on, &mcp.ClientOptions{ForwardInput: true, ForwardCapabilities: &mcp.ClientCapabilities{
				Elicitation: &mcp.ElicitationCapability{Form: yes}, Extensions: map[string]json.RawMessage{"com.example/x": nil},
			}})
			c := mcptest.Connect(t, mcp.Forward(upstream), mcptest.Combination{Transport: on.Transport, Revision: mcptest.Modern},
				&mcptest.Options{Capabilities: object{}})
			c.Call("tools/call", object{"name": "declared"})
			if declared.Elicitation == nil || declared.Roots != nil || declared.Sampling != nil || declared.Extensions != nil {
				t.Errorf("%s: the server saw %+v, want elicitation only", on, declared)
			}
			got := decode[toolResult](t, c.Call("tools/call", object{"name": "ask"}))
			if !strings.HasSuffix(got.text(), mcp.ErrDismissed.Error()) {
				t.Errorf("%s: got %s, want a dismissed question", on, got.text())
			}
		})
	}
}
