package postgres_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
)

// TestDocOpen runs the code of the package comment.
func TestDocOpen(t *testing.T) {
	ctx, url := t.Context(), need(t).url()
	server := mcp.NewServer("press", "1.0.0", nil)
	err := func() error {
		store, err := postgres.Open(ctx, url, nil)
		if err != nil {
			return err
		}
		defer store.Close()
		taskServer := tasks.NewServer(server, &tasks.Options{Store: store.Tasks("press")})
		return taskServer.Close(ctx)
	}()
	if err != nil {
		t.Error(err)
	}
}

func ExampleOpen() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, os.Getenv("STORE_URL"), &postgres.Options{Schema: "press"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	for entry, err := range store.HostState().List(ctx, "pin") {
		fmt.Println(entry.Key, err)
	}
}

func ExampleStore_OpenWebhooks() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, os.Getenv("STORE_URL"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	subscriptions, err := store.OpenWebhooks(ctx, "press")
	if err != nil {
		fmt.Println(err) // such as postgres.ErrInUse
		return
	}
	defer subscriptions.Close()
	sender := webhook.NewSender(&webhook.SenderOptions{Store: subscriptions, NoExpiry: true})
	defer sender.Close()
	server := events.NewServer(mcp.NewServer("press", "1.0.0", nil), nil)
	if err := sender.Serve(ctx, server); err != nil {
		fmt.Println(err)
	}
	<-subscriptions.Lost() // the sender has stopped
}
