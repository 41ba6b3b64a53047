package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// newCalculator returns the server of the examples.
func newCalculator() *mcp.Server {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."},
		func(_ context.Context, in sum) (int, error) { return in.A + in.B, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "divide", Description: "Divide two integers."},
		func(ctx context.Context, in sum) (int, error) {
			if in.B == 0 {
				return 0, errors.New("division by zero")
			}
			mcp.Progress(ctx, 1, 2, "dividing")
			return in.A / in.B, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "launch", Description: "Launch, after the user has agreed."},
		func(ctx context.Context, _ struct{}) (string, error) {
			ok, err := mcp.Ask[bool](ctx, "sure", "Really launch?", nil)
			if err != nil || !ok {
				return "", errors.New("not launched")
			}
			return "launched", nil
		})
	return s
}

// The server runs in the same process. For a child process or a URL, only the transport differs.
func ExampleConnect() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newCalculator()), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.ServerInfo().Name, c.Revision())
	for tool, err := range c.Tools(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tool.Name+":", tool.Description)
	}
	// Output:
	// calc 2026-07-28
	// add: Add two integers.
	// divide: Divide two integers.
	// launch: Launch, after the user has agreed.
}

// The type of the error shows whether the tool or the request failed.
func ExampleCallTool() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newCalculator()), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sum, err := mcp.CallTool[int](ctx, c, "add", map[string]any{"a": 1, "b": 2})
	fmt.Println(sum, err)

	_, err = mcp.CallTool[int](ctx, c, "divide", map[string]any{"a": 1, "b": 0})
	var failed *mcp.ToolError
	fmt.Println(errors.As(err, &failed), err)

	_, err = mcp.CallTool[int](ctx, c, "multiply", nil)
	var refused *mcp.Error
	fmt.Println(errors.As(err, &refused), refused.Code, refused.Message)
	// Output:
	// 3 <nil>
	// true tool "divide" failed: division by zero
	// true -32602 unknown tool "multiply"
}

// Setting a function declares the capability. The function is the same for servers of all revisions.
func ExampleClientOptions() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newCalculator()), &mcp.ClientOptions{
		Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			fmt.Println("asked:", p.Message)
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":true}`)}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(mcp.CallTool[string](ctx, c, "launch", nil))
	// Output:
	// asked: Really launch?
	// launched <nil>
}

func ExampleWithCallOptions() {
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(newCalculator()), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{
		Progress: func(p mcp.ProgressUpdate) { fmt.Println(p.Progress, "of", *p.Total, p.Message) },
	})
	fmt.Println(mcp.CallTool[int](ctx, c, "divide", map[string]any{"a": 6, "b": 2}))
	// Output:
	// 1 of 2 dividing
	// 3 <nil>
}

// The loop runs until its context ends or it is left. The first event reports what the server notifies of.
func ExampleClient_Listen() {
	ctx := context.Background()
	s := newCalculator()
	c, err := mcp.Connect(ctx, mcp.InMemory(s), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for event, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Kind)
		if event.Kind == mcp.EventToolsChanged {
			break
		}
		mcp.AddTool(s, &mcp.Tool{Name: "negate"}, func(_ context.Context, in sum) (int, error) { return -in.A, nil })
	}
	// Output:
	// listening
	// tools changed
}

// Middleware of a client sees every request. This one counts them.
func ExampleMiddleware() {
	ctx := context.Background()
	counted := map[string]int{}
	count := func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			counted[req.Method]++
			return next.ServeMCP(ctx, req)
		})
	}
	c, err := mcp.Connect(ctx, mcp.InMemory(newCalculator()), &mcp.ClientOptions{Middleware: []mcp.Middleware{count}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if _, err := c.CallTool(ctx, "add", map[string]any{"a": 1, "b": 2}); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(counted)
	// Output: map[tools/call:3]
}
