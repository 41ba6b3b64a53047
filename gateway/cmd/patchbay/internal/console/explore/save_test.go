package explore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/check"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newClockServer returns a server whose results contain a time and an id, and a price that may
// change.
func newClockServer(revision string, price *atomic.Int64) *mcp.Server {
	s := mcp.NewServer("clock", "1", &mcp.ServerOptions{Revisions: []string{revision}})
	n := 0
	type order struct {
		ID    int    `json:"orderId"`
		At    string `json:"createdAt"`
		Item  string `json:"item"`
		Price int64  `json:"price"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "order"}, func(_ context.Context, in struct {
		Item string `json:"item"`
	}) (order, error) {
		n++
		return order{n, time.Now().String(), in.Item, price.Load()}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "now"}, func(context.Context, struct{}) (string, error) {
		return fmt.Sprintf("It is %s, and the price is %d.", time.Now().Format(time.RFC3339Nano), price.Load()), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "fail"}, func(context.Context, struct{}) (string, error) {
		return "", mcp.Errorf(4001, "out of order")
	})
	return s
}

// A saver is a visitor whose server is the clock, and the file of saved calls.
type saver struct {
	*consoletest.Visitor
	t    *testing.T
	file string
}

func newSaver(t *testing.T, server *mcp.Server) *saver {
	t.Helper()
	v := &saver{t: t}
	v.Visitor = consoletest.New(t, func(o *console.Options) {
		v.file = o.Checks
		o.Connect = func(context.Context, string, *mcp.Principal) (mcp.Transport, error) {
			return mcp.InMemory(server), nil
		}
		mask := o.Mask
		o.Mask = func(text string) string { return strings.ReplaceAll(mask(text), "s3cret", "***") }
	}).Visitor()
	v.Await("/explore?server=fs", "name=order")
	return v
}

// run runs a tool and returns the ID of the run at its end.
func (v *saver) run(tool, arguments string) string {
	v.t.Helper()
	at := v.Post("/explore/run", url.Values{"at-server": {"fs"}, "at-kind": {"tools"}, "at-name": {tool},
		"at-timeout": {"60"}, "mode": {"json"}, "text": {arguments}, "do": {"run"}})
	v.Await(at, "Save as a call")
	return runID.FindStringSubmatch(at)[1]
}

// check runs the saved calls against a server and returns how many passed and the problems.
func (v *saver) check(server *mcp.Server) (passed int, problems string) {
	v.t.Helper()
	f, err := check.Load(v.file)
	if err != nil {
		v.t.Fatal(err)
	}
	report, err := f.Run(v.t.Context(), &check.Options{
		Dial: func(ctx context.Context, _ string, adjust func(*mcp.ClientOptions)) (*mcp.Client, error) {
			var o mcp.ClientOptions
			adjust(&o)
			return mcp.Connect(ctx, mcp.InMemory(server), &o)
		},
		Close:  func(c *mcp.Client) { _ = c.Close() },
		Answer: func(context.Context, string) error { return nil },
		Mask:   func(text string) string { return text },
	})
	if err != nil {
		v.t.Fatal(err)
	}
	for _, o := range report.Calls {
		problems += o.Text("f") + "\n"
	}
	return report.Passed, problems
}

// A saved call passes although its times and ids differ, and fails after a change of its content.
func TestSavedCallsAreChecked(t *testing.T) {
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			mcptest.NoLeaks(t)
			var price atomic.Int64
			price.Store(7)
			server := newClockServer(revision, &price)
			v := newSaver(t, server)
			runs := []string{v.run("order", `{"item":"a ${B} cup"}`), v.run("now", `{}`), v.run("fail", `{}`)}
			page := v.See("/explore/save?run=" + runs[0])
			for _, want := range []string{v.file, "The file does not exist", `value="order"`} {
				if !strings.Contains(page, want) {
					t.Errorf("the page lacks %q:\n%s", want, page)
				}
			}
			if _, err := os.Stat(v.file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file exists before it is saved: %v", err)
			}
			for i, name := range []string{"order a cup", "now", "fail"} {
				v.Post("/explore/save", url.Values{"run": {runs[i]}, "name": {name}, "expect": {"yes"}})
			}
			if page := v.See("/explore?server=fs&name=order&run=" + runs[0]); !strings.Contains(page, "Saved as") {
				t.Errorf("the run does not name the saved call:\n%s", page)
			}
			text, err := os.ReadFile(v.file)
			if err != nil || !strings.Contains(string(text), `"target": "fs"`) || strings.Contains(string(text), "T0") {
				t.Errorf("got %v and %s", err, text)
			}
			if passed, problems := v.check(server); passed != 3 {
				t.Errorf("%d of 3 calls passed:\n%s%s", passed, problems, text)
			}
			price.Store(8)
			if passed, problems := v.check(server); passed != 1 || !strings.Contains(problems, "8") {
				t.Errorf("after a change %d calls passed, want 1:\n%s", passed, problems)
			}
		})
	}
}

// The file keeps its content, and never receives a secret, a second call of a name or a call
// of another server.
func TestCallsAreNotSaved(t *testing.T) {
	mcptest.NoLeaks(t)
	v := newSaver(t, newClockServer(mcptest.Modern, new(atomic.Int64)))
	id, secret := v.run("order", `{"item":"cup"}`), v.run("order", `{"item":"s3cret"}`)
	v.Post("/explore/save", url.Values{"run": {id}, "name": {"cup"}})
	before, err := os.ReadFile(v.file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(before), "expect") {
		t.Errorf("the call has assertions: %s", before)
	}
	refused := func(id, name, want string) {
		t.Helper()
		res, text := v.Send(http.MethodPost, "/explore/save", url.Values{"run": {id}, "name": {name}})
		now, err := os.ReadFile(v.file)
		if res.StatusCode < 400 || !strings.Contains(text, want) || err != nil || string(now) != string(before) {
			t.Errorf("%s, %s: got %d, %v, %s\n%s", id, name, res.StatusCode, err, now, text)
		}
	}
	refused(id, "cup", "duplicate name")
	refused(id, "", "name")
	refused(secret, "secret", "contains a secret")
	refused("99", "x", "not among the last")
	other, err := json.Marshal(map[string]any{"checks": 1, "target": "other", "calls": []any{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v.file, other, 0o600); err != nil {
		t.Fatal(err)
	}
	before = other
	refused(id, "x", "is for another server")
	page := v.See("/explore/save?run=" + id)
	if !strings.Contains(page, filepath.Base(v.file)+" is for another server") {
		t.Errorf("the page does not name the reason:\n%s", page)
	}
}
