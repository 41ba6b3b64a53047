package dev_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/dev"
	"github.com/patchbay-mcp/patchbay/internal/testhome"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// A workbench has a client, the proxy, and servers that follow each other.
type workbench struct {
	t       *testing.T
	changes chan string
	client  *mcp.Client

	released chan struct{} // closed to end the calls of the tool wait

	mu      sync.Mutex // guards the fields below
	servers []*mcp.Server
	conns   []mcp.Conn
	broken  error // of the next start
	log     []string
}

func (w *workbench) start() (mcp.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return nil, w.broken
	}
	version := len(w.servers) + 1
	s := mcp.NewServer("weather", fmt.Sprint(version), nil)
	mcp.AddTool(s, &mcp.Tool{Name: "version"}, func(context.Context, struct{}) (int, error) { return version, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		<-w.released
		return "", nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		ok, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
		return fmt.Sprint(ok), err
	})
	mcp.AddResource(s, &mcp.Resource{URI: "x://a", Name: "a"},
		func(context.Context, string) (string, error) { return fmt.Sprint(version), nil })
	ours, theirs := mcp.Pipe()
	go func() { _ = mcp.Serve(context.Background(), s, theirs, nil) }()
	w.servers, w.conns = append(w.servers, s), append(w.conns, theirs)
	return ours, nil
}

func (w *workbench) breakStart(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = err
}

func (w *workbench) logged(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(strings.Join(w.log, "\n"), text)
}

// change reports a change, and waits until the server has started again.
func (w *workbench) change(name string) {
	w.changes <- name
	synctest.Wait()
}

// version calls the tool that returns the number of the process.
func (w *workbench) version() string {
	r, err := w.client.CallTool(w.t.Context(), "version", nil)
	if err != nil {
		return err.Error()
	}
	return r.Text()
}

// run runs body with a connected client, in every revision.
func run(t *testing.T, body func(t *testing.T, w *workbench)) {
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &workbench{t: t, changes: make(chan string), released: make(chan struct{})}
				clientEnd, proxyEnd := mcp.Pipe()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() {
					ended <- dev.Run(ctx, dev.Options{Client: proxyEnd, Start: w.start, Changes: w.changes,
						Log: func(line string) {
							w.mu.Lock()
							defer w.mu.Unlock()
							w.log = append(w.log, line)
						}})
				}()
				c, err := mcp.Connect(ctx, mcp.NewConnTransport(clientEnd), &mcp.ClientOptions{Revision: revision,
					Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":true}`)}, nil
					}})
				if err != nil {
					t.Fatal(err)
				}
				w.client = c
				body(t, w)
				close(w.released)
				_ = c.Close()
				if err := <-ended; err != nil {
					t.Errorf("the proxy ended with %v", err)
				}
				cancel()
			})
		})
	}
}

func TestClientStaysConnectedOverRestarts(t *testing.T) {
	run(t, func(t *testing.T, w *workbench) {
		for want := range 3 {
			if got := w.version(); got != fmt.Sprint(want+1) {
				t.Errorf("version %s, want %d", got, want+1)
			}
			w.change("main.go changed")
		}
		if !w.logged("restart: main.go changed") || !w.logged("→ tools/call version") ||
			!w.logged("← tools/call version ") {
			t.Errorf("log: %q", w.log)
		}
		r, err := w.client.CallTool(t.Context(), "ask", nil)
		if w.client.Revision() >= "2025-06-18" && (err != nil || r.Text() != "true") {
			t.Errorf("a tool that asks: %v, %v", r, err)
		}
	})
}

func TestClientLearnsOfChangedLists(t *testing.T) {
	run(t, func(t *testing.T, w *workbench) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		seen := map[mcp.EventKind]int{}
		listening := make(chan struct{})
		go func() {
			defer close(listening)
			filter := mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x://a"}}
			for e, err := range w.client.Listen(ctx, filter) {
				if err != nil {
					return
				}
				mu.Lock()
				seen[e.Kind]++
				mu.Unlock()
			}
		}()
		synctest.Wait()
		w.change("main.go changed")
		w.change("main.go changed")
		w.servers[2].ResourceUpdated("x://a") // the new process knows the subscription
		synctest.Wait()
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if seen[mcp.EventListening] != 1 || seen[mcp.EventToolsChanged] != 2 || seen[mcp.EventResourceUpdated] != 3 {
			t.Errorf("events %v, want to listen once, 2 changed lists and 3 changed resources; %q", seen, w.log)
		}
		cancel()
		<-listening
	})
}

