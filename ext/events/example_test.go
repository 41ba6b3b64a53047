package events_test

import (
	"context"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A build server announces finished builds, and a client receives the builds of a branch.
func Example() {
	type Filter struct {
		Branch string `json:"branch,omitzero" jsonschema:"only builds of this branch"`
	}
	type Build struct {
		Number int    `json:"number"`
		Branch string `json:"branch"`
	}
	server := mcp.NewServer("ci", "1.0.0", nil)
	builds := events.Add(events.NewServer(server, nil),
		&events.Event{Name: "build.finished", Description: "A build finished"},
		events.Source[Filter, Build]{
			Match: func(_ context.Context, f Filter, b Build) bool { return f.Branch == "" || f.Branch == b.Branch },
		})

	ctx := context.Background()
	client, err := mcp.Connect(ctx, mcp.InMemory(server), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	begun := false
	opts := &events.SubscribeOptions{Position: func(string) {
		if begun {
			return // store the cursor here
		}
		begun = true
		for number, branch := range []string{"main", "fix", "main"} {
			if err := builds.Emit(events.Occurrence[Build]{Data: Build{Number: number, Branch: branch}}); err != nil {
				log.Print(err)
			}
		}
	}}
	for o, err := range events.Subscribe[Build](ctx, client, "build.finished", Filter{Branch: "main"}, opts) {
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Printf("build %d of %s\n", o.Data.Number, o.Data.Branch)
		if o.Data.Number == 2 {
			break
		}
	}
	// Output:
	// build 0 of main
	// build 2 of main
}

// A source with a history of its own needs no memory of occurrences: a poll, a stream and a client
// that reconnects read it at their cursors.
func ExampleSource_check() {
	type Note struct {
		Text string `json:"text"`
	}
	stored := []Note{{"first"}, {"second"}}
	source := events.Source[struct{}, Note]{
		Check: func(_ context.Context, _ struct{}, at events.Position) (b events.Batch[Note], err error) {
			n := len(stored) // the subscription starts now
			if at.Cursor != "" {
				if _, err := fmt.Sscan(at.Cursor, &n); err != nil || n < 0 || n > len(stored) {
					n, b.Truncated = 0, true // an unknown position
				}
			}
			for _, note := range stored[n:] {
				n++
				b.Events = append(b.Events, events.Occurrence[Note]{ID: fmt.Sprint("note-", n), Data: note})
			}
			b.Cursor = fmt.Sprint(n)
			return b, nil
		},
	}
	server := mcp.NewServer("notes", "1.0.0", nil)
	events.Add(events.NewServer(server, nil), &events.Event{Name: "note.added"}, source)

	ctx := context.Background()
	client, err := mcp.Connect(ctx, mcp.InMemory(server), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	opts := &events.SubscribeOptions{Cursor: "1"}
	for o, err := range events.Poll[Note](ctx, client, "note.added", nil, opts) {
		fmt.Println(o.ID, o.Data.Text, err)
		break
	}
	// Output:
	// note-2 second <nil>
}
