package explore

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// An editor is the form or the JSON text of the arguments of an item.
type editor struct {
	At      explorePlace
	Item    *item
	Form    *form.Form // nil for JSON
	Text    string     // JSON
	Err     string
	Invalid bool // the arguments violate the schema, and may be sent all the same
	Timeout int  // in seconds
	Role    page.Role

	Pinned     string   // the selected revision; "" for the connection of the host
	Negotiated string   // the revision of that connection, or ""
	Revisions  []string // that may be selected
	AsTask     bool     // the call becomes a task, if the server supports tasks
	Suggested  *suggestion
}

// NoForm reports whether the params are only edited as JSON.
func (ed *editor) NoForm() bool { return ed.Item.Kind == kindMethods }

// A draft is an editor whose content is not sent.
type draft struct {
	id     int
	person string
	editor editor
	size   int // of the posted form and the text, in bytes
}

// editorOf returns the draft of the URL, the arguments of the run that is shown, or an empty form.
func (e *explorer) editorOf(r *page.Request, p *explorePage) *editor {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range e.drafts {
		if d.id == p.At.Draft && d.person == question.PersonOf(r.Principal) && d.editor.At.Name == p.At.Name {
			d.editor.At.Tab, d.editor.Role = p.At.Tab, r.Role
			return new(d.editor)
		}
	}
	ed := &editor{At: p.At, Item: p.Item, Timeout: int(defaultRunTimeout.Seconds()), Role: r.Role,
		Revisions: e.opts.revisions()}
	switch {
	case p.Run == nil && ed.NoForm():
		ed.Text = "{}"
		return ed
	case p.Run == nil:
		ed.Form = form.New(p.Item.Schema)
		return ed
	}
	ed.Timeout, ed.Text = int(p.Run.Timeout.Seconds()), string(p.Run.Input)
	ed.Pinned, ed.AsTask = p.Run.Pinned, p.Run.AsTask
	if parsed, err := form.Parse(p.Item.Schema, p.Run.Input); err == nil && !p.Run.FromJSON {
		ed.Form = parsed
	}
	return ed
}

// keep stores a draft and returns its page.
func (e *explorer) keep(r *page.Request, ed *editor) explorePlace {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	ed.At.Draft, ed.At.Run = e.last, 0
	e.drafts = append(e.drafts, &draft{e.last, question.PersonOf(r.Principal), *ed,
		len(r.PostForm.Encode()) + len(ed.Text)})
	size := 0
	for i, d := range slices.Backward(e.drafts) {
		if size += d.size; size > maxDraftBytes || len(e.drafts)-i > maxDrafts {
			e.drafts = slices.Delete(e.drafts, 0, i+1)
			break
		}
	}
	return ed.At
}

// actRun runs the posted arguments. If a button of the form was pressed, or the arguments are
// invalid, it shows the editor instead.
func (e *explorer) actRun(r *page.Request) (*page.Outcome, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	at := placeOf(url.Values{"server": {r.PostFormValue("at-server")}, "kind": {r.PostFormValue("at-kind")},
		"name": {r.PostFormValue("at-name")}, "q": {r.PostFormValue("at-q")}, "run": {r.PostFormValue("at-run")}})
	of := e.catalogues.of(at.Server, r.Principal).find(at.Kind, at.Name)
	if old := e.runs.find(at.Run, r.Principal); of == nil && old != nil && old.Item.Name == at.Name {
		of = old.Item
	}
	if of == nil {
		of = unlisted(at)
	}
	if of == nil {
		return nil, page.Problem(http.StatusNotFound, "unknown_item", "the server lists no %q: refresh", at.Name)
	}
	seconds, err := strconv.Atoi(r.PostFormValue("at-timeout"))
	if err != nil {
		seconds = 0 // which is invalid
	}
	ed := &editor{At: at, Item: of, Timeout: seconds, Role: r.Role, Revisions: e.opts.revisions(),
		Negotiated: e.negotiated(r, at.Server), Pinned: r.PostFormValue("at-revision"),
		AsTask: of.Kind == kindTools && r.PostFormValue("at-task") != ""}
	pressed, err := e.suggest(r, ed)
	var input stdjson.RawMessage
	if !pressed && err == nil {
		input, err = ed.read(r.PostForm)
	}
	if err != nil {
		return nil, invalidRun(err)
	}
	if input == nil {
		location := e.keep(r, ed)
		return &page.Outcome{Location: location.URL(),
			Fragments: []page.Fragment{{ID: "editor", Body: ed.part()}}}, nil
	}
	started := &run{Server: at.Server, Item: of, Input: input, FromJSON: ed.Form == nil,
		Timeout: time.Duration(seconds) * time.Second, Pinned: ed.Pinned, AsTask: ed.AsTask}
	out, err := e.begin(r, started)
	if err != nil {
		return nil, err
	}
	if at.Run == 0 { // the page shows the last run
		p := &explorePage{At: at, Run: e.runPage(r, started), Role: r.Role}
		out.Fragments = []page.Fragment{{ID: "editor", Body: ed.part()}, {ID: "run", Body: p.runPart()}}
	}
	at.Run = started.ID
	out.Location = at.URL()
	return out, nil
}

