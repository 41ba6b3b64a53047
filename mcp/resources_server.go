package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/uritemplate"
)

type readFunc func(ctx context.Context, uri string) (*ReadResourceResult, error)

type resourceEntry struct {
	uri  string
	read readFunc
}

type templateEntry struct {
	completions
	template *uritemplate.Template
	args     *textArguments // nil if the variables have no types
	// open returns the function that reads a URI, or false if the URI does not match the template.
	open func(uri string) (readFunc, bool)
}

// AddResource registers a resource and returns its [Registration]. The function reads the resource.
//
// Out is the contents: a string becomes text, and []byte a blob; [*ResourceContents], a slice of
// them and [*ReadResourceResult] keep their values, and fields that are not set get those of the
// Resource. The error [NotFound] or [fs.ErrNotExist], nil or an empty slice mean that the resource
// does not exist.
//
// The function may call [Ask]. An [*Error] is sent to the client; any other error is logged and
// becomes "internal error". A panic is recovered. The context ends when the client cancels or
// disconnects.
//
// AddResource panics if the resource is invalid: an empty name, or a URI that does not follow RFC
// 3986 or is in use.
//
// Spec: server/resources.
func AddResource[Out any](
	s *Server, r *Resource, f func(ctx context.Context, uri string) (Out, error),
) *Registration[Resource] {
	if r == nil || f == nil {
		panic("mcp: AddResource: the resource or its function is nil")
	}
	convert, mimeType, err := bindContents[Out]()
	if err != nil {
		panic(fmt.Sprintf("mcp: AddResource %q: output: %v", r.URI, err))
	}
	copied := *r
	copied.MIMEType = cmp.Or(copied.MIMEType, mimeType)
	return s.addResource(&copied, func(ctx context.Context, uri string) (*ReadResourceResult, error) {
		out, err := f(ctx, uri)
		if err != nil {
			return nil, err
		}
		return convert(out), nil
	})
}

func (s *Server) addResource(r *Resource, read readFunc) *Registration[Resource] {
	return register(&s.resources, r.URI, r, resourceEntry{uri: r.URI, read: read}, prepareResource)
}

func prepareResource(r *Resource, entry resourceEntry) (resourceEntry, error) {
	if r.URI != entry.uri {
		return entry, fmt.Errorf("the URI cannot become %q", r.URI)
	}
	if err := uritemplate.CheckURI(r.URI); err != nil {
		return entry, err
	}
	if r.Size != nil && *r.Size < 0 {
		return entry, fmt.Errorf("Size is %d, want 0 or more", *r.Size)
	}
	return entry, checkDescription(r.Name, r.Annotations, r.Cache)
}

// checkDescription validates the fields that resources and templates share.
func checkDescription(name string, a *Annotations, c Cache) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	if a != nil {
		for _, role := range a.Audience {
			if role != RoleUser && role != RoleAssistant {
				return fmt.Errorf("Annotations.Audience has %q, want %q or %q", role, RoleUser, RoleAssistant)
			}
		}
		if a.Priority != nil && !(0 <= *a.Priority && *a.Priority <= 1) {
			return fmt.Errorf("Annotations.Priority is %v, want 0 to 1", *a.Priority)
		}
	}
	return c.validate()
}

// AddResourceTemplate registers a family of resources and returns its [Registration]. The function
// reads each of them. Its results and errors are as for [AddResource].
//
// Vars is a struct with a field for each variable of the template: strings, numbers, booleans or
// []string, with the tags that [AddTool] describes. It may also be map[string]string. A field named
// uri gets the whole URI, unless the template has a variable of this name. Values are
// percent-decoded and may contain any character, including slashes; use [AddFSTemplate] for files.
// A URI does not match if a variable has the wrong type, or lacks a value and is not optional.
//
// A resource of [AddResource] takes precedence over templates, and among templates the one with the
// most literal text.
//
// AddResourceTemplate panics if the template is invalid: an empty name, a pattern that does not
// follow RFC 6570 or is in use, or fields that differ from the variables.
//
// Spec: server/resources, Resource Templates.
func AddResourceTemplate[Vars, Out any](
	s *Server, t *ResourceTemplate, f func(context.Context, Vars) (Out, error),
) *Registration[ResourceTemplate] {
	if t == nil || f == nil {
		panic("mcp: AddResourceTemplate: the template or its function is nil")
	}
	convert, mimeType, err := bindContents[Out]()
	if err != nil {
		panic(fmt.Sprintf("mcp: AddResourceTemplate %q: output: %v", t.URITemplate, err))
	}
	copied := *t
	copied.MIMEType = cmp.Or(copied.MIMEType, mimeType)
	entry, err := bindTemplate(t.URITemplate, func(ctx context.Context, vars Vars) (*ReadResourceResult, error) {
		out, err := f(ctx, vars)
		if err != nil {
			return nil, err
		}
		return convert(out), nil
	})
	if err != nil {
		panic(fmt.Sprintf("mcp: AddResourceTemplate %q: %v", t.URITemplate, err))
	}
	return register(&s.templates, t.URITemplate, &copied, entry, s.prepareTemplate)
}

