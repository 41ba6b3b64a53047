package guides

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type entry struct {
	Day   string `json:"day" jsonschema:"such as 2026-07-28"`
	Level severe `json:"level,omitempty" jsonschema:"lowest level,default=low"`
}

type severe string

func (severe) Enum() []severe { return []severe{"low", "high"} }

// readLog reads the resource log://2026-07-28?level=high.
func readLog(_ context.Context, in entry) (string, error) {
	if in.Day == "today" {
		return "", mcp.NotFound("log://today")
	}
	return fmt.Sprintf("log of %s, level %s", in.Day, in.Level), nil
}

func days(_ context.Context, typed string, _ map[string]string) ([]string, error) {
	var found []string
	for _, day := range []string{"2026-07-28", "2026-07-29"} {
		if strings.HasPrefix(day, typed) {
			found = append(found, day)
		}
	}
	return found, nil
}

func Example_resources() {
	ctx := context.Background()
	s := mcp.NewServer("logs", "1.0.0", nil)
	mcp.AddResource(s, &mcp.Resource{URI: "status://now", Name: "status"},
		func(context.Context, string) (map[string]int, error) { return map[string]int{"errors": 3}, nil })
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{
		URITemplate: "log://{day}{?level}", Name: "log",
		Complete: map[string]mcp.CompleteFunc{"day": days},
	}, readLog)
	mcp.AddFS(s, "manual:///", fstest.MapFS{"intro.md": {Data: []byte("# Introduction")}})

	c := connect(s, nil)
	defer c.Close()
	for _, uri := range []string{"status://now", "log://2026-07-28?level=high", "log://2026-07-28", "manual:///intro.md", "log://today"} {
		res, err := c.ReadResource(ctx, uri)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(res.Contents[0].MIMEType, res.Contents[0].Text)
	}
	suggested, err := c.Complete(ctx, &mcp.CompleteParams{
		Template: "log://{day}{?level}",
		Argument: "day", Value: "2026-07-2",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(suggested.Values)
	// Output:
	// application/json {"errors":3}
	// text/plain log of 2026-07-28, level high
	// text/plain log of 2026-07-28, level low
	// text/markdown # Introduction
	// remote error: resource not found (code -32602)
	// [2026-07-28 2026-07-29]
}

func Example_directory() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("A"), 0o600); err != nil {
		log.Fatal(err)
	}
	s := mcp.NewServer("files", "1.0.0", nil)
	root, err := os.OpenRoot(dir) // links cannot leave it
	if err != nil {
		log.Fatal(err)
	}
	defer root.Close()
	mcp.AddFSTemplate(s, &mcp.ResourceTemplate{URITemplate: "file:///project/{+path}", Name: "project"}, root.FS())

	c := connect(s, nil)
	defer c.Close()
	for _, path := range []string{"a.txt", "../secret"} {
		res, err := c.ReadResource(ctx, "file:///project/"+path)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(res.Contents[0].Text)
	}
	// Output:
	// A
	// remote error: resource not found (code -32602)
}

func Example_subscription() {
	ctx := context.Background()
	s := mcp.NewServer("status", "1.0.0", nil)
	status := "green"
	mcp.AddResource(s, &mcp.Resource{URI: "status://now", Name: "status"},
		func(context.Context, string) (string, error) { return status, nil })

	c := connect(s, nil)
	defer c.Close()
	for event, err := range c.Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{"status://now"}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Kind)
		if event.Kind == mcp.EventResourceUpdated {
			break
		}
		status = "red"
		s.ResourceUpdated("status://now")
	}
	// Output:
	// listening
	// resource updated
}

type review struct {
	Language string `json:"language" jsonschema:"programming language,enum=go|rust"`
	Code     string `json:"code" jsonschema:"code to review"`
}

func reviewPrompt(_ context.Context, in review) ([]mcp.PromptMessage, error) {
	return []mcp.PromptMessage{
		{Role: mcp.RoleUser, Content: mcp.Text("Review this " + in.Language + " code. Name the worst defect first.")},
		{Role: mcp.RoleUser, Content: mcp.Text(in.Code)},
	}, nil
}

func Example_prompts() {
	ctx := context.Background()
	s := mcp.NewServer("reviews", "1.0.0", nil)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "review", Description: "Review code."}, reviewPrompt)

	c := connect(s, nil)
	defer c.Close()
	got, err := c.GetPrompt(ctx, "review", map[string]string{"language": "go", "code": "x := 1"})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range got.Messages {
		fmt.Println(m.Role, m.Content.(*mcp.TextContent).Text)
	}
	_, err = c.GetPrompt(ctx, "review", map[string]string{"language": "go"})
	fmt.Println(err)
	suggested, err := c.Complete(ctx, &mcp.CompleteParams{
		Prompt:   "review",
		Argument: "language", Value: "r",
	})
	fmt.Println(suggested.Values, err)
	// Output:
	// user Review this go code. Name the worst defect first.
	// user x := 1
	// remote error: params.arguments: missing required property "code" (a string) (code -32602)
	// [rust] <nil>
}
