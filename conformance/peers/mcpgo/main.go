// Command mcpgo is a server of mcp-go for tests of our client. Without an address it serves
// standard input and output; with an address it serves /stateless, /session and /sse.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func main() {
	addr := flag.String("addr", "", "host:port to serve HTTP on")
	careless := flag.Bool("careless", false, "have the tools read and admin, and no others")
	flag.Parse()
	s := newServer()
	if *careless {
		s = newCareless()
	}
	if *addr == "" {
		if err := server.ServeStdio(s); err != nil {
			log.Fatal(err)
		}
		return
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	sse := server.NewSSEServer(s)
	http.Handle("/stateless", server.NewStreamableHTTPServer(s, server.WithStateLess(true)))
	http.Handle("/session", server.NewStreamableHTTPServer(s, server.WithStateful(true)))
	http.Handle("/sse", sse.SSEHandler())
	http.Handle("/message", sse.MessageHandler())
	h := &http.Server{ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(h.Serve(listener))
}

func newServer() *server.MCPServer {
	s := server.NewMCPServer("mcpgo-peer", "1.0.0",
		server.WithInstructions("A peer."),
		server.WithPaginationLimit(2), // lists have several pages
		server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true),
		server.WithPromptCapabilities(true),
		server.WithLogging(), server.WithElicitation(), server.WithRoots(), server.WithCompletions(),
		server.WithPromptCompletionProvider(completion{}), server.WithResourceCompletionProvider(completion{}),
	)
	s.EnableSampling()
	addTools(s)
	addResources(s)
	s.AddPrompt(mcp.NewPrompt("review", mcp.WithPromptDescription("Review code."),
		mcp.WithArgument("language", mcp.RequiredArgument()), mcp.WithArgument("code", mcp.RequiredArgument())), review)
	return s
}

func review(_ context.Context, req mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	text := fmt.Sprintf("Review this %s code: %s", req.Params.Arguments["language"], req.Params.Arguments["code"])
	return mcp.NewGetPromptResult("", []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser,
		mcp.NewTextContent(text))}), nil
}

// A completion completes two languages, and the cities of one country.
type completion struct{}

func (completion) CompletePromptArgument(_ context.Context, prompt string, a mcp.CompleteArgument,
	_ mcp.CompleteContext) (*mcp.Completion, error) {
	if prompt != "review" || a.Name != "language" {
		return &mcp.Completion{Values: []string{}}, nil
	}
	return &mcp.Completion{Values: []string{"python", "typescript"}}, nil
}

func (completion) CompleteResourceArgument(_ context.Context, _ string, _ mcp.CompleteArgument,
	known mcp.CompleteContext) (*mcp.Completion, error) {
	if known.Arguments["country"] != "japan" {
		return &mcp.Completion{Values: []string{}}, nil
	}
	return &mcp.Completion{Values: []string{"kyoto", "osaka"}}, nil
}

func addResources(s *server.MCPServer) {
	read := func(_ context.Context, req mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{
			URI: req.Params.URI, MIMEType: "text/plain", Text: "this is " + req.Params.URI,
		}}, nil
	}
	for _, name := range []string{"counter", "guide", "logo"} {
		s.AddResource(mcp.NewResource("demo://"+name, name), read)
	}
	s.AddResourceTemplate(mcp.NewResourceTemplate("demo://cities/{country}/{city}", "cities"), read)
}
