// Command everything-mcpgo is the example server "everything" of mcp-go, written with this SDK. These
// are the differences:
//
//   - Notifications that the protocol does not define are ignored, without a handler.
//   - The middleware sees initialize as server/discover. mcp-go calls a hook for each event.
//   - A style must be in the list of four styles that completion suggests.
//   - Progress is sent only to clients that request progress.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

//go:embed image.png
var image []byte

func icon(name string, sizes ...string) []mcp.Icon {
	return []mcp.Icon{{Src: "https://example.com/" + name, MIMEType: "image/png", Sizes: sizes}}
}

func echo(_ context.Context, in struct {
	Message string `json:"message" jsonschema:"text to return"`
}) (string, error) {
	return "Echo: " + in.Message, nil
}

func add(_ context.Context, in struct {
	A float64 `json:"a" jsonschema:"first addend"`
	B float64 `json:"b" jsonschema:"second addend"`
}) (string, error) {
	return fmt.Sprintf("%g + %g = %g", in.A, in.B, in.A+in.B), nil
}

func notify(ctx context.Context, _ struct{}) (string, error) {
	mcp.Progress(ctx, 10, 10, "")
	return "The notification was sent.", nil
}

func operate(ctx context.Context, in struct {
	Duration float64 `json:"duration" jsonschema:"seconds that it takes,minimum=0,maximum=3600,default=10"`
	Steps    int     `json:"steps" jsonschema:"number of steps,minimum=1,maximum=1000,default=5"`
}) (string, error) {
	for step := range in.Steps {
		select {
		case <-time.After(time.Duration(in.Duration / float64(in.Steps) * float64(time.Second))):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		mcp.Progress(ctx, float64(step+1), float64(in.Steps), fmt.Sprintf("%d%% done", 100*(step+1)/in.Steps))
	}
	return fmt.Sprintf("%d steps took %g seconds.", in.Steps, in.Duration), nil
}

func getTinyImage(context.Context, struct{}) ([]mcp.ContentBlock, error) {
	return []mcp.ContentBlock{
		mcp.Text("A tiny image:"),
		&mcp.ImageContent{Data: image, MIMEType: "image/png"},
		mcp.Text("That was the image."),
	}, nil
}

func getResourceLink(_ context.Context, in struct {
	Type string `json:"resource_type" jsonschema:"what to link to,default=document"`
}) ([]mcp.ContentBlock, error) {
	return []mcp.ContentBlock{
		mcp.Text("A link to a " + in.Type + ":"),
		&mcp.ResourceLink{
			URI: "file:///example/" + url.PathEscape(in.Type) + ".pdf", Name: "Sample " + in.Type,
			Description: "An example of a " + in.Type, MIMEType: "application/pdf",
		},
		mcp.Text("Read it by its URI."),
	}, nil
}

func readSample(context.Context, string) (string, error) { return "This is a sample.", nil }

func readDynamic(_ context.Context, in struct {
	ID string `json:"id"`
}) (string, error) {
	return "This is sample " + in.ID + ".", nil
}

// completeID suggests the numbers of up to four digits that begin with what was typed.
func completeID(_ context.Context, typed string, _ map[string]string) (ids []string, _ error) {
	for n := range 10000 {
		if id := strconv.Itoa(n); strings.HasPrefix(id, typed) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func addResources(s *mcp.Server) {
	mcp.AddResource(s, &mcp.Resource{
		URI: "test://static/resource", Name: "Static Resource", Icons: icon("icon.png"),
	}, readSample)
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{
		URITemplate: "test://dynamic/resource/{id}", Name: "Dynamic Resource",
		Complete: map[string]mcp.CompleteFunc{"id": completeID},
	}, readDynamic)
	for n := 1; n <= 100; n++ {
		r := &mcp.Resource{URI: fmt.Sprintf("test://static/resource/%d", n), Name: fmt.Sprintf("Resource %d", n)}
		if n%2 == 1 {
			mcp.AddResource(s, r, func(context.Context, string) (string, error) {
				return fmt.Sprintf("Text of resource %d", n), nil
			})
		} else {
			mcp.AddResource(s, r, func(context.Context, string) ([]byte, error) {
				return fmt.Appendf(nil, "Bytes of resource %d", n), nil
			})
		}
	}
}

func simplePrompt(context.Context, struct{}) (string, error) {
	return "This is a prompt without arguments.", nil
}

func complexPrompt(_ context.Context, in struct {
	Temperature string `json:"temperature" jsonschema:"temperature of the model"`
	Style       string `json:"style" jsonschema:"style of the answer,enum=formal|casual|technical|creative"`
}) ([]mcp.PromptMessage, error) {
	return []mcp.PromptMessage{
		{Content: mcp.Text("This is a prompt with temperature " + in.Temperature + " and style " + in.Style + ".")},
		{Role: mcp.RoleAssistant, Content: mcp.Text("What shall I do with these arguments?")},
		{Content: &mcp.ImageContent{Data: image, MIMEType: "image/png"}},
	}, nil
}

// logRequests logs every request, with its result or error, to standard error.
func logRequests(next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		log.Printf("%s %s: %s", req.Method, req.ID, req.Params)
		res, err := next.ServeMCP(ctx, req)
		log.Printf("%s %s: result %+v, error %v", req.Method, req.ID, res, err)
		return res, err
	})
}

func newServer() *mcp.Server {
	s := mcp.NewServer("example-servers/everything", "1.0.0", &mcp.ServerOptions{
		Middleware: []mcp.Middleware{logRequests},
	})
	addResources(s)
	mcp.AddPrompt(s, &mcp.Prompt{
		Name: "simple_prompt", Description: "A prompt without arguments", Icons: icon("prompt.png"),
	}, simplePrompt)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "complex_prompt", Description: "A prompt with arguments"}, complexPrompt)
	mcp.AddTool(s, &mcp.Tool{
		Name: "echo", Description: "Return the message.", Icons: icon("tool.png", "32x32"),
	}, echo)
	mcp.AddTool(s, &mcp.Tool{Name: "notify"}, notify)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two numbers."}, add)
	mcp.AddTool(s, &mcp.Tool{Name: "longRunningOperation", Description: "Take long, with progress."}, operate)
	mcp.AddTool(s, &mcp.Tool{Name: "getTinyImage", Description: "Return a tiny image."}, getTinyImage)
	mcp.AddTool(s, &mcp.Tool{Name: "get_resource_link", Description: "Return a link to a resource."}, getResourceLink)
	return s
}

func main() {
	var transport string
	for _, name := range []string{"t", "transport"} {
		flag.StringVar(&transport, name, "stdio", "transport: stdio or http")
	}
	flag.Parse()
	ctx, s := context.Background(), newServer()
	if transport == "http" {
		log.Fatal(mcphttp.ListenAndServe(ctx, ":8080", "/mcp", mcphttp.NewHandler(s, nil)))
	}
	if err := s.Run(ctx, mcp.Stdio()); err != nil {
		log.Fatal(err)
	}
}
