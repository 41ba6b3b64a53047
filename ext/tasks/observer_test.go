package tasks_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A recordingObserver numbers the requests of a server, and puts the number into detached ones.
type recordingObserver struct {
	mu   sync.Mutex // guards the fields below
	n    int
	open int
	runs []string
}

type numberKey struct{}

func (o *recordingObserver) Begin(ctx context.Context, req *mcp.Request) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.open++
	if of, ok := req.Meta("example.com/created-by"); ok && req.Detached() != nil {
		o.runs = append(o.runs, string(of))
	}
	return context.WithValue(ctx, numberKey{}, fmt.Sprintf("%q", fmt.Sprint(req.Method, " ", o.n)))
}

func (o *recordingObserver) End(context.Context, *mcp.Request, mcp.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open--
}

func (o *recordingObserver) Detached(ctx context.Context, req *mcp.Request) {
	number, _ := ctx.Value(numberKey{}).(string)
	req.SetMeta("example.com/created-by", []byte(number))
}

// Each run of a task is observed, and knows the request that created the task.
func TestObserverReceivesRunsOfTasks(t *testing.T) {
	for _, on := range mcptest.Since(revision2025) {
		t.Run(on.String(), func(t *testing.T) {
			o := &recordingObserver{}
			synctest.Test(t, func(t *testing.T) {
				s := mcp.NewServer("s", "1", &mcp.ServerOptions{Observer: o})
				ts := tasks.NewServer(s, nil)
				tasks.AddTool(ts, &mcp.Tool{Name: "meet"}, &tasks.ToolOptions{Required: true},
					func(ctx context.Context, _ struct{}) (string, error) {
						p, err := mcp.Ask[person](ctx, "me", "who are you?", nil)
						return p.Name, err
					})
				var asked []string
				c := mcptest.Dial(t, s, on, tasks.Declare(answerNames(&asked), nil))
				got, err := mcp.CallTool[string](t.Context(), c, "meet", nil)
				if err != nil || got != "Ada" {
					t.Errorf("got %q, %v", got, err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := ts.Close(ctx); err != nil {
					t.Error(err)
				}
			})
			if len(o.runs) != 2 || !strings.HasPrefix(o.runs[0], `"tools/call `) || slices.Max(o.runs) != slices.Min(o.runs) {
				t.Errorf("runs of %q, want two of the same call", o.runs)
			}
			if o.open != 0 {
				t.Errorf("%d requests have not ended", o.open)
			}
		})
	}
}
