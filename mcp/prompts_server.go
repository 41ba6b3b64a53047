package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

type promptFunc func(ctx context.Context, args json.RawMessage) (*GetPromptResult, error)

type promptEntry struct {
	completions
	name string
	args *textArguments
	free bool // the arguments come from Prompt.Arguments, not from a type
	fill promptFunc
}

// AddPrompt registers a function as a prompt and returns its [Registration].
//
// In is a struct, or a pointer to a struct, whose fields are the arguments: strings, numbers or
// booleans, with the tags that [AddTool] describes. It may also be map[string]string, for the
// arguments in Prompt.Arguments. Clients send text, which is converted to the type of the field. An
// argument that is unknown, missing or invalid is a protocol error that names it.
//
// Out is the result: a string becomes a message of the user; []PromptMessage and [*GetPromptResult]
// are unchanged.
//
// The function may call [Ask]. Its errors, panics and context are treated as by [AddResource].
//
// AddPrompt panics if the prompt is invalid: a name that is empty or in use, or a type that text
// cannot express.
//
// Spec: server/prompts.
func AddPrompt[In, Out any](s *Server, p *Prompt, f func(context.Context, In) (Out, error)) *Registration[Prompt] {
	return must(s.addPrompt(p, bindPrompt(f), refuseTaken))
}

// SetPrompt adds or replaces a prompt, or returns an error, as [SetTool] does for tools.
func SetPrompt[In, Out any](
	s *Server, p *Prompt, f func(context.Context, In) (Out, error),
) (*Registration[Prompt], error) {
	return s.addPrompt(p, bindPrompt(f), replaceTaken)
}

func bindPrompt[In, Out any](f func(context.Context, In) (Out, error)) binding[promptFunc] {
	call := func(ctx context.Context, args json.RawMessage) (*GetPromptResult, error) {
		var in In
		if err := schema.Decode(args, &in); err != nil {
			return nil, wrongArguments(err)
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		return messagesOf(&out)
	}
	return binding[promptFunc]{reflect.TypeFor[In](), reflect.TypeFor[Out](), f == nil, call}
}

func (s *Server) addPrompt(given *Prompt, b binding[promptFunc], taken ifTaken) (*Registration[Prompt], error) {
	if given == nil || b.missing {
		return nil, errors.New("mcp: the prompt or its function is nil")
	}
	p := *given
	entry := promptEntry{name: p.Name, fill: b.call}
	if err := entry.infer(b.in, b.out); err != nil {
		return nil, fmt.Errorf("mcp: prompt %.128q: %w", p.Name, err)
	}
	return register(&s.prompts, p.Name, &p, entry, s.preparePrompt, taken)
}

func (e *promptEntry) infer(in, out reflect.Type) (err error) {
	switch {
	case in == reflect.TypeFor[map[string]string]():
		e.free = true
	case !isStruct(in):
		return fmt.Errorf("input: %s: want a struct or map[string]string", in)
	default:
		if e.args, err = textArgumentsOf(in); err != nil {
			return fmt.Errorf("input: %w", err)
		}
	}
	switch out {
	case reflect.TypeFor[string](), reflect.TypeFor[[]PromptMessage](), reflect.TypeFor[*GetPromptResult]():
		return nil
	}
	return fmt.Errorf("output: %s: want string, []PromptMessage or *GetPromptResult", out)
}

// messagesOf returns the result for an output, to which v points.
func messagesOf(v any) (*GetPromptResult, error) {
	switch v := v.(type) {
	case *string:
		return &GetPromptResult{Messages: []PromptMessage{{Content: Text(*v)}}}, nil
	case *[]PromptMessage:
		return &GetPromptResult{Messages: *v}, nil
	case **GetPromptResult:
		if *v != nil {
			return *v, nil
		}
	}
	return nil, errors.New("the prompt returned a nil result")
}

// preparePrompt validates a prompt, and completes its arguments from the type of its function.
func (s *Server) preparePrompt(p *Prompt, entry *promptEntry) error {
	switch {
	case p.Name == "":
		return errors.New("the name is empty")
	case p.Name != entry.name:
		return fmt.Errorf("the name cannot become %q", p.Name)
	}
	var err error
	if entry.free {
		if entry.args, err = freeArguments(p.Arguments); err != nil {
			return err
		}
	} else if err := describeArguments(p, entry.args); err != nil {
		return err
	}
	of := fmt.Sprintf("prompt %.128q", p.Name)
	entry.completions, err = s.newCompletions(of, entry.args.names(), entry.args.completers(), p.Complete)
	return cmp.Or(err, checkMetaKeys(p.Meta))
}

// describeArguments sets p.Arguments from the function's type, or checks the names that are set.
func describeArguments(p *Prompt, args *textArguments) error {
	if p.Arguments == nil {
		for _, a := range args.list {
			if a.kind == "array" {
				return fmt.Errorf("argument %q is a list, want a string, a number or a boolean", a.name)
			}
			p.Arguments = append(p.Arguments, PromptArgument{a.name, a.title, a.description, a.required})
		}
		return nil
	}
	named := make([]string, len(p.Arguments))
	for i, a := range p.Arguments {
		named[i] = a.Name
	}
	want := args.names()
	slices.Sort(named)
	slices.Sort(want)
	if !slices.Equal(named, want) {
		return fmt.Errorf("Arguments are %q, but the function takes %q", named, want)
	}
	return nil
}

func freeArguments(list []PromptArgument) (*textArguments, error) {
	a := &textArguments{}
	properties, required := map[string]any{}, []string{}
	for _, arg := range list {
		if a.find(arg.Name) != nil || arg.Name == "" {
			return nil, fmt.Errorf("argument %q: the name is empty or in use", arg.Name)
		}
		properties[arg.Name] = map[string]string{"type": "string"}
		if arg.Required {
			required = append(required, arg.Name)
		}
		a.list = append(a.list, textArgument{name: arg.Name, required: arg.Required, kind: "string"})
	}
	raw, err := schema.Encode(map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	})
	if err != nil {
		return nil, err
	}
	a.schema, err = schema.Compile(raw)
	return a, err
}

