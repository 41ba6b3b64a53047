// Command builds is a build server whose clients receive each finished build as an event. With the
// argument "watch" it is such a client.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

type filter struct {
	Branch string `json:"branch,omitzero" jsonschema:"only builds of this branch"`
}

type build struct {
	Number int64  `json:"number"`
	Branch string `json:"branch"`
	Passed bool   `json:"passed"`
}

func main() {
	run := serve
	if len(os.Args) > 1 && os.Args[1] == "watch" {
		run = watch
	}
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func serve(context.Context) error {
	s := mcp.NewServer("builds", "1.0.0", nil)
	finished := events.Add(events.NewServer(s, nil), &events.Event{
		Name: "build.finished", Description: "A build passed or failed.",
	}, events.Source[filter, build]{
		Match: func(_ context.Context, f filter, b build) bool { return f.Branch == "" || f.Branch == b.Branch },
	})
	var last atomic.Int64
	tool := &mcp.Tool{Name: "build", Description: "Start a build of a branch."}
	mcp.AddTool(s, tool, func(_ context.Context, in struct {
		Branch string `json:"branch"`
	}) (string, error) {
		b := build{Number: last.Add(1), Branch: in.Branch}
		time.AfterFunc(5*time.Second, func() {
			b.Passed = b.Number%3 != 0
			o := events.Occurrence[build]{ID: fmt.Sprint("build-", b.Number), Data: b}
			if err := finished.Emit(o); err != nil {
				log.Print(err)
			}
		})
		return fmt.Sprintf("build %d started", b.Number), nil
	})
	http.Handle("/mcp", mcphttp.NewHandler(s, nil))
	return http.ListenAndServe("127.0.0.1:8080", nil)
}

func watch(ctx context.Context) error {
	c, err := mcp.Connect(ctx, mcphttp.NewTransport("http://127.0.0.1:8080/mcp", nil), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	opts := &events.SubscribeOptions{
		Gap:    func() { log.Print("builds were missed") },
		Failed: func(err error) { log.Print("still trying: ", err) },
	}
	for o, err := range events.Subscribe[build](ctx, c, "build.finished", filter{Branch: "main"}, opts) {
		if err != nil {
			return err
		}
		fmt.Printf("build %d of %s: passed %t\n", o.Data.Number, o.Data.Branch, o.Data.Passed)
	}
	return nil
}
