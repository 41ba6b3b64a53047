package mcp_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The handlers of a client determine the capability, which is declared at initialize or in each
// request.
//
// Requirement: ELI-01, ELI-02, ELI-03
func TestHandlersDeclareElicitation(t *testing.T) {
	accept := func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
	}
	s := newServer(t, nil)
	addTool(s, "declared", func(ctx context.Context) (string, error) {
		declared, err := json.Marshal(mcp.RequestFrom(ctx).Capabilities().Elicitation)
		return string(declared), err
	})
	for _, test := range []struct {
		name string
		opts mcp.ClientOptions
		want map[string]string // since revision
	}{
		{"neither", mcp.ClientOptions{}, map[string]string{"2024-11-05": "null"}},
		{"form", mcp.ClientOptions{Elicit: accept}, map[string]string{
			"2024-11-05": "null", "2025-06-18": `{}`, "2025-11-25": `{"form":{}}`,
		}},
		{"url", mcp.ClientOptions{ElicitURL: accept}, map[string]string{
			"2024-11-05": "null", "2025-11-25": `{"url":{}}`,
		}},
		{"both", mcp.ClientOptions{Elicit: accept, ElicitURL: accept}, map[string]string{
			"2024-11-05": "null", "2025-06-18": `{}`, "2025-11-25": `{"form":{},"url":{}}`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			onClients(t, s, &test.opts, func(t *testing.T, on mcptest.Combination, c *mcp.Client) {
				want := ""
				for _, revision := range mcptest.Revisions() {
					if w, ok := test.want[revision]; ok && on.Since(revision) {
						want = w
					}
				}
				if got, err := mcp.CallTool[string](t.Context(), c, "declared", nil); err != nil || got != want {
					t.Errorf("got %s, %v, want %s", got, err, want)
				}
			})
		})
	}
}

// A server may omit the mode of a form.
//
// Requirement: ELI-05
func TestMissingModeIsForm(t *testing.T) {
	var got []string
	record := func(handler string) func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			got = append(got, handler+" "+p.Mode)
			return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
		}
	}
	ask := func(_ context.Context, req *mcp.Request) (string, error) {
		if memberOf(t, req.Params, "inputResponses") != "" {
			return emptyContent, nil
		}
		return `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create",` +
			`"params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}}}`, nil
	}
	c := newScriptedClient(t, &mcp.ClientOptions{Elicit: record("Elicit"), ElicitURL: record("ElicitURL")}, ask)
	if _, err := c.CallTool(t.Context(), "x", nil); err != nil || len(got) != 1 || got[0] != "Elicit form" {
		t.Errorf("got handlers %q, %v, want Elicit with mode form", got, err)
	}
}

// The client validates the content of its handler with the form before it sends it.
//
// Requirement: ELI-11, ELI-25
func TestContentMustMatchTheForm(t *testing.T) {
	s := newServer(t, nil)
	addAskTool[struct {
		Text    string  `json:"text"`
		Number  float64 `json:"number"`
		Yes     bool    `json:"yes"`
		Several []color `json:"several,omitempty"`
	}](s, "ask", nil)
	for content, valid := range map[string]bool{
		`{"text":"a","number":1.5,"yes":false,"several":["red","blue"]}`: true,
		`{"text":"a","number":1.5,"yes":false}`:                          true,
		`{"text":"a","number":1.5,"yes":false,"several":[1]}`:            false,
		`{"text":"a","number":1.5,"yes":false,"several":[["red"]]}`:      false,
		`{"text":{"a":1},"number":1.5,"yes":false}`:                      false,
		`{"text":"a","number":"1.5","yes":false}`:                        false,
		`{"text":"a","number":1.5,"yes":null}`:                           false,
		`[]`:                                                             false,
	} {
		opts := &mcp.ClientOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(content)}, nil
		}}
		for _, on := range mcptest.Since("2025-11-25") {
			c := mcptest.Dial(t, s, on, opts)
			_, err := mcp.CallTool[string](t.Context(), c, "ask", nil)
			if (err == nil) != valid {
				t.Errorf("%s: %s: got %v, want valid %v", on, content, err, valid)
			}
		}
	}
}
