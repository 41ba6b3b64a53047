package host_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Of many callers that are asked at the same time, each gets the question of its own call, and each call
// the answer of its own caller: with instances of their own, and with one that all use. Where the
// protocol does not tell whose question it is, it is asked of no other caller.
func TestTrapQuestionOrAnswerToTheWrongCaller(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, share := range []string{"caller", "shared"} {
		t.Run(share, func(t *testing.T) {
			forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
				if up.Since("2025-06-18") && down.Since("2025-06-18") { // has elicitation
					askAtTheSameTime(t, share, up, down)
				}
			})
		})
	}
}

func askAtTheSameTime(t *testing.T, share string, up, down mcptest.Combination) {
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, in struct{ Name string }) (string, error) {
		answer, err := mcp.Ask[string](ctx, "q", "Are you "+in.Name+"?", nil)
		return in.Name + " is " + answer, err
	})
	h := newHost(t, map[string]mcp.Handler{"s": s, "other": newServer("other")}, up,
		`{"servers":{"s":{"share":"`+share+`"}}}`)
	var answered atomic.Int64
	var all sync.WaitGroup
	for n := range 6 {
		name := fmt.Sprint("p", n/2) // two clients of each principal
		c := mcptest.Dial(t, h.For(&policy.Caller{Principal: principal(name), Session: fmt.Sprint(n)}), down,
			&mcp.ClientOptions{Timeout: time.Hour,
				Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					if want := "[s] Are you " + name + "?"; p.Message != want {
						t.Errorf("%s was asked %q", name, p.Message)
					}
					time.Sleep(time.Duration(6-n) * time.Second)
					return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":"` + name + `"}`)}, nil
				}})
		all.Go(func() {
			r, err := c.CallTool(t.Context(), "s__ask", map[string]any{"Name": name})
			switch {
			case err == nil && !r.IsError && r.Text() != name+" is "+name:
				t.Errorf("%s: got %q", name, r.Text())
			case err == nil && !r.IsError:
				answered.Add(1)
			case share == "caller":
				t.Errorf("%s: got %+v, %v", name, r, err)
			}
		})
	}
	all.Wait()
	exact := up.Modern() || up.Transport == mcptest.HTTP || share == "caller"
	if exact && answered.Load() != 6 {
		t.Errorf("%d of 6 calls got the answer of their caller", answered.Load())
	}
}
