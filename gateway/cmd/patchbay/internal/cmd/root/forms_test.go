package root

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/visible"
)

// everyField is a form with a field of each kind.
//
// Spec: client/elicitation (2026-07-28), Requested Schema.
const everyField = `{"type": "object", "required": ["name", "colour", "tags"], "properties": {
	"name": {"type": "string", "title": "Your name", "description": "As friends call you",
		"minLength": 2, "maxLength": 10},
	"mail": {"type": "string", "format": "email"},
	"day": {"type": "string", "format": "date", "default": "2026-01-02"},
	"age": {"type": "integer", "minimum": 18, "maximum": 99},
	"ratio": {"type": "number", "exclusiveMinimum": 0},
	"agree": {"type": "boolean", "default": true},
	"colour": {"type": "string", "enum": ["red", "green"], "enumNames": ["Red", "Green"]},
	"size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}],
		"default": "l"},
	"plain": {"type": "string", "enum": ["1", "2"]},
	"tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 2},
	"more": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "Ex"}, {"const": "y", "title": "Why"}]},
		"default": ["x"]}
}}`

// addForms adds tools that use elicitation and sampling.
func addForms(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{Name: "form"}, func(ctx context.Context, _ struct{}) (stdjson.RawMessage, error) {
		answer, err := mcp.Ask[stdjson.RawMessage](ctx, "form", "Who are you? "+hostile,
			&mcp.AskOptions{Schema: []byte(everyField)})
		return answer, toolError(err)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "page"}, func(ctx context.Context, _ struct{}) (string, error) {
		err := mcp.AskURL(ctx, "page", "https://example.com/a?b=c%20d", "Please sign in")
		return "went", toolError(err)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "model"}, func(ctx context.Context, _ struct{}) (string, error) {
		r, err := mcp.Sample(ctx, "model",
			&mcp.CreateMessageParams{MaxTokens: 9, SystemPrompt: "Be brief.", Messages: []mcp.SamplingMessage{
				{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("How is the weather?"),
					&mcp.ImageContent{Data: []byte("PNG"), MIMEType: "image/png"}}}}})
		if err != nil {
			return "", toolError(err)
		}
		return r.Model + " says " + r.Text(), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "both"}, func(ctx context.Context, _ struct{}) (string, error) {
		var a, b string
		err := mcp.AskAll(ctx, mcp.FormQuestion("a", "First?", &a, nil), mcp.FormQuestion("b", "Second?", &b, nil))
		return a + b, toolError(err)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "where"}, func(ctx context.Context, _ struct{}) (string, error) {
		roots, err := mcp.Roots(ctx)
		if err != nil {
			return "", err
		}
		return roots[0].Name, nil
	})
}

// toolError turns a decline or cancel into a tool error. It returns other errors unchanged.
func toolError(err error) error {
	switch {
	case errors.Is(err, mcp.ErrDeclined):
		return errors.New("declined")
	case errors.Is(err, mcp.ErrDismissed):
		return errors.New("cancelled")
	}
	return err
}

// lines joins input lines.
func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }

