package gateway_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// everythingServer has two tools, a prompt, a resource and a method of an extension.
func everythingServer(name string) *mcp.Server {
	s := mcp.NewServer(name, "1", nil)
	f := func(context.Context, struct{}) (string, error) { return "done", nil }
	yes := true
	mcp.AddTool(s, &mcp.Tool{Name: "write"}, f)
	mcp.AddTool(s, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnly: &yes}}, f)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "hello"}, f)
	mcp.AddResource(s, &mcp.Resource{URI: "test://" + name, Name: "r"}, func(context.Context, string) (string, error) {
		return "text", nil
	})
	return s
}

// used returns what a client sees in lists and what it can use, such as "call look".
func used(t *testing.T, c *mcp.Client, prefix string) (all []string) {
	t.Helper()
	add := func(what string, err error) {
		if err == nil {
			all = append(all, what)
			return
		}
		if e, ok := errors.AsType[*mcp.Error](err); !ok || !slices.Contains([]int{mcp.CodeInvalidParams, mcp.CodeMethodNotFound, -32002}, e.Code) {
			t.Errorf("%s: %v, want an error as of what does not exist", what, err)
		}
	}
	for tool, err := range c.Tools(t.Context()) {
		add("tool "+strings.TrimPrefix(tool.Name, prefix), err)
	}
	for prompt, err := range c.Prompts(t.Context()) {
		add("prompt "+strings.TrimPrefix(prompt.Name, prefix), err)
	}
	for resource, err := range c.Resources(t.Context()) {
		add("resource "+resource.URI, err)
	}
	for _, tool := range []string{"look", "write"} {
		res, err := c.CallTool(t.Context(), prefix+tool, nil)
		if err == nil && res.IsError {
			t.Errorf("call %s: %+v", tool, res)
		}
		add("call "+tool, err)
	}
	_, err := c.GetPrompt(t.Context(), prefix+"hello", nil)
	add("get hello", err)
	_, err = c.ReadResource(t.Context(), "test://one")
	add("read", err)
	return all
}

// The limits of a key are those of every revision and transport, in aggregate and for one server.
func TestLimitsOverEveryRevision(t *testing.T) {
	mcptest.NoLeaks(t)
	f, err := config.Parse([]byte(`{"mcpServers": {"one": {"command": "one"}, "two": {"command": "two"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), f, &host.Options{Logger: slog.New(slog.DiscardHandler),
		Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
			return mcp.InMemory(everythingServer(s.Name)), nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	store := gateway.NewKeyStore(&state.Memory{})
	url := serve(t, gateway.New(h, &gateway.Options{KeyStore: store, Logger: slog.New(slog.DiscardHandler)}))
	tools := "tool look,tool write,call look,call write"
	for name, c := range map[string]struct {
		key  gateway.Key
		want string
	}{
		"all":               {gateway.Key{}, tools + ",prompt hello,get hello,resource test://one,read"},
		"tools":             {gateway.Key{Only: []policy.ActionKind{policy.ActionCall}}, tools},
		"prompts":           {gateway.Key{Only: []policy.ActionKind{policy.ActionGet}}, "prompt hello,get hello"},
		"resources":         {gateway.Key{Only: []policy.ActionKind{policy.ActionRead}}, "resource test://one,read"},
		"read-only":         {gateway.Key{ReadOnly: true}, "tool look,call look,prompt hello,get hello,resource test://one,read"},
		"read-only-prompts": {gateway.Key{ReadOnly: true, Only: []policy.ActionKind{policy.ActionGet}}, "prompt hello,get hello"},
	} {
		c.key.Name, c.key.Servers = name, []string{"one"}
		secret := newKey(t, store, c.key)
		for path, prefix := range map[string]string{"/mcp": "one__", "/mcp/s/one": ""} {
			for _, client := range connections(t, url+path, secret) {
				got := used(t, client, prefix)
				slices.Sort(got)
				if want := strings.Split(c.want, ","); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
					t.Errorf("%s, %s %s:\n got %q\nwant %q", name, path, client.Revision(), got, want)
				}
				client.Close()
			}
		}
	}
}
