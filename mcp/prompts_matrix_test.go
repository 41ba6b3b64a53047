package mcp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// promptServer returns a server with prompts for the tests of this file.
func promptServer(t *testing.T, opts *mcp.ServerOptions) *mcp.Server {
	s := newServer(t, opts)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "review", Title: "Review", Description: "Review code.", Icons: []mcp.Icon{{Src: "data:image/png;base64,"}}},
		func(_ context.Context, a reviewArgs) (string, error) {
			return fmt.Sprint(a.Code, " ", a.Language, " ", a.Depth), nil
		})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "fails"}, func(context.Context, struct{}) (string, error) {
		return "", mcp.Errorf(mcp.CodeInvalidParams, "not on Sundays")
	})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "asks"}, func(ctx context.Context, _ struct{}) (string, error) {
		roots, err := mcp.Roots(ctx)
		if err != nil {
			return "", err
		}
		mcp.Progress(ctx, 1, 1, "")
		return "Look at " + roots[0].URI, nil
	})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "secret"}, func(context.Context, struct{}) (string, error) { return "secret", nil })
	return s
}

type promptResult struct {
	Description string
	Messages    []struct {
		Role    string
		Content struct{ Text string }
	}
}

// Requirement: PRM-03
func TestPromptsInEveryRevision(t *testing.T) {
	s := promptServer(t, nil)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		res := decode[promptResult](t, c.Call("prompts/get", object{"name": "review", "arguments": object{"code": "x = 1", "depth": "3"}}))
		if res.Description != "Review code." || len(res.Messages) != 1 || res.Messages[0].Role != "user" || res.Messages[0].Content.Text != "x = 1 go 3" {
			t.Errorf("got %+v", res)
		}
		list := string(c.Call("prompts/list", nil))
		for member, since := range map[string]string{
			`"name":"review"`: "2024-11-05", `"name":"code","description":"the code to review","required":true`: "2024-11-05",
			`"title":"Review"`: "2025-06-18", `"title":"Language"`: "2025-06-18", `"icons"`: "2025-11-25", `"ttlMs"`: "2026-07-28",
		} {
			if strings.Contains(list, member) != c.Since(since) {
				t.Errorf("want %s since %s, got %s", member, since, list)
			}
		}
	})
}

// Requirement: PRM-04, PRM-05
func TestInvalidRequestsAreInvalidParamsInEveryRevision(t *testing.T) {
	s := promptServer(t, nil)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, bad := range []struct {
			name string
			args object
			says string
		}{
			{"reviw", nil, "review"},
			{"review", nil, "code"},
			{"review", object{"code": "x", "depth": "9"}, "depth"},
			{"review", object{"code": "x", "depth": "deep"}, "depth"},
			{"review", object{"code": "x", "language": "cobol"}, "language"},
			{"review", object{"code": "x", "cod": "x"}, "cod"},
			{"review", object{"code": 7}, "code"},
			{"fails", nil, "not on Sundays"},
		} {
			params := object{"name": bad.name}
			if bad.args != nil {
				params["arguments"] = bad.args
			}
			_, err := c.Try("prompts/get", params)
			wantCode(t, fmt.Sprint(params), err, mcp.CodeInvalidParams)
			if err != nil && !strings.Contains(err.Message, bad.says) {
				t.Errorf("%v: got %q, want %q in it", params, err.Message, bad.says)
			}
		}
	})
}

// Requirement: PRM-11
func TestPromptsAskInEveryRevision(t *testing.T) {
	s := promptServer(t, nil)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		res := decode[promptResult](t, c.Call("prompts/get", object{"name": "asks", "_meta": object{"progressToken": "p"}}))
		if len(res.Messages) != 1 || res.Messages[0].Content.Text != "Look at file:///work" {
			t.Errorf("got %+v", res)
		}
		if got := len(c.Notifications(progressed)); got != 1 {
			t.Errorf("got %d progress notifications, want 1", got)
		}
	})
}

// Requirement: PRM-09
func TestVisibilityOfPrompts(t *testing.T) {
	s := promptServer(t, &mcp.ServerOptions{PageSize: 1, Visible: func(ctx context.Context, f mcp.Feature) bool {
		return f.Prompt == nil || f.Prompt.Name != "secret" || mcp.RequestFrom(ctx).Principal != nil
	}})
	count := func(t *testing.T, c *mcptest.Client) (n int) {
		params := object{}
		for {
			page := decode[struct {
				Prompts    []struct{ Name string }
				NextCursor *string
			}](t, c.Call("prompts/list", params))
			n += len(page.Prompts)
			if page.NextCursor == nil {
				return n
			}
			params["cursor"] = *page.NextCursor
		}
	}
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		known := c.Another(&mcptest.Options{Principal: &mcp.Principal{Subject: "ada"}})
		if guest, all := count(t, c), count(t, known); guest != 3 || all != 4 {
			t.Errorf("got %d prompts for a guest and %d for ada, want 3 and 4", guest, all)
		}
		known.Call("prompts/get", object{"name": "secret"})
		for _, name := range []string{"secret", "secreT", "secre"} {
			_, err := c.Try("prompts/get", object{"name": name})
			wantCode(t, name, err, mcp.CodeInvalidParams)
			if err != nil && err.Message != fmt.Sprintf("unknown prompt %q", name) {
				t.Errorf("%s: got %q, want the error of an unknown prompt", name, err.Message)
			}
		}
	})
}

// Requirement: CMP-02, CMP-03, CMP-04, CMP-05
func TestCompletionInEveryRevision(t *testing.T) {
	s := promptServer(t, nil)
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{city}/{street}", Name: "streets", Complete: map[string]mcp.CompleteFunc{
		"street": func(_ context.Context, value string, args map[string]string) ([]string, error) {
			all := make([]string, 150)
			for i := range all {
				all[i] = fmt.Sprint(value, i, " in ", args["city"])
			}
			return all, nil
		},
	}}, func(context.Context, map[string]string) (string, error) { return "", nil })
	type completion struct {
		Completion struct {
			Values  []string
			Total   int
			HasMore bool
		}
	}
	complete := func(ref object, argument, value string, with object) object {
		params := object{"ref": ref, "argument": object{"name": argument, "value": value}}
		if with != nil {
			params["context"] = object{"arguments": with}
		}
		return params
	}
	prompt := object{"type": "ref/prompt", "name": "review"}
	streets := object{"type": "ref/resource", "uri": "x://{city}/{street}"}
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		got := decode[completion](t, c.Call("completion/complete", complete(prompt, "language", "p", nil))).Completion
		if fmt.Sprint(got) != "{[python] 1 false}" {
			t.Errorf("completion from the enum: got %v, want [python]", got)
		}
		var with object // CMP-05
		if c.Since("2025-06-18") {
			with = object{"city": "Berlin"}
		}
		got = decode[completion](t, c.Call("completion/complete", complete(streets, "street", "A", with))).Completion
		if len(got.Values) != 100 || got.Total != 150 || !got.HasMore || strings.Contains(got.Values[99], "Berlin") != (with != nil) {
			// Requirement: CMP-03
			t.Errorf("got %d of %d, %v, %q", len(got.Values), got.Total, got.HasMore, got.Values[99])
		}
		for _, bad := range []object{
			complete(prompt, "colour", "", nil), complete(object{"type": "ref/prompt", "name": "none"}, "a", "", nil),
			complete(object{"type": "ref/tool", "name": "review"}, "a", "", nil), {"ref": prompt}, {},
		} {
			_, err := c.Try("completion/complete", bad)
			wantCode(t, fmt.Sprint(bad), err, mcp.CodeInvalidParams)
		}
	})
}
