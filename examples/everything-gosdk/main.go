// Command everything-gosdk is the example server "everything" of the official Go SDK, written with
// this SDK. These are the differences:
//
//   - Names of tools do not contain spaces and parentheses, which the protocol advises against.
//   - Tools do not ping the client: PingInterval pings clients of revisions before 2026-07-28.
//   - A single resource is registered as embedded:info. In the original, a second resource of this
//     name replaces the first.
//   - The resource template serves a resource. The template of the original refuses every URI.
//   - Sampling sends a message and a token limit, which the protocol requires.
package main

import (
	"context"
	_ "embed"
	"encoding/base64"
	"flag"
	"fmt"
	"log"
	"net/http"
	_ "net/http/pprof"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

//go:embed icon.png
var iconPNG []byte

var icons = []mcp.Icon{{
	Src:      "data:image/png;base64," + base64.StdEncoding.EncodeToString(iconPNG),
	MIMEType: "image/png", Sizes: []string{"48x48"}, Theme: "light",
}}

type person struct {
	Name string `json:"name" jsonschema:"name of the person to greet"`
}

type greeting struct {
	Message string `json:"message" jsonschema:"text of the greeting"`
}

func greet(_ context.Context, in person) (string, error) { return "Hi " + in.Name, nil }

func greetStructured(_ context.Context, in person) (greeting, error) {
	return greeting{"Hi " + in.Name}, nil
}

func greetLink(_ context.Context, in person) (*mcp.ResourceLink, error) {
	return &mcp.ResourceLink{
		URI:  "data:text/plain,Hi%20" + url.PathEscape(in.Name),
		Name: "greeting", Title: "The greeting as a link", MIMEType: "text/plain", Icons: icons,
	}, nil
}

func logMessage(ctx context.Context, _ struct{}) (string, error) {
	mcp.Logger(ctx).Error("something happened")
	return "A message was logged.", nil
}

func sample(ctx context.Context, _ struct{}) ([]mcp.ContentBlock, error) {
	res, err := mcp.Sample(ctx, "sample", &mcp.CreateMessageParams{
		Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("Say something.")}}},
		MaxTokens: 100,
	})
	if err != nil {
		return nil, err
	}
	return res.Content, nil
}

func elicitForm(ctx context.Context, _ struct{}) (string, error) {
	answer, err := mcp.Ask[struct {
		Random string `json:"random,omitempty"`
	}](ctx, "random", "Enter a random string.", nil)
	return answer.Random, err
}

var visits atomic.Int32

func elicitURL(ctx context.Context, _ struct{}) (string, error) {
	id, err := mcp.Once(ctx, "id", func(context.Context) (int32, error) { return visits.Add(1), nil })
	if err != nil {
		return "", err
	}
	if err := mcp.AskURL(ctx, "page", fmt.Sprintf("http://localhost:6062?id=%d", id), "Submit a string."); err != nil {
		return "", err
	}
	return "The user has agreed to visit the page.", nil
}

func listRoots(ctx context.Context, _ struct{}) (string, error) {
	roots, err := mcp.Roots(ctx)
	var all []string
	for _, r := range roots {
		all = append(all, r.Name+":"+r.URI)
	}
	return strings.Join(all, ","), err
}

func greetPrompt(_ context.Context, in person) (*mcp.GetPromptResult, error) {
	return &mcp.GetPromptResult{
		Description: "A request to greet a person",
		Messages:    []mcp.PromptMessage{{Content: mcp.Text("Say hi to " + in.Name)}},
	}, nil
}

var texts = map[string]string{"info": "This server has an example of every feature."}

func readInfo(context.Context, string) (string, error) { return texts["info"], nil }

func readText(_ context.Context, in struct {
	Name string `json:"resource_name"`
}) (string, error) {
	text, ok := texts[in.Name]
	if !ok {
		return "", mcp.NotFound(in.Name)
	}
	return text, nil
}

// complete suggests the typed text followed by an x, for every argument.
func complete(_ context.Context, p *mcp.CompleteParams) (*mcp.Completion, error) {
	return &mcp.Completion{Values: []string{p.Value + "x"}, Total: new(int64(1))}, nil
}

func newServer() *mcp.Server {
	s := mcp.NewServer("everything", "1.0.0", &mcp.ServerOptions{
		Instructions: "Use this server!", WebsiteURL: "https://example.com", Icons: icons, Complete: complete,
	})
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Description: "Greet a person."}, greet)
	mcp.AddTool(s, &mcp.Tool{Name: "greet_structured"}, greetStructured)
	mcp.AddTool(s, &mcp.Tool{Name: "greet_icons", Icons: icons}, greetStructured)
	mcp.AddTool(s, &mcp.Tool{Name: "greet_link"}, greetLink)
	mcp.AddTool(s, &mcp.Tool{Name: "log"}, logMessage)
	mcp.AddTool(s, &mcp.Tool{Name: "sample"}, sample)
	mcp.AddTool(s, &mcp.Tool{Name: "elicit_form"}, elicitForm)
	mcp.AddTool(s, &mcp.Tool{Name: "elicit_url"}, elicitURL)
	mcp.AddTool(s, &mcp.Tool{Name: "roots"}, listRoots)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "greet"}, greetPrompt)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "greet (with Icons)", Icons: icons}, greetPrompt)
	mcp.AddResource(s, &mcp.Resource{URI: "embedded:info", Name: "info", Icons: icons}, readInfo)
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{
		URITemplate: "http://example.com/~{resource_name}/", Name: "Resource template (with Icon)", Icons: icons,
	}, readText)
	return s
}

// A traceConn logs every message to standard error.
type traceConn struct{ mcp.Conn }

func (c traceConn) Read(ctx context.Context) (*jsonrpc.Message, error) {
	m, err := c.Conn.Read(ctx)
	if err == nil {
		log.Printf("read: %s", jsonrpc.Append(nil, m))
	}
	return m, err
}

func (c traceConn) Write(ctx context.Context, m *jsonrpc.Message) error {
	log.Printf("write: %s", jsonrpc.Append(nil, m))
	return c.Conn.Write(ctx, m)
}

func main() {
	httpAddr := flag.String("http", "", "serve HTTP at this address, instead of standard input and output")
	pprofAddr := flag.String("pprof", "", "serve profiles of the program at this address")
	flag.Parse()
	if *pprofAddr != "" {
		http.HandleFunc("/gc", func(w http.ResponseWriter, _ *http.Request) {
			runtime.GC()
			fmt.Fprintln(w, "collected")
		})
		go func() { log.Print(http.ListenAndServe(*pprofAddr, nil)) }()
	}
	const pings = 30 * time.Second
	ctx, s := context.Background(), newServer()
	if *httpAddr != "" {
		var opts mcphttp.Options
		opts.Sessions.PingInterval = pings
		log.Fatal(mcphttp.ListenAndServe(ctx, *httpAddr, "/mcp", mcphttp.NewHandler(s, &opts)))
	}
	if err := mcp.Serve(ctx, s, traceConn{mcp.Stdio()}, &mcp.ServeOptions{PingInterval: pings}); err != nil {
		log.Fatal(err)
	}
}
