package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

type promptEntry struct {
	completions
	name string
	args *textArguments
	free bool // the arguments are those of Prompt.Arguments, not those of a type
	fill func(ctx context.Context, args json.RawMessage) (*GetPromptResult, error)
}

// AddPrompt registers a function as a prompt and returns its [Registration].
//
// In is a struct whose fields are the arguments: strings, numbers or booleans, with the tags that
// [AddTool] describes. It may also be map[string]string, for the arguments in Prompt.Arguments.
// Clients send text, which is converted to the type of the field. An argument that is unknown,
// missing or invalid is a protocol error that names it.
//
// Out is the result: a string becomes one message of the user; []PromptMessage and
// [*GetPromptResult] are unchanged.
//
// The function may call [Ask]. An [*Error] is sent to the client; any other error is logged and
// becomes "internal error". A panic is recovered. The context ends when the client cancels or
// disconnects.
//
// AddPrompt panics if the prompt is invalid: a name that is empty or in use, or a type that text
// cannot express.
//
// Spec: server/prompts.
func AddPrompt[In, Out any](s *Server, p *Prompt, f func(context.Context, In) (Out, error)) *Registration[Prompt] {
	if p == nil || f == nil {
		panic("mcp: AddPrompt: the prompt or its function is nil")
	}
	entry, err := bindPrompt(p, f)
	if err != nil {
		panic(fmt.Sprintf("mcp: AddPrompt %q: %v", p.Name, err))
	}
	copied := *p
	return register(&s.prompts, p.Name, &copied, entry, s.preparePrompt)
}

func bindPrompt[In, Out any](p *Prompt, f func(context.Context, In) (Out, error)) (entry promptEntry, err error) {
	entry.name = p.Name
	in := reflect.TypeFor[In]()
	switch {
	case in == reflect.TypeFor[map[string]string]():
		entry.free = true
	case in.Kind() != reflect.Struct:
		return entry, fmt.Errorf("input: %s: want a struct or map[string]string", in)
	default:
		if entry.args, err = textArgumentsOf(in); err != nil {
			return entry, fmt.Errorf("input: %w", err)
		}
	}
	convert, err := bindMessages[Out]()
	if err != nil {
		return entry, fmt.Errorf("output: %w", err)
	}
	entry.fill = func(ctx context.Context, args json.RawMessage) (*GetPromptResult, error) {
		var in In
		if err := schema.Decode(args, &in); err != nil {
			return nil, wrongArguments(err)
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		return convert(out)
	}
	return entry, nil
}

// bindMessages returns the function that converts the output of a prompt's function to a result.
func bindMessages[Out any]() (func(Out) (*GetPromptResult, error), error) {
	var out Out
	switch any(&out).(type) {
	case *string:
		return func(v Out) (*GetPromptResult, error) {
			return &GetPromptResult{Messages: []PromptMessage{{Content: Text(any(v).(string))}}}, nil
		}, nil
	case *[]PromptMessage:
		return func(v Out) (*GetPromptResult, error) {
			return &GetPromptResult{Messages: any(v).([]PromptMessage)}, nil
		}, nil
	case **GetPromptResult:
		return func(v Out) (*GetPromptResult, error) {
			if res := any(v).(*GetPromptResult); res != nil {
				return res, nil
			}
			return nil, errors.New("the prompt returned a nil result")
		}, nil
	}
	return nil, fmt.Errorf("%s: want string, []PromptMessage or *GetPromptResult", reflect.TypeFor[Out]())
}

// preparePrompt validates a prompt, and completes its arguments from the type of its function.
func (s *Server) preparePrompt(p *Prompt, entry promptEntry) (promptEntry, error) {
	switch {
	case p.Name == "":
		return entry, errors.New("the name is empty")
	case p.Name != entry.name:
		return entry, fmt.Errorf("the name cannot become %q", p.Name)
	}
	var err error
	if entry.free {
		if entry.args, err = freeArguments(p.Arguments); err != nil {
			return entry, err
		}
	} else if err := describeArguments(p, entry.args); err != nil {
		return entry, err
	}
	of := fmt.Sprintf("prompt %.128q", p.Name)
	entry.completions, err = s.newCompletions(of, entry.args.names(), entry.args.completers(), p.Complete)
	return entry, err
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
	raw, err := jsonv2.Marshal(map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	}, deterministic)
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
