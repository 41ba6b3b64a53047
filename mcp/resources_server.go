package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/uritemplate"
)

// readFunc reads one resource.
type readFunc func(ctx context.Context, uri string) (*ReadResourceResult, error)

// resourceEntry is what the server keeps of a resource.
type resourceEntry struct {
	uri  string
	read readFunc
}

// templateEntry is what the server keeps of a resource template.
type templateEntry struct {
	completions
	template *uritemplate.Template
	args     *textArguments // nil if the variables have no types
	// open returns what reads a URI of the template, false for any other URI.
	open func(uri string) (readFunc, bool)
}

// AddResource registers a resource and gives its handle. The function reads it.
//
// Out is what it gives: a string becomes text, []byte a blob; [*ResourceContents], a slice of them
// and [*ReadResourceResult] stay as they are, completed by what the description says. A resource that is
// not there is told by [NotFound], [fs.ErrNotExist], nil or an empty slice.
//
// The function may [Ask]. An [*Error] is shown to the client, any other error is logged and becomes
// "internal error". A panic is contained. The context ends when the client cancels or goes away.
//
// AddResource panics if the resource cannot work: no name, a URI that is none by RFC 3986 or is
// taken.
//
// Spec: server/resources.
func AddResource[Out any](s *Server, r *Resource, f func(ctx context.Context, uri string) (Out, error)) *Registration[Resource] {
	if r == nil || f == nil {
		panic("mcp: AddResource: the resource or its function is nil")
	}
	convert, mimeType, err := bindContents[Out]()
	if err != nil {
		panic(fmt.Sprintf("mcp: AddResource %q: output: %v", r.URI, err))
	}
	copied := *r
	if copied.MIMEType == "" {
		copied.MIMEType = mimeType
	}
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

// prepareResource validates a resource.
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

// checkDescription checks what resources and templates have in common.
func checkDescription(name string, a *Annotations, c Cache) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	if a != nil {
		for _, role := range a.Audience {
			if role != RoleUser && role != RoleAssistant {
				return fmt.Errorf("Annotations.Audience holds %q, want %q or %q", role, RoleUser, RoleAssistant)
			}
		}
		if a.Priority != nil && !(0 <= *a.Priority && *a.Priority <= 1) {
			return fmt.Errorf("Annotations.Priority is %v, want 0 to 1", *a.Priority)
		}
	}
	return c.validate()
}

// AddResourceTemplate registers a family of resources and gives its handle. The function reads any
// of them; what it gives, and how it fails, is as for [AddResource].
//
// Vars is what the URI holds: a struct with a field for each of the template's variables, strings,
// numbers, booleans or []string, with the tags that [AddTool] describes; or map[string]string. A
// field named uri gets the whole URI, unless the template has a variable of this name. Values are
// decoded, so that they may hold any character, slashes too: for files there is [AddFSTemplate]. A
// URI whose variables do not fit the types, or that leaves out one that is not optional, is none of
// the family.
//
// A resource that was registered with [AddResource] wins over templates, and among templates the
// one with the most literal text.
//
// AddResourceTemplate panics if the template cannot work: no name, a pattern that is not by RFC
// 6570 or is taken, fields that are not those of the pattern.
//
// Spec: server/resources, Resource Templates.
func AddResourceTemplate[Vars, Out any](s *Server, t *ResourceTemplate, f func(context.Context, Vars) (Out, error)) *Registration[ResourceTemplate] {
	if t == nil || f == nil {
		panic("mcp: AddResourceTemplate: the template or its function is nil")
	}
	convert, mimeType, err := bindContents[Out]()
	if err != nil {
		panic(fmt.Sprintf("mcp: AddResourceTemplate %q: output: %v", t.URITemplate, err))
	}
	copied := *t
	if copied.MIMEType == "" {
		copied.MIMEType = mimeType
	}
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
	return &ListResourcesResult{Resources: slices.Clone(page.items), NextCursor: next, page: page, Cache: s.opts.Cache}, nil
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
		ResourceTemplates: slices.Clone(page.items), NextCursor: next, page: page, Cache: s.opts.Cache,
	}, nil
}

