package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

const (
	// maxCompletions is the maximum number of values in a result, by the specification.
	maxCompletions = 100
	// maxCompletedValue bounds the text that is to be completed.
	maxCompletedValue = 8 << 10
)

// A CompleteFunc returns suggested values, the best first, for an argument of a prompt or a
// variable of a URI template; value is the text typed so far. args contains the values of other
// arguments, which clients of revisions before 2025-06-18 do not send. A client receives the first
// 100 values and their total number. Every caller who may use the feature sees the values. An error
// is logged and not shown, except an [*Error].
//
// Spec: server/utilities/completion.
type CompleteFunc func(ctx context.Context, value string, args map[string]string) ([]string, error)

// CompleteParams are the parameters of [Client.Complete]. Exactly one of Prompt and Template is set.
//
// Spec: server/utilities/completion; schema CompleteRequestParams.
type CompleteParams struct {
	Prompt   string // the name of the prompt that the argument belongs to
	Template string // the URI template whose variable the argument is
	Argument string // the name of the argument
	Value    string // the text typed so far
	// Arguments contains the values of other arguments. Servers of revisions before 2025-06-18 do not
	// receive them.
	Arguments map[string]string
}

// A CompleteResult is the result of completion/complete.
//
// Spec: server/utilities/completion; schema CompleteResult.
type CompleteResult struct {
	Completion Completion `json:"completion"`
	Meta       `json:"-"`
	complete
}

// A Completion contains the suggested values of an argument.
type Completion struct {
	Values  []string `json:"values"`         // the best first, at most 100
	Total   *int64   `json:"total,omitzero"` // total number of values; nil if unknown
	HasMore bool     `json:"hasMore"`        // whether there are more than Values
}

type completions struct {
	of    string   // the feature, for messages
	names []string // its arguments
	funcs map[string]CompleteFunc
}

// newCompletions merges the completions derived from types with the given completions, which take
// precedence. The server declares the capability as soon as a feature supports completion.
func (s *Server) newCompletions(
	of string, names []string, derived, given map[string]CompleteFunc,
) (completions, error) {
	c := completions{of: of, names: names, funcs: derived}
	for name, f := range given {
		switch {
		case !slices.Contains(names, name):
			return c, fmt.Errorf("Complete[%q]: no such argument, want one of %q", name, names)
		case f == nil:
			return c, fmt.Errorf("Complete[%q] is nil", name)
		}
		put(&c.funcs, name, f)
	}
	if len(c.funcs) > 0 {
		s.completes.Store(true)
	}
	return c, nil
}

// completeFrom returns a CompleteFunc for a list of values: the values that begin with the typed
// text come first, then the values that contain it, ignoring case.
func completeFrom(values []string) CompleteFunc {
	return func(_ context.Context, typed string, _ map[string]string) ([]string, error) {
		typed = strings.ToLower(typed)
		place := func(value string) int { return strings.Index(strings.ToLower(value), typed) }
		found := slices.DeleteFunc(slices.Clone(values), func(value string) bool { return place(value) < 0 })
		slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(min(place(a), 1), min(place(b), 1)) })
		return found, nil
	}
}

type completeParams struct {
	kind   string // ref/prompt or ref/resource
	target string // a prompt's name, a URI or a URI template
	CompleteParams
}