func TestBuildErrorsAreAnswered(t *testing.T) {
	run(t, func(t *testing.T, w *workbench) {
		w.breakStart(errors.New("main.go:7: undefined: x"))
		w.change("main.go changed")
		if got := w.version(); !strings.Contains(got, "main.go:7: undefined: x") {
			t.Errorf("a call without a server: %s, want the reason", got)
		}
		w.breakStart(nil)
		w.change("main.go changed")
		if got := w.version(); got != "2" {
			t.Errorf("version %s after the error was corrected, want 2", got)
		}
	})
}

func TestInterruptedCallsFail(t *testing.T) {
	run(t, func(t *testing.T, w *workbench) {
		failed := make(chan error)
		go func() {
			_, err := w.client.CallTool(t.Context(), "wait", nil)
			failed <- err
		}()
		synctest.Wait()
		w.change("main.go changed")
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "restarted") {
			t.Errorf("a call during a restart: %v", err)
		}
		if got := w.version(); got != "2" {
			t.Errorf("version %s, want 2", got)
		}
	})
}

func TestCrashedServerStartsWithTheNextRequest(t *testing.T) {
	run(t, func(t *testing.T, w *workbench) {
		if got := w.version(); got != "1" {
			t.Fatalf("version %s, want 1", got)
		}
		_ = w.conns[0].Close()
		synctest.Wait()
		if got := w.version(); got != "2" || !w.logged("it starts again with the next request") {
			t.Errorf("version %s after a crash, want 2; %q", got, w.log)
		}
	})
}

// A client that connects before the first build has succeeded waits.
func TestFirstBuildMayFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &workbench{t: t, changes: make(chan string), broken: errors.New("syntax error")}
		clientEnd, proxyEnd := mcp.Pipe()
		ended := make(chan error)
		go func() {
			ended <- dev.Run(t.Context(), dev.Options{Client: proxyEnd, Start: w.start, Changes: w.changes,
				Log: func(string) {}})
		}()
		go func() {
			time.Sleep(5 * time.Second)
			w.breakStart(nil)
			w.changes <- "main.go changed"
		}()
		began := time.Now()
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(clientEnd), nil)
		if err != nil || time.Since(began) != 5*time.Second {
			t.Fatalf("connect: %v after %v, want 5s", err, time.Since(began))
		}
		w.client = c
		if got := w.version(); got != "1" {
			t.Errorf("version %s, want 1", got)
		}
		_ = c.Close()
		<-ended
	})
}

func TestWatcherReportsChangesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		write := func(name, text string) {
			t.Helper()
			full := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		write("main.go", "1")
		write("sub/a.go", "1")
		ctx, cancel := context.WithCancel(t.Context())
		w := &dev.Watcher{Dir: dir, Ignore: []string{"data", "sub/gen.go"}, Log: func(string) {}}
		changes := w.Changes(ctx)
		next := func() string {
			select {
			case name := <-changes:
				return name
			case <-time.After(time.Minute):
				return ""
			}
		}
		for _, test := range []struct {
			want   string
			change func()
		}{
			{"", func() {}},
			{"main.go changed", func() { write("main.go", "22") }},
			{"new.go changed", func() { write("new.go", "1") }},
			{"a.go and 1 more changed", func() { write("sub/a.go", "22"); write("sub/b.go", "1") }},
			{"new.go changed", func() { _ = os.Remove(filepath.Join(dir, "new.go")) }},
			{"", func() {
				for _, name := range []string{".git/HEAD", "node_modules/x/a.js", "build/a", ".env", "server.log", "a.db-wal",
					"data/x", "sub/gen.go"} {
					write(name, "1")
				}
			}},
			{"a.go changed", func() { // written in two steps
				write("sub/a.go", "333")
				time.Sleep(200 * time.Millisecond)
				write("sub/a.go", "4444")
			}},
			{"", func() {}},
		} {
			time.Sleep(time.Second)
			test.change()
			if got := next(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		}
		cancel()
		for range changes {
		}
	})
}
