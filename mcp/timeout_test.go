package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestOnRequestDoneRunsBeforeTheRequestReturns(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "ask", func(ctx context.Context) (string, error) {
		type form struct {
			Name string `json:"name"`
		}
		answer, err := mcp.Ask[form](ctx, "name", "who are you?", nil)
		return answer.Name, err
	})
	for name, answer := range map[string]func(cancel func()) (*mcp.ElicitResult, error){
		"answered": func(func()) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"name":"Ada"}`)}, nil
		},
		"not answered": func(func()) (*mcp.ElicitResult, error) { return nil, errors.New("no user") },
		"cancelled": func(cancel func()) (*mcp.ElicitResult, error) {
			cancel()
			return nil, context.Canceled
		},
	} {
		for _, on := range mcptest.Since(mcptest.Modern) {
			t.Run(name+" "+on.String(), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var done []string
				var rounds int
				var last context.Context
				c := mcptest.Dial(t, s, on, &mcp.ClientOptions{
					Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						if len(done) != 0 {
							t.Errorf("got %q before the request was done, want none", done)
						}
						return answer(cancel)
					},
					Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
						return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
							if req.Method == "tools/call" {
								rounds++
								driver.OnRequestDone(ctx, func() { done = append(done, fmt.Sprint(rounds)) })
								driver.OnRequestDone(ctx, func() { done = append(done, "last") })
								last = ctx
							}
							return next.ServeMCP(ctx, req)
						})
					}},
				})
				_, err := c.CallTool(ctx, "ask", nil)
				want := []string{"last", "1"}
				if name == "answered" {
					want = []string{"last", "2", "last", "2"}
				}
				if (err == nil) != (name == "answered") || !slices.Equal(done, want) {
					t.Errorf("done %q, %v; want %q", done, err, want)
				}
				late := 0
				driver.OnRequestDone(last, func() { late++ })
				if late != 1 {
					t.Errorf("OnRequestDone after the request: got %d calls, want 1", late)
				}
			})
		}
	}
	driver.OnRequestDone(t.Context(), func() { t.Error("OnRequestDone called its function without a request") })
}