func invalidRun(err error) error {
	return page.Problem(http.StatusBadRequest, "invalid_run", "%v", err)
}

// read fills in the editor with posted values. It returns the arguments, or nil if the editor must
// be shown: a button was pressed or a value is invalid.
func (ed *editor) read(posted url.Values) (stdjson.RawMessage, error) {
	do := posted.Get("do")
	var input stdjson.RawMessage
	if posted.Get("mode") == "json" {
		text := strings.ReplaceAll(posted.Get("text"), "\r\n", "\n")
		ed.Text = text
		if err := checkArguments(text); err != nil {
			ed.Err = err.Error()
			return nil, nil
		}
		input = stdjson.RawMessage(strings.TrimSpace(text))
		if do == "form" {
			var err error
			if ed.Form, err = form.Parse(ed.Item.Schema, input); err != nil {
				ed.Err = "The form cannot show this text: " + err.Error() + "."
			}
			return nil, nil
		}
	} else {
		var err error
		if ed.Form, err = form.Read(ed.Item.Schema, posted); err != nil {
			return nil, err
		}
		if form.Pressed(posted) {
			return nil, nil
		}
		if input, err = ed.Form.JSON(); err != nil {
			ed.Err = "Not sent: " + err.Error() + "."
			return nil, nil
		}
		if do == "json" {
			ed.Form, ed.Text = nil, indentedExactly(input)
			return nil, nil
		}
	}
	if do != "anyway" && ed.Item.Schema != nil && !ed.check(input) {
		return nil, nil
	}
	return input, nil
}

// check validates the arguments and reports whether they are valid.
func (ed *editor) check(input []byte) bool {
	schema, err := jsonschema.Compile(ed.Item.Schema)
	if err != nil {
		return true // the server decides
	}
	err = schema.Validate(input)
	if err == nil {
		return true
	}
	ed.Err, ed.Invalid = "Not sent: the arguments violate the schema.", true
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	switch {
	case ed.Form != nil:
		ed.Form.Mark(err)
	case ok:
		for _, p := range invalid.Problems {
			ed.Err += "\n" + strings.TrimPrefix(p.Path+": "+p.Text, ": ")
		}
	default:
		ed.Err += "\n" + err.Error()
	}
	return false
}

// checkArguments returns an error with the line and column unless a text is a JSON object.
func checkArguments(text string) error {
	err := rawjson.Valid([]byte(text))
	if err == nil && rawjson.Kind([]byte(text)) != '{' {
		return errors.New("the arguments must be a JSON object")
	}
	syntax, ok := errors.AsType[*stdjson.SyntaxError](stdjson.Unmarshal([]byte(text), new(any)))
	if err == nil || !ok {
		return err
	}
	before := text[:min(int(max(syntax.Offset-1, 0)), len(text))]
	line, column := strings.Count(before, "\n")+1, len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))+1
	return fmt.Errorf("line %d, column %d: %w", line, column, syntax)
}

// indentedExactly returns JSON with line ends, and the same numbers and strings.
func indentedExactly(raw []byte) string {
	var b bytes.Buffer
	if stdjson.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
