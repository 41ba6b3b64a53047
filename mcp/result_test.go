package mcp_test

import (
	"context"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestInvalidUTF8IsRefused(t *testing.T) {
	const broken = "\xff"
	nothing := func(context.Context, struct{}) (string, error) { return "", nil }
	for name, register := range map[string]func(s *mcp.Server){
		"server": func(*mcp.Server) { mcp.NewServer("s", broken, nil) },
		"tool":   func(s *mcp.Server) { mcp.AddTool(s, &mcp.Tool{Name: "x", Title: broken}, nothing) },
		"prompt": func(s *mcp.Server) { mcp.AddPrompt(s, &mcp.Prompt{Name: "x", Description: broken}, nothing) },
		"argument": func(s *mcp.Server) {
			mcp.AddPrompt(s, &mcp.Prompt{Name: "x", Arguments: []mcp.PromptArgument{{Name: broken}}}, nothing)
		},
		"resource": func(s *mcp.Server) {
			mcp.AddResource(s, &mcp.Resource{URI: "x://x", Name: broken}, func(context.Context, string) (string, error) { return "", nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("got no panic")
				}
			}()
			register(newServer(t, nil))
		})
	}
	for _, res := range []*mcp.DiscoverResult{{Instructions: broken}, {SupportedVersions: []string{broken}}} {
		_, err := mcp.AppendResult(nil, t.Context(), mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return res, nil }),
			modernRequest(t, nil, "server/discover", object{}))
		wantCode(t, "a description", err, mcp.CodeInternalError)
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// answered returns the result of a handler for a modern request.
func answered(t *testing.T, method string, h mcp.HandlerFunc) string {
	t.Helper()
	got, err := mcp.AppendResult(nil, t.Context(), h, modernRequest(t, nil, method, object{}))
	if err != nil {
		t.Fatal(method, err)
	}
	return string(got)
}

// A result of an extension may embed one of the protocol and add members.
func TestResultsMayEmbedProtocolResults(t *testing.T) {
	list := mcp.NewServer("s", "1", nil)
	features(list)
	tools, err := list.ServeMCP(t.Context(), modernRequest(t, nil, "tools/list", object{}))
	if err != nil {
		t.Fatal(err)
	}
	const hints = `,"ttlMs":0,"cacheScope":"private"}`
	for name, res := range map[string]mcp.Result{
		"discover": &struct {
			mcp.DiscoverResult
			More string `json:"more"`
		}{More: "x"},
		"list": &struct {
			mcp.ListToolsResult
			More string `json:"more"`
		}{*tools.(*mcp.ListToolsResult), "x"},
	} {
		got := answered(t, "server/discover", func(context.Context, *mcp.Request) (mcp.Result, error) { return res, nil })
		if want := `{"resultType":"complete",` + strings.TrimSuffix(encoded(t, res)[1:], "}") + hints; got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
}
