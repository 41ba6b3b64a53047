package guides

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A choice is a tool and the arguments that a model has chosen. Name is empty at the end.
type choice struct {
	Name string
	Args json.RawMessage
}

// A model chooses the next call from the tools and the text of the last result.
type model func(tools []*mcp.Tool, last string) choice

// runModel calls the tools of a server until the model has finished.
func runModel(ctx context.Context, c *mcp.Client, choose model) error {
	var changed atomic.Bool
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { watchTools(ctx, c, &changed) })
	tools, err := mcp.Collect(c.Tools(ctx))
	for last := ""; err == nil; {
		if changed.Swap(false) {
			if tools, err = mcp.Collect(c.Tools(ctx)); err != nil {
				return err
			}
		}
		next := choose(tools, last) // a tool has Name, Description and InputSchema, a json.RawMessage
		if next.Name == "" {
			return nil
		}
		last, err = callFor(ctx, c, next)
	}
	return err
}

// callFor calls a tool and returns the text for the model. The error is for the program.
func callFor(ctx context.Context, c *mcp.Client, next choice) (string, error) {
	ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{
		Timeout:  time.Minute,
		Progress: func(p mcp.ProgressUpdate) { fmt.Println("progress", p.Progress, p.Message) },
	})
	res, err := c.CallTool(ctx, next.Name, next.Args)
	if refused, ok := errors.AsType[*mcp.Error](err); ok {
		return "error: " + refused.Message, nil // an unknown tool, invalid arguments, a missing scope
	}
	if err != nil {
		return "", err // the connection: *mcp.TransportError
	}
	if res.IsError {
		return "error: " + res.Text(), nil
	}
	return res.Text(), nil
}

// watchTools sets changed when the list of tools has changed, until ctx ends.
func watchTools(ctx context.Context, c *mcp.Client, changed *atomic.Bool) {
	for event, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
		if err != nil {
			log.Print(err) // the last value: the server notifies of no changes
			return
		}
		switch event.Kind { // EventListening comes first: list again, because earlier changes were not reported
		case mcp.EventListening, mcp.EventToolsChanged, mcp.EventChangesMissed:
			changed.Store(true)
		}
	}
}

func Example_model() {
	s := mcp.NewServer("library", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "scan", Description: "Scan pages."}, scan)
	c := connect(s, nil)
	defer c.Close()
	plan := []choice{
		{"scan", json.RawMessage(`{"pages":"two"}`)},
		{"scan", json.RawMessage(`{"pages":2}`)},
		{"print", nil},
		{},
	}
	err := runModel(context.Background(), c, func(_ []*mcp.Tool, last string) choice {
		fmt.Println(last)
		next := plan[0]
		plan = plan[1:]
		return next
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	//
	// error: /pages: got the string "two", want an integer
	// progress 1 scanning
	// progress 2 scanning
	// 2 pages
	// error: unknown tool "print"
}

// A child process whose standard error is shown. This example needs a server, so it is compiled only.
func Example_childProcess() {
	server := mcp.Command("./notes", "--dir", "/home/ann")
	server.Env = []string{"NOTES_TOKEN=" + os.Getenv("NOTES_TOKEN")}
	server.Stderr = os.Stderr
	c, err := mcp.Connect(context.Background(), server, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.ServerInfo().Name)
}
