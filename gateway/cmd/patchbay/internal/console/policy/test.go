package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A test is a request that a person asks about, with the decision.
type test struct {
	On, Caller, Scopes, Server, Tool, Arguments string

	Decision *decision // nil before the test
	Err      string    // why there is no decision
}

// A decision is the response of POST /policy:explain.
type decision struct {
	verdict
	DryRun []string `json:"dryRun"`
	Rules  []step   `json:"rules"`
}

// A verdict is a decision without its steps.
type verdict struct {
	Do      string `json:"do"`
	Rule    string `json:"rule"`
	Reason  string `json:"reason"`
	Channel string `json:"channel"`
}

// Kind returns the class of the decision, which selects its colour and symbol.
func (v *verdict) Kind() string { return kindOf(v.Do) }

// By returns the name of the rule that decided.
func (v *verdict) By() string {
	if v.Rule == "" {
		return "the default"
	}
	return "rule " + v.Rule
}

// A step is a rule that was evaluated.
type step struct {
	Rule    string `json:"rule"`
	Do      string `json:"do"`
	Mode    string `json:"mode"`
	Matches bool   `json:"matches"`
	Error   string `json:"error"`
}

// Kind returns the class of the step.
func (s *step) Kind() string {
	switch {
	case s.Error != "":
		return "warn"
	case s.Matches:
		return kindOf(s.Do)
	}
	return "idle"
}

// An action is a request of a caller for the admin API.
type action struct {
	On        string          `json:"on"`
	Server    string          `json:"server"`
	Target    string          `json:"target"`
	Arguments json.RawMessage `json:"args,omitempty"`
	Subject   string          `json:"subject,omitempty"`
	Scopes    []string        `json:"scopes,omitempty"`
}

// explain asks which rule decides about the request of a form.
func (s *screen) explain(r *page.Request) (*page.Outcome, error) {
	t := test{On: r.PostFormValue("on"), Caller: strings.TrimSpace(r.PostFormValue("caller")),
		Scopes: r.PostFormValue("scopes"), Server: r.PostFormValue("server"),
		Tool: strings.TrimSpace(r.PostFormValue("tool")), Arguments: r.PostFormValue("args")}
	arguments, err := plain("arguments", t.Arguments)
	if err == nil {
		var d decision
		asked := &action{t.On, t.Server, t.Tool, arguments, t.Caller, strings.Fields(t.Scopes)}
		err = r.Post("/policy:explain", asked, &d)
		if err == nil {
			t.Decision = &d
		}
	}
	if err != nil {
		t.Err = page.ErrorText(err)
	}
	location, err := page.Link("/policy", "test", s.tests.Add(t))
	return &page.Outcome{Location: location + "#test"}, err
}

// plain returns the JSON of a text with comments; nil for an empty text. Errors name the text as
// kind.
func plain(kind, text string) (json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	raw, err := config.Plain([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("invalid %s: %w", kind, err)
	}
	return raw, nil
}