// readResource serves resources/read.
func (s *Server) readResource(ctx context.Context, c *call, uri string, _ json.RawMessage) (Result, error) {
	if !s.offersResources() {
		return nil, methodNotFound(c.req.Method)
	}
	if err := uritemplate.CheckURI(uri); err != nil {
		return nil, &Error{Code: CodeInvalidParams, Message: "params.uri: " + err.Error()}
	}
	from, ok := s.findResource(ctx, uri)
	if !ok {
		return nil, NotFound(uri)
	}
	res, err := from.read(ctx, uri)
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

// An origin is something that can be read, and what its description says of the contents.
type origin struct {
	read     readFunc
	mimeType string
	cache    Cache
}

// findResource returns what reads a URI, if the caller may see it. A resource that is registered
// hides the templates that its URI matches, also from those who may not see it.
func (s *Server) findResource(ctx context.Context, uri string) (from origin, ok bool) {
	if e, found := s.resources.lookup(uri); found {
		return origin{e.extra.read, e.value.MIMEType, e.value.Cache}, s.Visible(ctx, resourceFeature(e.value))
	}
	e, read := s.findTemplate(ctx, uri)
	if e == nil {
		return from, false
	}
	return origin{read, e.value.MIMEType, e.value.Cache}, true
}

// findTemplate returns the most literal of the templates that match a URI, if there is one that the
// caller may see, and what reads the URI.
func (s *Server) findTemplate(ctx context.Context, uri string) (best *featureEntry[*ResourceTemplate, *templateEntry], read readFunc) {
	most := -1
	for _, e := range s.templates.list() {
		literals := e.extra.template.LiteralLen()
		if literals <= most {
			continue
		}
		if open, ok := e.extra.open(uri); ok && s.Visible(ctx, templateFeature(e.value)) {
			best, read, most = e, open, literals
		}
	}
	return best, read
}

// readable reports whether the caller may read a URI, as far as that can be told without reading
// it.
func (s *Server) readable(ctx context.Context, uri string) bool {
	_, ok := s.findResource(ctx, uri)
	return ok
}

// finishRead returns a result what the resource's description says, and the function left open.
// What the function gave may be its own to keep, so it stays unchanged.
func (s *Server) finishRead(from origin, uri string, given *ReadResourceResult) (Result, error) {
	res := &ReadResourceResult{Cache: given.Cache, Meta: given.Meta}
	for i, c := range given.Contents {
		if c == nil {
			return nil, fmt.Errorf("resource %q: contents %d are nil", uri, i)
		}
		part := *c
		if part.URI == "" {
			part.URI = uri
		}
		if part.MIMEType == "" {
			part.MIMEType = from.mimeType
		}
		res.Contents = append(res.Contents, &part)
	}
	if res.Cache == (Cache{}) {
		res.Cache = from.cache
	}
	if err := res.Cache.validate(); err != nil {
		return nil, fmt.Errorf("resource %q: %w", uri, err)
	}
	return res, nil
}

// bindContents returns the function that makes a result of what a resource's function returned, and
// the MIME type of such results, if it can be told.
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
		return func(v Out) *ReadResourceResult { return &ReadResourceResult{Contents: any(v).([]*ResourceContents)} }, "", nil
	case **ReadResourceResult:
		return func(v Out) *ReadResourceResult { return any(v).(*ReadResourceResult) }, "", nil
	}
	return nil, "", fmt.Errorf("%s: want string, []byte, *ResourceContents, []*ResourceContents or *ReadResult", reflect.TypeFor[Out]())
}

// bindTemplate relates a template's variables to what its function takes.
func bindTemplate[Vars any](pattern string, read func(context.Context, Vars) (*ReadResourceResult, error)) (entry templateEntry, err error) {
	if entry.template, err = uritemplate.Parse(pattern); err != nil {
		return entry, err
	}
	switch in := reflect.TypeFor[Vars](); {
	case in == reflect.TypeFor[map[string]string]():
		entry.open, err = openUntyped(entry.template, read)
		return entry, err
	case in.Kind() != reflect.Struct:
		return entry, fmt.Errorf("variables: %s: want a struct or map[string]string", in)
	default:
		if entry.args, err = textArgumentsOf(in); err != nil {
			return entry, fmt.Errorf("variables: %w", err)
		}
		entry.open, err = openTyped(entry.template, entry.args, read)
		return entry, err
	}
}

// openUntyped returns what opens a URI whose variables go into a map.
func openUntyped[Vars any](t *uritemplate.Template, read func(context.Context, Vars) (*ReadResourceResult, error)) (func(string) (readFunc, bool), error) {
	m, err := t.Matcher(nil)
	if err != nil {
		return nil, err
	}
	return func(uri string) (readFunc, bool) {
		found, ok := m.Match(uri)
		if !ok {
			return nil, false
		}
		texts := make(map[string]string, len(found))
		for name, value := range found {
			texts[name] = value.(string)
		}
		vars := any(texts).(Vars)
		return func(ctx context.Context, _ string) (*ReadResourceResult, error) { return read(ctx, vars) }, true
	}, nil
}

// openTyped returns what opens a URI whose variables go into the fields of a struct.
func openTyped[Vars any](t *uritemplate.Template, args *textArguments, read func(context.Context, Vars) (*ReadResourceResult, error)) (func(string) (readFunc, bool), error) {
	m, err := typedMatcher(t, args)
	if err != nil {
		return nil, err
	}
	return func(uri string) (readFunc, bool) {
		var vars Vars
		if found, ok := m.Match(uri); !ok || !args.fill(found, uri, &vars) {
			return nil, false
		}
		return func(ctx context.Context, _ string) (*ReadResourceResult, error) { return read(ctx, vars) }, true
	}, nil
}

// uriField is the name of the field that gets the whole URI.
const uriField = "uri"

// typedMatcher returns the matcher of a template whose variables have types.
func typedMatcher(t *uritemplate.Template, args *textArguments) (*uritemplate.Matcher, error) {
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

// fill decodes the variables of a URI into v, a pointer to a struct. False means that they do not
// fit.
func (a *textArguments) fill(vars map[string]any, uri string, v any) bool {
	if _, taken := vars[uriField]; !taken && a.find(uriField) != nil {
		vars[uriField] = uri
	}
	object := []byte{'{'}
	for name, value := range vars {
		object = a.appendMember(object, name, value)
	}
	completed, err := a.complete(append(object, '}'))
	return err == nil && schema.Decode(completed, v) == nil
}
