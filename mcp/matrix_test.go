package mcp_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An exchange is the part of a transcript that shows one feature.
type exchange struct {
	name string
	opts mcptest.Options
	run  func(t *testing.T, s *mcp.Server, c *mcptest.Client)
}

// call returns an exchange of one request.
func call(name, method string, params object) exchange {
	return exchange{name: name, run: func(_ *testing.T, _ *mcp.Server, c *mcptest.Client) { _, _ = c.Try(method, params) }}
}

// exchanges returns one representative exchange for each feature.
func exchanges() []exchange {
	tool := func(name string) object {
		return object{"name": name, "arguments": object{}, "_meta": object{"progressToken": "p"}}
	}
	ref := object{"type": "ref/prompt", "name": "greet"}
	yes := func(string, json.RawMessage) (any, error) {
		return acceptResult(object{"name": "Ada", "size": "l"}), nil
	}
	return []exchange{
		{name: "open", run: func(_ *testing.T, _ *mcp.Server, c *mcptest.Client) {
			if c.Modern() {
				c.Call("server/discover", nil)
			}
		}},
		call("tools-list", "tools/list", nil),
		call("tools-call", "tools/call", object{"name": "add", "arguments": object{"a": 1, "b": 2}}),
		call("tools-call-list-result", "tools/call", tool("split")),
		call("tools-call-content", "tools/call", tool("content")),
		call("tools-call-wrong-arguments", "tools/call", object{"name": "add", "arguments": object{"a": "one"}}),
		call("tools-call-failure", "tools/call", tool("fail")),
		call("tools-call-panic", "tools/call", tool("panic")),
		call("tools-call-unknown", "tools/call", tool("unknown")),
		call("progress", "tools/call", tool("steps")),
		{"logging", mcptest.Options{LogLevel: "info"}, func(_ *testing.T, _ *mcp.Server, c *mcptest.Client) {
			_, _ = c.Try("tools/call", object{"name": "steps"})
		}},
		{"elicitation", mcptest.Options{Answer: yes}, func(_ *testing.T, _ *mcp.Server, c *mcptest.Client) {
			_, _ = c.Try("tools/call", object{"name": "ask"})
		}},
		call("elicitation-url", "tools/call", tool("visit")),
		call("sampling", "tools/call", tool("sample")),
		call("roots", "tools/call", tool("roots")),
		call("prompts-list", "prompts/list", nil),
		call("prompts-get", "prompts/get", object{"name": "greet", "arguments": object{"who": "Ada"}}),
		call("prompts-get-missing-argument", "prompts/get", object{"name": "greet"}),
		call("completion", "completion/complete", object{"ref": ref, "argument": object{"name": "tone", "value": "f"}}),
		call("resources-list", "resources/list", nil),
		call("resources-templates-list", "resources/templates/list", nil),
		call("resources-read", "resources/read", object{"uri": "x://hello"}),
		call("resources-read-missing", "resources/read", object{"uri": "x://none"}),
		call("method-unknown", "example/method", nil),
		{name: "pagination", run: func(t *testing.T, _ *mcp.Server, c *mcptest.Client) {
			first := decode[toolPage](t, c.Call("tools/list", nil))
			c.Call("tools/list", object{"cursor": *first.NextCursor})
		}},
		{name: "changes", run: func(_ *testing.T, s *mcp.Server, c *mcptest.Client) {
			stop := c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"x://hello"}})
			addValueTool(s, "later", "x").Remove()
			c.Await(1, toolsChanged)
			s.ResourceUpdated("x://hello")
			c.Await(1, resourceUpdated)
			stop()
			synctest.Wait()
		}},
	}
}

