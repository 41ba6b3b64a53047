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
	"github.com/patchbay-mcp/patchbay/uritemplate"
)

type readFunc func(ctx context.Context, uri string) (*ReadResourceResult, error)

type resourceEntry struct {
	uri  string
	read readFunc
}

type templateEntry struct {
	completions
	template *uritemplate.Template
	args     *textArguments // nil if the variables are untyped
	// open returns the function that reads a URI, or false if the URI does not match the template.
	open func(uri string) (readFunc, bool)
}

// AddResource registers a resource and returns its [Registration]. The function reads the resource.
//
// Out is the contents: a string becomes text, and []byte a blob; [*ResourceContents],
// []*ResourceContents and [*ReadResourceResult] keep their values, and the Resource provides the
// fields that are not set. Any other struct, pointer to a struct, slice or map becomes JSON of the
// type application/json. The error [NotFound] or [fs.ErrNotExist], a nil pointer or an empty slice
// of contents mean that the resource does not exist.
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
	return must(s.addResource(r, bindResource(f), refuseTaken))
}

// SetResource adds or replaces a resource, or returns an error, as [SetTool] does for tools.
func SetResource[Out any](
	s *Server, r *Resource, f func(ctx context.Context, uri string) (Out, error),
) (*Registration[Resource], error) {
	return s.addResource(r, bindResource(f), replaceTaken)
}

func bindResource[Out any](f func(ctx context.Context, uri string) (Out, error)) binding[readFunc] {
	call := func(ctx context.Context, uri string) (*ReadResourceResult, error) {
		out, err := f(ctx, uri)
		if err != nil {
			return nil, err
		}
		return contentsOf(&out)
	}
	return binding[readFunc]{reflect.TypeFor[string](), reflect.TypeFor[Out](), f == nil, call}
}

func (s *Server) addResource(given *Resource, b binding[readFunc], taken ifTaken) (*Registration[Resource], error) {
	if given == nil || b.missing {
		return nil, errors.New("mcp: the resource or its function is nil")
	}
	r := *given
	mimeType, err := contentsType(b.out)
	if err != nil {
		return nil, fmt.Errorf("mcp: resource %.128q: %w", r.URI, err)
	}
	r.MIMEType = cmp.Or(r.MIMEType, mimeType)
	return register(&s.resources, r.URI, &r, resourceEntry{uri: r.URI, read: b.call}, prepareResource, taken)
}

func prepareResource(r *Resource, entry *resourceEntry) error {
	if r.URI != entry.uri {
		return fmt.Errorf("the URI cannot become %q", r.URI)
	}
	if err := uritemplate.CheckURI(r.URI); err != nil {
		return err
	}
	if r.Size != nil && *r.Size < 0 {
		return fmt.Errorf("Size is %d, want 0 or more", *r.Size)
	}
	return checkDescription(r.Name, r.Annotations, r.Cache, r.Meta)
}

// checkDescription validates the fields that resources and templates share.
func checkDescription(name string, a *Annotations, c Cache, m Meta) error {
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
	return cmp.Or(c.validate(), checkMetaKeys(m))
}

// AddResourceTemplate registers a family of resources and returns its [Registration]. The function
// reads the resources of the family. Its results and errors are as for [AddResource].
//
// Vars is a struct, or a pointer to a struct, with a field for each variable of the template:
// strings, numbers, booleans or []string, with the tags that [AddTool] describes. It may also be
// map[string]string. A field named uri receives the whole URI, unless the template contains a
// variable of this name. Values are percent-decoded and may contain any character, including
// slashes; use [AddFSTemplate] for files. A URI does not match if a variable is of the wrong type,
// or lacks a value and is not optional.
//
// A resource of [AddResource] takes precedence over templates. Among templates, the template with
// the most literal text takes precedence.
//
// AddResourceTemplate panics if the template is invalid: an empty name, a pattern that does not
// follow RFC 6570 or is in use, or fields that differ from the variables.
//
// Spec: server/resources, Resource Templates.
func AddResourceTemplate[Vars, Out any](
	s *Server, t *ResourceTemplate, f func(context.Context, Vars) (Out, error),
) *Registration[ResourceTemplate] {
	return must(s.addTemplate(t, bindTemplate(f), refuseTaken))
}

// SetResourceTemplate adds or replaces a family of resources, or returns an error, like [SetTool].
func SetResourceTemplate[Vars, Out any](
	s *Server, t *ResourceTemplate, f func(context.Context, Vars) (Out, error),
) (*Registration[ResourceTemplate], error) {
	return s.addTemplate(t, bindTemplate(f), replaceTaken)
}

// An openFunc returns a function that reads with the variables in *vars.
type openFunc func() (vars any, read readFunc)

func bindTemplate[Vars, Out any](f func(context.Context, Vars) (Out, error)) binding[openFunc] {
	open := func() (any, readFunc) {
		vars := new(Vars)
		return vars, func(ctx context.Context, _ string) (*ReadResourceResult, error) {
			out, err := f(ctx, *vars)
			if err != nil {
				return nil, err
			}
			return contentsOf(&out)
		}
	}
	return binding[openFunc]{reflect.TypeFor[Vars](), reflect.TypeFor[Out](), f == nil, open}
}

