package guides

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// connect connects a client to a server in this process.
func connect(s *mcp.Server, opts *mcp.ClientOptions) *mcp.Client {
	c, err := mcp.Connect(context.Background(), mcp.InMemory(s), opts)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

type search struct {
	Query string   `json:"query" jsonschema:"words to look for,minLength=1"`
	Sort  string   `json:"sort,omitempty" jsonschema:"order of the hits,enum=date|rank,default=rank"`
	Limit int      `json:"limit,omitempty" jsonschema:"how many hits,minimum=1,maximum=50,default=10"`
	Tags  []string `json:"tags,omitempty" jsonschema:"tags that a hit must have"`
}

type hits struct {
	Total int      `json:"total" jsonschema:"number of all hits"`
	Names []string `json:"names" jsonschema:"the first hits"`
}

func find(_ context.Context, in search) (hits, error) {
	return hits{Total: in.Limit, Names: []string{in.Query + " by " + in.Sort}}, nil
}

func Example_typedInput() {
	ctx := context.Background()
	s := mcp.NewServer("library", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "find", Description: "Find books by words of their titles."}, find)

	c := connect(s, nil)
	defer c.Close()
	got, err := mcp.CallTool[hits](ctx, c, "find", map[string]any{"query": "go"})
	fmt.Println(got, err)
	_, err = mcp.CallTool[hits](ctx, c, "find", map[string]any{"query": "go", "limit": 99})
	fmt.Println(err)
	// Output:
	// {10 [go by rank]} <nil>
	// tool "find" failed: /limit: got the number 99, want a number of at most 50
}

type level string

func (level) Enum() []level { return []level{"low", "high"} }

type alert struct {
	Level level     `json:"level" jsonschema:"how urgent the alert is"`
	At    time.Time `json:"at" jsonschema:"when it happened"`
	Note  *string   `json:"note" jsonschema:"free text"`
}

func Example_inputTypes() {
	fmt.Println(string(jsonschema.For[alert]().JSON()))
	// Output:
	// {"type":"object","properties":{"level":{"type":"string","description":"how urgent the alert is","enum":["low","high"]},"at":{"type":"string","description":"when it happened","format":"date-time"},"note":{"type":"string","description":"free text"}},"required":["level","at"],"additionalProperties":false}
}

type file struct {
	Name string `json:"name" jsonschema:"name of the file"`
}

var errNotAllowed = &mcp.Error{Code: -32001, Message: "not allowed", Data: json.RawMessage(`{"needs":"admin"}`)}

func remove(_ context.Context, in file) (string, error) {
	switch in.Name {
	case "":
		return "", errors.New("name is empty: use the name that list returned") // the model can correct it
	case "/etc/passwd":
		return "", errNotAllowed // a protocol error for the client
	}
	return in.Name + " is deleted.", nil
}

func Example_toolErrors() {
	ctx := context.Background()
	s := mcp.NewServer("files", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "delete", Annotations: &mcp.ToolAnnotations{
		Destructive: new(true),
		Idempotent:  new(true),
		OpenWorld:   new(false),
	}}, remove)

	c := connect(s, nil)
	defer c.Close()
	for _, name := range []string{"a.txt", "", "/etc/passwd"} {
		text, err := mcp.CallTool[string](ctx, c, "delete", file{name})
		if failed, ok := errors.AsType[*mcp.ToolError](err); ok {
			fmt.Println("tool error:", failed)
			continue
		}
		if refused, ok := errors.AsType[*mcp.Error](err); ok {
			fmt.Println("protocol error:", refused.Code, refused.Message, string(refused.Data))
			continue
		}
		fmt.Println(text)
	}
	// Output:
	// a.txt is deleted.
	// tool error: tool "delete" failed: name is empty: use the name that list returned
	// protocol error: -32001 not allowed {"needs":"admin"}
}

type batch struct {
	Pages int `json:"pages" jsonschema:"number of pages,minimum=1,maximum=1000"`
}

func scan(ctx context.Context, in batch) (string, error) {
	for page := range in.Pages {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx) // cancelled, disconnected or shutting down
		case <-time.After(time.Millisecond):
		}
		mcp.Progress(ctx, float64(page+1), float64(in.Pages), "scanning")
		mcp.Logger(ctx).Debug("scanned", "page", page+1)
	}
	return fmt.Sprintf("%d pages", in.Pages), nil
}

func Example_progress() {
	s := mcp.NewServer("scanner", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "scan"}, scan)

	c := connect(s, nil)
	defer c.Close()
	ctx := mcp.WithCallOptions(context.Background(), mcp.CallOptions{
		Timeout:  time.Minute,
		Progress: func(p mcp.ProgressUpdate) { fmt.Println(p.Message, p.Progress, "of", *p.Total) },
	})
	fmt.Println(mcp.CallTool[string](ctx, c, "scan", batch{Pages: 2}))
	// Output:
	// scanning 1 of 2
	// scanning 2 of 2
	// 2 pages <nil>
}

func Example_registration() {
	ctx := context.Background()
	s := mcp.NewServer("files", "1.0.0", nil)
	tool := mcp.AddTool(s, &mcp.Tool{Name: "delete"}, remove)
	c := connect(s, nil)
	defer c.Close()

	tool.Disable() // not listed, and an unknown tool when called
	_, err := c.CallTool(ctx, "delete", file{"a.txt"})
	fmt.Println(err)
	tool.Enable()
	tool.Update(func(t *mcp.Tool) { t.Description = "Delete a file. This cannot be undone." })
	tools, err := mcp.Collect(c.Tools(ctx))
	fmt.Println(tools[0].Description, err)
	// Output:
	// remote error: unknown tool "delete" (code -32602)
	// Delete a file. This cannot be undone. <nil>
}
