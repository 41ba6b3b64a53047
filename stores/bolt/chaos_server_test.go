package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// A journal records what the handlers do. Each line is on the disk before the handler continues.
type journal struct{ file *os.File }

func (j journal) note(what, name string) error {
	if _, err := fmt.Fprintln(j.file, what, name); err != nil {
		return err
	}
	return j.file.Sync()
}

// work is a call: a name, and how long each part of it takes.
type work struct {
	Name   string `json:"name"`
	Millis int    `json:"millis"`
}

// part records the start and the end of some work.
func (j journal) part(ctx context.Context, what string, w work) error {
	if err := j.note(what, w.Name); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(w.Millis) * time.Millisecond):
		return j.note(what+"-end", w.Name)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// plain runs once.
func (j journal) plain(ctx context.Context, w work) (string, error) {
	return "result of " + w.Name, j.part(ctx, "run", w)
}

// ask works, asks a question, and works again.
func (j journal) ask(ctx context.Context, w work) (string, error) {
	_, err := mcp.Once(ctx, "first", func(ctx context.Context) (bool, error) { return true, j.part(ctx, "first", w) })
	if err != nil {
		return "", err
	}
	word, err := mcp.Ask[string](ctx, "word", "Which word?", nil)
	if err != nil {
		return "", err
	}
	return "result of " + w.Name + ": " + word, j.part(ctx, "second", w)
}

// serveUntilKilled serves tasks from a folder over HTTP and prints its URL. It ends at the latest
// with its parent process.
func serveUntilKilled(dir string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := serveTasks(dir); err != nil {
		fmt.Println("error:", strings.ReplaceAll(err.Error(), "\n", " "))
	}
}

func serveTasks(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, "journal"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	store, err := bolt.OpenTasks(filepath.Join(dir, "tasks.db"), nil)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	s, j := mcp.NewServer("chaos", "1", &mcp.ServerOptions{Logger: log}), journal{file}
	// Few slots, so that some tasks have not started when the server is killed.
	m := tasks.NewServer(s, &tasks.Options{
		Store: store, MaxRunning: 30, MaxTasks: 1e6, MaxPerPrincipal: 1e6, PollInterval: 50 * time.Millisecond, Logger: log,
	})
	tasks.AddTool(m, &mcp.Tool{Name: "plain"}, nil, j.plain)
	tasks.AddTool(m, &mcp.Tool{Name: "again"}, &tasks.ToolOptions{Restartable: true}, j.plain)
	tasks.AddTool(m, &mcp.Tool{Name: "ask"}, nil, j.ask)
	if err := m.Recover(context.Background()); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String() + "/mcp")
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcphttp.NewHandler(s, &mcphttp.Options{Logger: log}))
	return errors.Join(http.Serve(listener, mux), store.Close())
}
