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

// A journal records the steps of the handlers. Each line is on the disk before the handler
// continues.
type journal struct{ file *os.File }

func (j journal) write(event, name string) error {
	if _, err := fmt.Fprintln(j.file, event, name); err != nil {
		return err
	}
	return j.file.Sync()
}

// callArguments are the arguments of the tools: a name, and the duration of each step.
type callArguments struct {
	Name   string `json:"name"`
	Millis int    `json:"millis"`
}

// step waits for the duration of a step, and records its start and its end.
func (j journal) step(ctx context.Context, event string, args callArguments) error {
	if err := j.write(event, args.Name); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(args.Millis) * time.Millisecond):
		return j.write(event+"-end", args.Name)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// plain is the handler of a tool with one step.
func (j journal) plain(ctx context.Context, args callArguments) (string, error) {
	return "result of " + args.Name, j.step(ctx, "run", args)
}

// ask is the handler of a tool with two steps, and an elicitation between them.
func (j journal) ask(ctx context.Context, args callArguments) (string, error) {
	_, err := mcp.Once(ctx, "first", func(ctx context.Context) (bool, error) {
		return true, j.step(ctx, "first", args)
	})
	if err != nil {
		return "", err
	}
	word, err := mcp.Ask[string](ctx, "word", "Which word?", nil)
	if err != nil {
		return "", err
	}
	return "result of " + args.Name + ": " + word, j.step(ctx, "second", args)
}

// serveUntilKilled serves tasks from a folder over HTTP and prints its URL. It exits when its
// parent process has exited.
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
	m := tasks.NewServer(s, &tasks.Options{
		Store: store, MaxTasks: 1e6, MaxPerPrincipal: 1e6, PollInterval: 50 * time.Millisecond, Logger: log,
		MaxRunning: 30, // so that some tasks have not started when the server is killed
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