// prepareTemplate validates a template and merges its completions.
func (s *Server) prepareTemplate(t *ResourceTemplate, entry templateEntry) (templateEntry, error) {
	if t.URITemplate != entry.template.String() {
		return entry, fmt.Errorf("the pattern cannot become %q", t.URITemplate)
	}
	if err := checkDescription(t.Name, t.Annotations, t.Cache); err != nil {
		return entry, err
	}
	var derived map[string]CompleteFunc
	if entry.args != nil {
		derived = entry.args.completers()
	}
	var err error
	of := fmt.Sprintf("resource template %.128q", t.URITemplate)
	entry.completions, err = s.newCompletions(of, entry.template.Variables(), derived, t.Complete)
	return entry, err
}

func (s *Server) listResources(ctx context.Context, req *Request) (Result, error) {
	if !s.offersResources() {
		return nil, methodNotFound(req.Method)
	}
	page, next, err := paginate(ctx, s, &s.resources, req)
	if err != nil {
		return nil, err
	}
	return &ListResourcesResult{
		Resources: page.itemsFor(s, req), NextCursor: next, page: page, Cache: s.opts.Cache,
	}, nil
}

func (s *Server) listTemplates(ctx context.Context, req *Request) (Result, error) {
	if !s.offersResources() {
		return nil, methodNotFound(req.Method)
	}
	page, next, err := paginate(ctx, s, &s.templates, req)
	if err != nil {
		return nil, err
	}
	return &ListResourceTemplatesResult{
		ResourceTemplates: page.itemsFor(s, req), NextCursor: next, page: page, Cache: s.opts.Cache,
	}, nil
}

func (s *Server) readResource(ctx context.Context, c *call, uri string, _ json.RawMessage) (Result, error) {
	if !s.offersResources() {
		return nil, methodNotFound(c.req.Method)
	}
	if err := uritemplate.CheckURI(uri); err != nil {
		return nil, &Error{Code: CodeInvalidParams, Message: "params.uri: " + err.Error()}
	}
	from, ok := s.findResource(ctx, uri, nil)
	if !ok {
		return nil, NotFound(uri)
	}
	res, err := from.read(ctx, uri)
	err = ofHandler(err)
	switch {
	case err != nil && asError(err) == nil && errors.Is(err, fs.ErrNotExist):
		return nil, NotFound(uri)
	case err != nil:
		return nil, err
	case res == nil || len(res.Contents) == 0:
		return nil, NotFound(uri)
	}
	return s.finishRead(from, uri, res)
}

// An origin is a resource that can be read, with the defaults of its contents.
type origin struct {
	read     readFunc
	mimeType string
	cache    Cache
}

// findResource returns the origin of a URI, if the caller may see it. A registered resource hides
// the templates that its URI matches, even if the caller may not see the resource.
//
// The work, if it is not nil, is reduced by an estimate of the time that matching takes: bytes of
// the URI times variables of the template. When none is left, templates do not match.
func (s *Server) findResource(ctx context.Context, uri string, work *int) (from origin, ok bool) {
	if e, found := s.resources.lookup(uri); found {
		return origin{e.extra.read, e.value.MIMEType, e.value.Cache}, s.Visible(ctx, resourceFeature(e.value))
	}
	e, read := s.findTemplate(ctx, uri, work)
	if e == nil {
		return from, false
	}
	return origin{read, e.value.MIMEType, e.value.Cache}, true
}

// findTemplate returns the visible matching template with the most literal text, and its reader.
func (s *Server) findTemplate(
	ctx context.Context, uri string, work *int,
) (best *featureEntry[*ResourceTemplate, *templateEntry], read readFunc) {
	most := -1
	for _, e := range s.templates.list() {
		t := e.extra.template
		literals := t.LiteralLen()
		if literals <= most || !strings.HasPrefix(uri, t.LiteralPrefix()) {
			continue
		}
		if work != nil {
			if *work -= len(uri) * len(t.Variables()); *work < 0 {
				return nil, nil
			}
		}
		if open, ok := e.extra.open(uri); ok && s.Visible(ctx, templateFeature(e.value)) {
			best, read, most = e, open, literals
		}
	}
	return best, read
}