func (s *Server) complete(ctx context.Context, req *Request) (Result, error) {
	if !s.completes.Load() {
		return nil, methodNotFound(req.Method)
	}
	p, err := parseComplete(req.Params)
	if err != nil {
		return nil, err
	}
	target, err := s.completionsOf(ctx, p)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(target.names, p.Argument) {
		return nil, Errorf(CodeInvalidParams, "%s has no argument %.128q, want one of %q",
			target.of, p.Argument, target.names)
	}
	f, ok := target.funcs[p.Argument]
	if !ok && s.opts.Complete != nil {
		found, err := s.opts.Complete(ctx, &p.CompleteParams)
		if err != nil {
			return nil, err
		}
		found = cmp.Or(found, &Completion{})
		shown := found.Values[:min(len(found.Values), maxCompletions)]
		return &CompleteResult{Completion: Completion{
			Values: shown, Total: found.Total, HasMore: found.HasMore || len(shown) < len(found.Values),
		}}, nil
	}
	var values []string
	if ok {
		if values, err = f(ctx, p.Value, p.Arguments); err != nil {
			return nil, err
		}
	}
	total := int64(len(values))
	shown := values[:min(len(values), maxCompletions)]
	return &CompleteResult{Completion: Completion{Values: shown, Total: &total, HasMore: len(shown) < len(values)}}, nil
}

func (s *Server) completionsOf(ctx context.Context, p completeParams) (*completions, error) {
	switch p.kind {
	case "ref/prompt":
		e, err := s.findPrompt(ctx, p.target)
		if err != nil {
			return nil, err
		}
		return &e.extra.completions, nil
	case "ref/resource":
		if e, ok := s.templates.lookup(p.target); ok && s.Visible(ctx, templateFeature(e.value)) {
			return &e.extra.completions, nil
		}
		if e, ok := s.resources.lookup(p.target); ok {
			if s.Visible(ctx, resourceFeature(e.value)) {
				return &completions{of: fmt.Sprintf("resource %.128q", p.target)}, nil
			}
		} else if e, _ := s.findTemplate(ctx, p.target, nil); e != nil {
			return &e.extra.completions, nil
		}
		return nil, Errorf(CodeInvalidParams, "params.ref.uri: unknown resource or template %.128q", p.target)
	}
	return nil, Errorf(CodeInvalidParams, `params.ref.type: got %.128q, want "ref/prompt" or "ref/resource"`, p.kind)
}

func parseComplete(params json.RawMessage) (p completeParams, err error) {
	ref, _ := jsonscan.Get(params, "ref")
	if p.kind, err = textMember(ref, "params.ref", "type"); err != nil {
		return p, err
	}
	key := "name"
	if p.kind == "ref/resource" {
		key = "uri"
	}
	if p.target, err = textMember(ref, "params.ref", key); err != nil {
		return p, err
	}
	if p.kind == "ref/prompt" {
		p.Prompt = p.target
	} else {
		p.Template = p.target
	}
	argument, _ := jsonscan.Get(params, "argument")
	if p.Argument, err = textMember(argument, "params.argument", "name"); err != nil {
		return p, err
	}
	if p.Value, err = textMember(argument, "params.argument", "value"); err != nil {
		return p, err
	}
	if len(p.Value) > maxCompletedValue {
		return p, Errorf(CodeInvalidParams, "params.argument.value is %d bytes long, want at most %d",
			len(p.Value), maxCompletedValue)
	}
	chosen, ok := jsonscan.GetNonNull(params, "context")
	if ok && jsonscan.Kind(chosen) != '{' {
		return p, Errorf(CodeInvalidParams, "params.context: want an object")
	}
	args, ok := jsonscan.GetNonNull(chosen, "arguments")
	if ok && jsonscan.Kind(args) != '{' {
		return p, Errorf(CodeInvalidParams, "params.context.arguments: want an object")
	}
	for name, value := range jsonscan.Members(args) {
		text, err := jsonscan.Unquote(value)
		if err != nil {
			return p, Errorf(CodeInvalidParams, "params.context.arguments: argument %.128q is not a string", name)
		}
		put(&p.Arguments, string(name), text)
	}
	return p, nil
}

func textMember(object []byte, path, key string) (string, error) {
	raw, ok := jsonscan.Get(object, key)
	if !ok {
		return "", Errorf(CodeInvalidParams, "%s.%s is missing", path, key)
	}
	text, err := jsonscan.Unquote(raw)
	if err != nil {
		return "", Errorf(CodeInvalidParams, "%s.%s: want a string", path, key)
	}
	return text, nil
}