// All types of fields can be filled in, in both eras. Invalid values are prompted for again. The
// form names the server, can be edited before it is sent, and is checked against its schema.
//
// Requirement: ELI-08, ELI-09, ELI-11, ELI-14
func TestFormsAreFilledInOnTheTerminal(t *testing.T) {
	url := listenHTTP(t, newOddServer())
	good := lines("Ann", "", "", "", "", "", "2", "", "", "a,b", "", "y")
	const defaults = `{"name":"Ann","day":"2026-01-02","agree":true,"colour":"green","size":"l",` +
		`"tags":["a","b"],"more":["x"]}`
	for name, test := range map[string]struct {
		typed  string
		result string
		shown  []string // on the terminal
	}{
		"required fields and defaults": {good, defaults,
			[]string{"Your name (at least 2 characters, at most 10 characters, required)",
				"As friends call you", "1) red  Red", "y or n [y]", "value or number [l]",
				`Who are you? red \x1b[31malert`}},
		"every field": {
			lines("Ann", "ann@example.com", "2025-12-31", "42", "0.5", "n", "Red", "Small", "1", "1, c", "Why,x,y", ""),
			`{"name":"Ann","mail":"ann@example.com","day":"2025-12-31","age":42,"ratio":0.5,"agree":false,` +
				`"colour":"red","size":"s","plain":"1","tags":["a","c"],"more":["y","x"]}`, nil},
		"invalid values first": { // Requirement: ELI-25
			lines("", "A", "Annabella Maria", "Ann", "no-address", "a@b", "tomorrow", "", "17", "4.2", "x", "18", "0",
				"1e-3", "perhaps", "yes", "blue", "3", "Green", "", "", "", "d", "a,b,c", "b", "z", "", "y"),
			`{"name":"Ann","mail":"a@b","day":"2026-01-02","age":18,"ratio":1e-3,"agree":true,` +
				`"colour":"green","size":"l","tags":["b"],"more":["x"]}`,
			[]string{"a value is required", "want at least 2", "want at most 10", `got "no-address", want format email`,
				`got "tomorrow"`, "18", `got "x", want an integer`, `got "perhaps", want y or n`, `got "blue"`,
				"want at most 2"}},
		"form filled in again before it is sent": {
			lines("Ann", "", "", "", "", "", "1", "", "", "a", "", "n") + good, defaults,
			[]string{"fill in the form again"}},
	} {
		for _, revision := range []string{"2026-07-28", "2025-11-25"} {
			t.Run(name+"/"+revision, func(t *testing.T) {
				o := atTerminal(t, test.typed, func(p *cmdutil.Factory) { p.IO.Out.Terminal = false }, "call",
					"--revision", revision, url, "form")
				if o.status != exit.OK || strings.TrimSpace(o.stdout) != test.result {
					t.Errorf("got %d %q, want %d %s; the screen: %s", o.status, o.stdout, exit.OK, test.result, o.stderr)
				}
				for _, text := range append(test.shown, `server name "odd red \\x1b[31malert`, url) {
					if !strings.Contains(o.stderr, text) {
						t.Errorf("stderr does not contain %q: %s", text, o.stderr)
					}
				}
				unsafe := func(r rune) bool { return visible.Hidden(r) && r != '\n' && r != '\r' && r != '\x1b' }
				if i := strings.IndexFunc(o.stderr, unsafe); i >= 0 {
					t.Errorf("stderr contains %q unescaped", o.stderr[i:min(len(o.stderr), i+4)])
				}
			})
		}
	}
}

// Requirement: ELI-14
func TestFormsCanBeDeclinedAndCancelled(t *testing.T) {
	url := listenHTTP(t, newOddServer())
	for typed, want := range map[string]string{
		lines(":decline"):            "declined",
		lines(":cancel"):             "cancelled",
		"":                           "cancelled",
		lines("Ann", "", ":decline"): "declined",
		lines("Ann", "", "", "", "", "", "1", "", "", "a", "", ":cancel"): "cancelled",
	} {
		o := atTerminal(t, typed, nil, "call", url, "form")
		if o.status != exit.Tool || !strings.Contains(o.stderr, want) {
			t.Errorf("%q: got %d, %s, want %d, %s", typed, o.status, o.stderr, exit.Tool, want)
		}
	}
	o := atTerminal(t, lines(`""`, "y", "b", "y"), func(p *cmdutil.Factory) { p.IO.Out.Terminal = false }, "call", url, "both")
	if o.status != exit.OK || o.stdout != "b\n" {
		t.Errorf("two questions: got %d, %q, %s, want %d, b", o.status, o.stdout, o.stderr, exit.OK)
	}
}