func (s *Server) listPrompts(ctx context.Context, req *Request) (Result, error) {
	if !s.prompts.ever.Load() {
		return nil, methodNotFound(req.Method)
	}
	page, next, err := paginate(ctx, s, &s.prompts, req)
	if err != nil {
		return nil, err
	}
	return &ListPromptsResult{Prompts: page.itemsFor(s, req), NextCursor: next, page: page, Cache: s.opts.Cache}, nil
}

func (s *Server) getPrompt(ctx context.Context, c *call, name string, given json.RawMessage) (Result, error) {
	if !s.prompts.ever.Load() {
		return nil, methodNotFound(c.req.Method)
	}
	e, err := s.findPrompt(ctx, name)
	if err != nil {
		return nil, err
	}
	args, err := e.extra.args.check(given)
	if err != nil {
		return nil, wrongArguments(err)
	}
	res, err := e.extra.fill(ctx, args)
	if err := ofHandler(err); err != nil {
		return nil, err
	}
	if res.Description == "" {
		copied := *res
		copied.Description = e.value.Description
		res = &copied
	}
	return res, nil
}

func wrongArguments(err error) *Error { return Errorf(CodeInvalidParams, "params.arguments: %v", err) }

func (s *Server) findPrompt(ctx context.Context, name string) (*featureEntry[*Prompt, *promptEntry], error) {
	e, ok := s.prompts.lookup(name)
	if ok && s.Visible(ctx, promptFeature(e.value)) {
		return e, nil
	}
	var names []string
	for _, e := range s.prompts.list() {
		if s.Visible(ctx, promptFeature(e.value)) {
			names = append(names, e.name)
		}
	}
	if like := schema.Nearest(name, names); like != "" {
		return nil, Errorf(CodeInvalidParams, "unknown prompt %.128q, did you mean %q?", name, like)
	}
	return nil, Errorf(CodeInvalidParams, "unknown prompt %.128q", name)
}
