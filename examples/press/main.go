// Command press is a server with a long-running tool: it prints a book as a task, asks the user a
// question, and continues after a restart.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

type book struct {
	Title string `json:"title"`
	Pages int    `json:"pages"`
}

func printBook(ctx context.Context, in book) (string, error) {
	hard, err := mcp.Ask[bool](ctx, "cover", "A hard cover for "+in.Title+"?", nil)
	if err != nil {
		return "", err // printBook is called again when the user has answered, perhaps days later
	}
	for page := range in.Pages {
		mcp.Progress(ctx, float64(page), float64(in.Pages), "printing")
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	return fmt.Sprintf("%s is printed, hard cover: %t", in.Title, hard), nil
}

func main() {
	store, err := bolt.OpenTasks("press.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	s := mcp.NewServer("press", "1.0.0", nil)
	m := tasks.NewServer(s, &tasks.Options{Store: store})
	tool := &mcp.Tool{Name: "print", Description: "Print a book."}
	tasks.AddTool(m, tool, &tasks.ToolOptions{Restartable: true}, printBook)
	if err := m.Recover(context.Background()); err != nil { // continue the tasks of an earlier process
		log.Fatal(err)
	}
	http.Handle("/mcp", mcphttp.NewHandler(s, nil))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}