// transcriptServer returns the server of the transcripts.
func transcriptServer(t *testing.T, pageSize int) *mcp.Server {
	s := newServer(t, &mcp.ServerOptions{Title: "Specimen", Instructions: "Look closely.", PageSize: pageSize})
	type addIn struct {
		A int `json:"a" jsonschema:"first addend"`
		B int `json:"b" jsonschema:"second addend"`
	}
	type addOut struct {
		Sum int `json:"sum"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "add", Title: "Add", Description: "Add two integers.", Annotations: &mcp.ToolAnnotations{ReadOnly: pointer(true)}},
		func(_ context.Context, in addIn) (addOut, error) { return addOut{in.A + in.B}, nil })
	addValueTool(s, "split", []string{"a", "b"})
	addValueTool(s, "content", []mcp.ContentBlock{
		mcp.Text("text"), &mcp.ImageContent{Data: []byte("i"), MIMEType: "image/png"}, &mcp.AudioContent{Data: []byte("a"), MIMEType: "audio/wav"},
		&mcp.ResourceLink{URI: "x://hello", Name: "hello"},
		&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x://hello", MIMEType: "text/plain", Text: "hello"}},
	})
	addTool(s, "fail", func(context.Context) (string, error) { return "", context.DeadlineExceeded })
	addTool(s, "panic", func(context.Context) (string, error) { panic("secret") })
	addTool(s, "steps", func(ctx context.Context) (string, error) {
		for i := range 2 {
			mcp.Progress(ctx, float64(i+1), 2, "a step")
			mcp.Logger(ctx).Info("a step", "n", i)
		}
		return "done", nil
	})
	addTool(s, "ask", func(ctx context.Context) (string, error) {
		who, err := mcp.Ask[struct {
			Name string `json:"name" jsonschema:"who asks,default=nobody"`
			Size string `json:"size" jsonschema:"enum=s|l,titles=Small|Large"`
		}](ctx, "who", "Who are you?", nil)
		return who.Name + " " + who.Size, err
	})
	addTool(s, "visit", func(ctx context.Context) (string, error) {
		return "visited", mcp.AskURL(ctx, "page", "https://example.com/", "Please look.")
	})
	addTool(s, "sample", func(ctx context.Context) (string, error) {
		res, err := mcp.Sample(ctx, "thought", &mcp.CreateMessageParams{MaxTokens: 5, Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("Think."))}})
		if err != nil {
			return "", err
		}
		return res.Text(), nil
	})
	addTool(s, "roots", func(ctx context.Context) (string, error) {
		roots, err := mcp.Roots(ctx)
		if err != nil {
			return "", err
		}
		return roots[0].URI, nil
	})
	type greetIn struct {
		Who  string `json:"who" jsonschema:"whom to greet"`
		Tone string `json:"tone,omitempty" jsonschema:"enum=formal|friendly"`
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "greet", Title: "Greet", Description: "Greet someone."},
		func(_ context.Context, in greetIn) (string, error) { return "Greet " + in.Who + ".", nil })
	mcp.AddResource(s, &mcp.Resource{URI: "x://hello", Name: "hello", Title: "Hello"},
		func(context.Context, string) (string, error) { return "hello", nil })
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://day/{day}", Name: "days"},
		func(_ context.Context, vars map[string]string) (string, error) { return vars["day"], nil })
	return s
}

// testdata holds the messages for each feature and revision: review the diff after -update. They are the same
// over every transport, except for the notification that ends a request on a stream.
func TestTranscripts(t *testing.T) {
	servers := map[bool]*mcp.Server{true: transcriptServer(t, 5), false: transcriptServer(t, 0)}
	for _, x := range exchanges() {
		t.Run(x.name, func(t *testing.T) {
			byRevision := map[string]string{}
			s := servers[x.name == "pagination"]
			mcptest.RunOn(t, s, mcptest.Combinations(), &x.opts, func(t *testing.T, c *mcptest.Client) {
				opening := len(c.Transcript())
				if x.name == "open" {
					opening = 0
				}
				x.run(t, s, c)
				got := c.Transcript()[opening:]
				if x.name == "changes" && c.Modern() && c.OverHTTP() {
					return // the subscription ends by closing the stream
				}
				if same, ok := byRevision[c.Revision]; !ok {
					byRevision[c.Revision] = got
				} else if got != same {
					t.Errorf("transcript over %s:\n%s\nwant, as over the other transports:\n%s", c.Transport, got, same)
				}
			})
			var all string
			for _, revision := range mcptest.Revisions() {
				all += "# " + revision + "\n" + byRevision[revision] + "\n"
			}
			mcptest.Golden(t, filepath.Join("testdata", x.name+".txt"), all)
		})
	}
}
