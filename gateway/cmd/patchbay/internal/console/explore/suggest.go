package explore

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// suggestTimeout bounds the wait of a page for the suggestions of a server.
	suggestTimeout = 10 * time.Second
	// maxSuggested limits the suggested values, as the protocol does. maxSuggestedValue limits each
	// value, in bytes, because a button contains the value.
	maxSuggested, maxSuggestedValue = 100, 500
)

// A suggestion contains values that the server suggests for an argument.
type suggestion struct {
	Name   string
	Values []string
	More   bool // the server knows more values
}

// CanSuggest reports whether the server may suggest values for the arguments.
func (ed *editor) CanSuggest() bool {
	return ed.Form != nil && (ed.Item.Kind == kindPrompts || ed.Item.Kind == kindTemplates)
}

// suggest handles the buttons that request values for an argument, or use a suggested value. It
// reports whether such a button was pressed.
func (e *explorer) suggest(r *page.Request, ed *editor) (pressed bool, err error) {
	posted := r.PostForm
	isPrompt := ed.Item.Kind == kindPrompts
	if !isPrompt && ed.Item.Kind != kindTemplates || !posted.Has("suggest") && !posted.Has("use") {
		return false, nil
	}
	if ed.Form, err = form.Read(ed.Item.Schema, posted); err != nil {
		return true, err
	}
	name := posted.Get("suggest")
	if posted.Has("use") {
		name = posted.Get("suggested")
	}
	arguments, pointer := map[string]string{}, ""
	for _, f := range ed.Form.Root.Fields {
		if f.Name == name {
			pointer = f.Pointer
		} else if f.Text != "" {
			arguments[f.Name] = f.Text
		}
	}
	switch {
	case pointer == "":
		return true, nil // the form no longer contains the argument
	case posted.Has("use"):
		posted.Set(pointer, posted.Get("use"))
		posted.Del(form.PrefixRaw + pointer)
		ed.Form, err = form.Read(ed.Item.Schema, posted)
		return true, err
	}
	p := &mcp.CompleteParams{Template: ed.Item.Name, Argument: name, Value: posted.Get(pointer), Arguments: arguments}
	if isPrompt {
		p.Prompt, p.Template = p.Template, ""
	}
	found, err := e.complete(r, ed.At.Server, p)
	if err != nil {
		ed.Err = "No suggestions: " + err.Error()
		return true, nil
	}
	ed.Suggested = &suggestion{Name: name, More: found.HasMore}
	for _, value := range found.Values {
		if len(value) <= maxSuggestedValue && len(ed.Suggested.Values) < maxSuggested {
			ed.Suggested.Values = append(ed.Suggested.Values, value)
		}
	}
	return true, nil
}

// complete asks a server for values.
func (e *explorer) complete(r *page.Request, server string, p *mcp.CompleteParams) (*mcp.Completion, error) {
	ctx, cancel := context.WithTimeout(r.Context(), suggestTimeout)
	defer cancel()
	client, err := e.catalogues.client(ctx, server, r.Principal)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Complete(ctx, p)
}
