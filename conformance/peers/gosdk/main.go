// Command gosdk is a server of the official Go SDK for tests of our client. Without an address it
// serves standard input and output; with an address it serves /stateless, /session and /sse.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	addr := flag.String("addr", "", "host:port to serve HTTP on")
	flag.Parse()
	server := newServer()
	if *addr == "" {
		if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
		return
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	get := func(*http.Request) *mcp.Server { return server }
	http.Handle("/stateless", mcp.NewStreamableHTTPHandler(get,
		&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}))
	http.Handle("/session", mcp.NewStreamableHTTPHandler(get, nil))
	http.Handle("/sse", mcp.NewSSEHandler(get, nil))
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(s.Serve(listener))
}

func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "gosdk-peer", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions:       "A peer.",
		PageSize:           2, // lists have several pages
		CompletionHandler:  complete,
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	addTools(s)
	addResources(s)
	s.AddPrompt(&mcp.Prompt{Name: "review", Description: "Review code.", Arguments: []*mcp.PromptArgument{
		{Name: "language", Required: true}, {Name: "code", Required: true},
	}}, review)
	return s
}

func review(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	text := fmt.Sprintf("Review this %s code: %s", req.Params.Arguments["language"], req.Params.Arguments["code"])
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user",
		Content: &mcp.TextContent{Text: text}}}}, nil
}

// complete completes two languages, and the cities of one country.
func complete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{}
	switch {
	case req.Params.Ref.Name == "review" && req.Params.Argument.Name == "language":
		values = []string{"python", "typescript"}
	case req.Params.Ref.Type == "ref/resource" && req.Params.Context != nil &&
		req.Params.Context.Arguments["country"] == "japan":
		values = []string{"kyoto", "osaka"}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values}}, nil
}

func addResources(s *mcp.Server) {
	read := func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
			{URI: req.Params.URI, MIMEType: "text/plain", Text: "this is " + req.Params.URI},
		}}, nil
	}
	for _, name := range []string{"counter", "guide", "logo"} {
		s.AddResource(&mcp.Resource{URI: "demo://" + name, Name: name}, read)
	}
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "demo://cities/{country}/{city}", Name: "cities"}, read)
}