// finishRead returns a copy of a result whose unset fields have the defaults of the origin. The
// function may still use its own result, which is not changed.
func (s *Server) finishRead(from origin, uri string, given *ReadResourceResult) (Result, error) {
	res := &ReadResourceResult{Cache: cmp.Or(given.Cache, from.cache), Meta: given.Meta}
	for i, c := range given.Contents {
		if c == nil {
			return nil, fmt.Errorf("resource %q: Contents[%d] is nil", uri, i)
		}
		part := *c
		part.URI = cmp.Or(part.URI, uri)
		part.MIMEType = cmp.Or(part.MIMEType, from.mimeType)
		res.Contents = append(res.Contents, &part)
	}
	if err := res.Cache.validate(); err != nil {
		return nil, fmt.Errorf("resource %q: %w", uri, err)
	}
	return res, nil
}

// bindContents returns the function that converts an output to a result, and its MIME type.
func bindContents[Out any]() (convert func(Out) *ReadResourceResult, mimeType string, err error) {
	var out Out
	switch any(&out).(type) {
	case *string:
		return func(v Out) *ReadResourceResult {
			return &ReadResourceResult{Contents: []*ResourceContents{{Text: any(v).(string)}}}
		}, "text/plain", nil
	case *[]byte:
		return func(v Out) *ReadResourceResult {
			blob := any(v).([]byte)
			if blob == nil {
				blob = []byte{}
			}
			return &ReadResourceResult{Contents: []*ResourceContents{{Blob: blob}}}
		}, "application/octet-stream", nil
	case **ResourceContents:
		return func(v Out) *ReadResourceResult {
			if c := any(v).(*ResourceContents); c != nil {
				return &ReadResourceResult{Contents: []*ResourceContents{c}}
			}
			return nil
		}, "", nil
	case *[]*ResourceContents:
		return func(v Out) *ReadResourceResult {
			return &ReadResourceResult{Contents: any(v).([]*ResourceContents)}
		}, "", nil
	case **ReadResourceResult:
		return func(v Out) *ReadResourceResult { return any(v).(*ReadResourceResult) }, "", nil
	}
	return nil, "", fmt.Errorf("%s: want string, []byte, *ResourceContents, []*ResourceContents or *ReadResourceResult",
		reflect.TypeFor[Out]())
}

func bindTemplate[Vars any](
	pattern string, read func(context.Context, Vars) (*ReadResourceResult, error),
) (entry templateEntry, err error) {
	if entry.template, err = uritemplate.Parse(pattern); err != nil {
		return entry, err
	}
	in := reflect.TypeFor[Vars]()
	if in != reflect.TypeFor[map[string]string]() {
		if in.Kind() != reflect.Struct {
			return entry, fmt.Errorf("variables: %s: want a struct or map[string]string", in)
		}
		if entry.args, err = textArgumentsOf(in); err != nil {
			return entry, fmt.Errorf("variables: %w", err)
		}
	}
	m, err := newMatcher(entry.template, entry.args)
	if err != nil {
		return entry, err
	}
	entry.open = func(uri string) (readFunc, bool) {
		var vars Vars
		found, ok := m.Match(uri)
		switch {
		case !ok:
			return nil, false
		case entry.args == nil:
			texts := make(map[string]string, len(found))
			for name, value := range found {
				texts[name] = value.(string)
			}
			vars = any(texts).(Vars)
		case !entry.args.fill(found, uri, &vars):
			return nil, false
		}
		return func(ctx context.Context, _ string) (*ReadResourceResult, error) { return read(ctx, vars) }, true
	}
	return entry, nil
}

const uriField = "uri"

// newMatcher returns the matcher of a template. The args are the types of its variables, or nil.
func newMatcher(t *uritemplate.Template, args *textArguments) (*uritemplate.Matcher, error) {
	if args == nil {
		return t.Matcher(nil)
	}
	lists := map[string]bool{}
	names := t.Variables()
	for _, a := range args.list {
		lists[a.name] = a.kind == "array"
		if !slices.Contains(names, a.name) && (a.name != uriField || a.kind != "string") {
			return nil, fmt.Errorf("field %q is not a variable of the template, which has %q", a.name, names)
		}
	}
	for _, name := range names {
		if args.find(name) == nil {
			return nil, fmt.Errorf("variable %q has no field of this name", name)
		}
	}
	return t.Matcher(lists)
}

// fill decodes variables into v, a pointer to a struct, or reports false if a type is wrong.
func (a *textArguments) fill(vars map[string]any, uri string, v any) bool {
	if _, isVariable := vars[uriField]; !isVariable && a.find(uriField) != nil {
		vars[uriField] = uri
	}
	object := []byte{'{'}
	for name, value := range vars {
		object = a.appendMember(object, name, value)
	}
	completed, err := a.complete(append(object, '}'))
	return err == nil && schema.Decode(completed, v) == nil
}