func (s *Server) addTemplate(
	given *ResourceTemplate, b binding[openFunc], taken ifTaken,
) (*Registration[ResourceTemplate], error) {
	if given == nil || b.missing {
		return nil, errors.New("mcp: the resource template or its function is nil")
	}
	t := *given
	var entry templateEntry
	mimeType, err := contentsType(b.out)
	if err == nil {
		err = entry.bind(t.URITemplate, b.in, b.call)
	}
	if err != nil {
		return nil, fmt.Errorf("mcp: resource template %.128q: %w", t.URITemplate, err)
	}
	t.MIMEType = cmp.Or(t.MIMEType, mimeType)
	return register(&s.templates, t.URITemplate, &t, entry, s.prepareTemplate, taken)
}

// prepareTemplate validates a template and merges its completions.
func (s *Server) prepareTemplate(t *ResourceTemplate, entry *templateEntry) error {
	if t.URITemplate != entry.template.String() {
		return fmt.Errorf("the pattern cannot become %q", t.URITemplate)
	}
	if err := checkDescription(t.Name, t.Annotations, t.Cache, t.Meta); err != nil {
		return err
	}
	var derived map[string]CompleteFunc
	if entry.args != nil {
		derived = entry.args.completers()
	}
	var err error
	of := fmt.Sprintf("resource template %.128q", t.URITemplate)
	entry.completions, err = s.newCompletions(of, entry.template.Variables(), derived, t.Complete)
	return err
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
	return finishRead(from, uri, res)
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
// If work is not nil, an estimate of the time that matching takes is subtracted: bytes of the URI
// times variables of the template. At zero, templates no longer match.
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

// finishRead returns a copy of a result in which the origin provides the unset fields. The function
// may still use its own result, which does not change.
func finishRead(from origin, uri string, given *ReadResourceResult) (Result, error) {
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

// contentsType returns the MIME type of an output, or "" if it names its own. Other types of this
// package, such as ResourceContents without its pointer, are mistakes.
func contentsType(out reflect.Type) (string, error) {
	inner := out
	switch out {
	case reflect.TypeFor[string]():
		return "text/plain", nil
	case reflect.TypeFor[[]byte]():
		return "application/octet-stream", nil
	case reflect.TypeFor[*ResourceContents](), reflect.TypeFor[[]*ResourceContents](),
		reflect.TypeFor[*ReadResourceResult]():
		return "", nil
	}
	if kind := out.Kind(); kind == reflect.Pointer || kind == reflect.Slice {
		inner = out.Elem()
	}
	list := out.Kind() == reflect.Map || out.Kind() == reflect.Slice && inner.Kind() != reflect.Uint8
	if !list && !isStruct(out) || inner.PkgPath() == reflect.TypeFor[Resource]().PkgPath() {
		return "", fmt.Errorf("output: %s: want string, []byte, *ResourceContents, []*ResourceContents or "+
			"*ReadResourceResult, or a struct, slice or map for JSON", out)
	}
	if _, err := schema.For(out); err != nil {
		return "", fmt.Errorf("output: %w", err)
	}
	return "application/json", nil
}

// contentsOf returns the result for an output, to which v points: nil if it does not exist.
func contentsOf(v any) (*ReadResourceResult, error) {
	c := &ResourceContents{}
	switch v := v.(type) {
	case **ReadResourceResult:
		return *v, nil
	case *[]*ResourceContents:
		return &ReadResourceResult{Contents: *v}, nil
	case **ResourceContents:
		if c = *v; c == nil {
			return nil, nil
		}
	case *string:
		c.Text = *v
	case *[]byte:
		if c.Blob = *v; c.Blob == nil {
			c.Blob = []byte{}
		}
	default:
		if out := reflect.ValueOf(v).Elem(); out.Kind() == reflect.Pointer && out.IsNil() {
			return nil, nil
		}
		raw, err := schema.Encode(v)
		if err != nil {
			return nil, fmt.Errorf("encode the contents: %w", err)
		}
		c.Text = string(raw)
	}
	return &ReadResourceResult{Contents: []*ResourceContents{c}}, nil
}

func (e *templateEntry) bind(pattern string, vars reflect.Type, open openFunc) (err error) {
	if e.template, err = uritemplate.Parse(pattern); err != nil {
		return err
	}
	if vars != reflect.TypeFor[map[string]string]() {
		if !isStruct(vars) {
			return fmt.Errorf("variables: %s: want a struct or map[string]string", vars)
		}
		if e.args, err = textArgumentsOf(vars); err != nil {
			return fmt.Errorf("variables: %w", err)
		}
	}
	m, err := newMatcher(e.template, e.args)
	args := e.args
	e.open = func(uri string) (readFunc, bool) {
		found, ok := m.Match(uri)
		if !ok {
			return nil, false
		}
		vars, read := open()
		if args != nil {
			return read, args.fill(found, uri, vars)
		}
		texts := make(map[string]string, len(found))
		for name, value := range found {
			texts[name] = value.(string)
		}
		*vars.(*map[string]string) = texts
		return read, true
	}
	return err
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