// A page is opened only if the user agrees, and only the page that was shown, in full and with its
// host.
//
// Requirement: ELI-15, ELI-16
func TestPagesOpenWithConsentOnly(t *testing.T) {
	url := listenHTTP(t, newOddServer())
	const page = "https://example.com/a?b=c%20d"
	for typed, want := range map[string]struct {
		opened, output string
		status         int
	}{
		lines("y"):           {page, "went", exit.OK},
		lines("what", "yes"): {page, "went", exit.OK},
		lines("n"):           {"", "declined", exit.Tool},
		lines(""):            {"", "declined", exit.Tool},
		lines(":decline"):    {"", "declined", exit.Tool},
		lines(":cancel"):     {"", "cancelled", exit.Tool},
		"":                   {"", "cancelled", exit.Tool},
	} {
		var opened string
		o := atTerminal(t, typed, func(p *cmdutil.Factory) {
			p.Ask.Open = func(_ context.Context, page string) error { opened += page; return errors.New("no browser") }
		}, "call", url, "page")
		if o.status != want.status || opened != want.opened || !strings.Contains(o.stdout+o.stderr, want.output) {
			t.Errorf("%q: got %d, opened %q, %s%s, want %+v", typed, o.status, opened, o.stdout, o.stderr, want)
		}
		if !strings.Contains(o.stderr, page) || !strings.Contains(o.stderr, "host example.com") {
			t.Errorf("%q: stderr does not show the page and its host: %s", typed, o.stderr)
		}
		if opened != "" && !strings.Contains(o.stderr, "open the page yourself") {
			t.Errorf("%q: stderr does not show the error of the browser: %s", typed, o.stderr)
		}
	}
	for _, args := range [][]string{{"call", url, "page"}, {"call", "--no-input", url, "page"}} {
		if o := patchbay(t, "y\n", args...); o.status != exit.Tool || !strings.Contains(o.stderr, "declined") {
			t.Errorf("%q: got %d, %s, want %d, declined", args, o.status, o.stderr, exit.Tool)
		}
	}
}

// Requirement: ELI-16
func TestPagesAreNotFetched(t *testing.T) {
	var requests atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer web.Close()
	url := listenHTTP(t, newPageServer(web.URL))
	for _, typed := range []string{lines("y"), lines("n")} {
		ignore := func(p *cmdutil.Factory) { p.Ask.Open = func(context.Context, string) error { return nil } }
		if o := atTerminal(t, typed, ignore, "call", url, "page"); !strings.Contains(o.stderr, web.URL) {
			t.Errorf("%q: stderr does not show the page: %s", typed, o.stderr)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the command sent %d requests to the page, want 0", n)
	}
}

// Requirement: ELI-18
func TestEncodedHostNamesAreMarked(t *testing.T) {
	const warning = "the host name is encoded"
	for page, want := range map[string]bool{
		"https://example.com/xn--a":    false,
		"https://xn--80ak6aa92e.com/":  true,
		"https://www.XN--80ak6aa92e.c": true,
	} {
		o := atTerminal(t, lines("n"), nil, "call", listenHTTP(t, newPageServer(page)), "page")
		if !strings.Contains(o.stderr, "host ") || strings.Contains(o.stderr, warning) != want {
			t.Errorf("%s: got %s, want the host, and a warning: %t", page, o.stderr, want)
		}
	}
}

// newPageServer returns a server with a tool that asks the user to open a page.
func newPageServer(page string) *mcp.Server {
	s := mcp.NewServer("pages", "1.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "page"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "opened", toolError(mcp.AskURL(ctx, "page", page, "Please sign in"))
	})
	return s
}

func TestUserReviewsSamplingOnTheTerminal(t *testing.T) {
	url := listenHTTP(t, newOddServer())
	for typed, want := range map[string]string{
		lines("It rains.", "Much.", "."): "human says It rains.\nMuch.",
		"It rains.":                      "human says It rains.",
		lines(":decline"):                "the user refused",
		"":                               "the user refused",
	} {
		for _, revision := range []string{"2026-07-28", "2025-11-25"} {
			o := atTerminal(t, typed, nil, "call", "--revision", revision, url, "model")
			if !strings.Contains(o.stdout+o.stderr, want) || (o.status == exit.OK) != strings.HasPrefix(want, "human") {
				t.Errorf("%q in %s: got %d, %s%s, want %q", typed, revision, o.status, o.stdout, o.stderr, want)
			}
			for _, text := range []string{"system: Be brief.", "user: How is the weather?",
				"user: [image, image/png, 3 B]"} {
				if !strings.Contains(o.stderr, text) {
					t.Errorf("stderr does not contain %q: %s", text, o.stderr)
				}
			}
		}
	}
}

