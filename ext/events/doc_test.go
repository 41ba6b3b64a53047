package events_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// TestDocEvents runs the code of the package comment: a server that announces builds, and its client.
func TestDocEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := mcp.NewServer("ci", "1.0.0", nil)
		type Filter struct {
			Branch string `json:"branch,omitzero"`
		}
		type Build struct {
			Number int    `json:"number"`
			Branch string `json:"branch"`
		}
		srv := events.NewServer(server, nil)
		builds := events.Add(srv, &events.Event{Name: "build.finished"}, events.Source[Filter, Build]{
			Match: func(ctx context.Context, f Filter, b Build) bool {
				return f.Branch == "" || f.Branch == b.Branch
			},
		})
		err := builds.Emit(events.Occurrence[Build]{Data: Build{Number: 7, Branch: "main"}})
		if err != nil {
			t.Fatal(err)
		}
		client, err := mcp.Connect(ctx, mcp.InMemory(server), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		receive := func() error {
			for o, err := range events.Subscribe[Build](ctx, client, "build.finished", Filter{Branch: "main"}, nil) {
				if err != nil {
					return err
				}
				fmt.Println(o.Data.Number)
			}
			return nil
		}
		done := make(chan error)
		go func() { done <- receive() }()
		synctest.Wait()
		if err := builds.Emit(events.Occurrence[Build]{Data: Build{Number: 8, Branch: "main"}}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