func TestAnswersFileAnswersQuestions(t *testing.T) {
	url := listenHTTP(t, newOddServer())
	file := filepath.Join(t.TempDir(), "answers.json")
	run := func(text, tool string) outcome {
		writeFile(t, file, text)
		return patchbay(t, "", "call", "--answers", file, url, tool)
	}
	const form = `{"name":"Bob","colour":"red","tags":["a"]}`
	for _, test := range []struct {
		answers, tool string
		status        int
		output        string
	}{
		{`{"elicitation": [{"content": ` + form + `}]}`, "form", exit.OK, `"name":"Bob"`},
		{`{"elicitation": [{"message": "other", "action": "cancel"}, {"message": "Who are", "content": ` + form + `}]}`,
			"form", exit.OK, `"name":"Bob"`},
		{`{"elicitation": [{"field": "mane", "action": "cancel"}, {"field": "name", "content": ` + form + `}]}`,
			"form", exit.OK, `"name":"Bob"`},
		{`{"elicitation": [{"action": "decline"}]}`, "form", exit.Tool, "declined"},
		{`{"elicitation": [{"action": "cancel"}]}`, "form", exit.Tool, "cancelled"},
		{`{}`, "form", exit.Tool, "not a terminal"},
		{`{"elicitation": [{"content": {"name": "B"}}]}`, "form", exit.Failure,
			"/name: got 1 character, want at least 2"},
		{`{"elicitation": [{"content": {"value": "1"}}, {"content": {"value": "2"}}]}`, "both", exit.OK, "12"},
		{`{"elicitation": [{"message": "Second", "content": {"value": "2"}}, {"content": {"value": "1"}}]}`,
			"both", exit.OK, "12"},
		{`{"elicitation": [{"content": {"value": "1"}}]}`, "both", exit.Tool, "declined"},
		{`{"elicitation": [{"content": {}}, {"action": "accept"}]}`, "page", exit.OK, "open it yourself"},
		{`{"elicitation": [{"action": "decline"}]}`, "page", exit.Tool, "declined"},
		{`{"sampling": [{"message": "weather", "text": "Fine.", "model": "m"}]}`, "model", exit.OK, "m says Fine."},
		{`{"sampling": [{"result": {"role": "assistant", "content": [{"type": "text", "text": "Hm."}], "model": "n"}}]}`,
			"model", exit.OK, "n says Hm."},
		{`{"sampling": [{"action": "decline"}]}`, "model", exit.Failure, "refused"},
		{`{"sampling": [{"text": "x"}], "more": 1}`, "model", exit.Usage, "more"},
		{`{"sampling": [{}]}`, "model", exit.Usage, "sampling[0]: want text"},
		{`{"sampling": [{"content": {}}]}`, "model", exit.Usage, "sampling[0]"},
		{`{"elicitation": [{}]}`, "form", exit.Usage, "elicitation[0]: want content"},
		{`{"elicitation": [{"text": "x"}]}`, "form", exit.Usage, "elicitation[0]"},
		{`{"elicitation": [{"content": 1}]}`, "form", exit.Usage, "want an object"},
		{`{"elicitation": [{"action": "maybe"}]}`, "form", exit.Usage, `invalid action "maybe"`},
		{`{"elicitation": [null]}`, "form", exit.Usage, "null"},
		{`[`, "form", exit.Usage, "answers.json"},
	} {
		o := run(test.answers, test.tool)
		if o.status != test.status || !strings.Contains(o.stdout+o.stderr, test.output) {
			t.Errorf("%s for %s: got %d, %s%s, want %d, %q", test.answers, test.tool, o.status, o.stdout,
				o.stderr, test.status, test.output)
		}
	}
	if o := patchbay(t, "", "call", "--answers", file+".not", url, "form"); o.status != exit.Usage {
		t.Errorf("without the file: got %d, %s, want %d", o.status, o.stderr, exit.Usage)
	}
}
