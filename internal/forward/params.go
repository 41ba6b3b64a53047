package forward

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/fold"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A member describes a member that the protocol defines in the params of a method, or in a value in
// the params.
type member struct {
	name         string        // anyName describes all members without a description of their own
	since, until wire.Revision // zero means no limit
	subject      bool          // the value is the name or URI that the request uses
	isObject     bool          // the value must be an object; null counts as absent
	of           members       // of the value, or of the elements of an array; nil allows all
}

type members []member

const anyName = ""

// A vocabulary holds the members of the params of all known methods. It is built on first use, so
// that programs that forward no requests do not pay for it.
type vocabulary struct {
	once    sync.Once
	methods map[string]members  // methods of the protocol, and of the extensions that package host routes
	keys    map[string]struct{} // methodKey of each method
	// extension contains the members that this package and package host read in the params of a
	// method that is not in methods. It allows all others.
	extension members
}

var known vocabulary

func (v *vocabulary) get() *vocabulary {
	v.once.Do(v.build)
	return v
}

func (v *vocabulary) build() {
	responses := members{{name: anyName, of: members{{name: "action"}, {name: "content"}, {name: "role"},
		{name: "model"}, {name: "stopReason"}, {name: "_meta"},
		{name: "roots", of: members{{name: "uri"}, {name: "name"}, {name: "_meta"}}}}}}
	answers := member{name: "inputResponses", since: wire.July2026, of: responses}
	state := member{name: "requestState", since: wire.July2026}
	byName, byURI := member{name: "name", subject: true}, member{name: "uri", subject: true}
	arguments, cursor, id := member{name: "arguments", isObject: true}, member{name: "cursor"}, member{name: "taskId"}
	page, resource, task := members{cursor}, members{byURI}, members{id}
	v.methods = map[string]members{
		wire.MethodToolsCall: {byName, arguments, answers, state,
			{name: "task", since: wire.November2025, until: wire.November2025, of: members{{name: "ttl"}}}},
		wire.MethodPromptsGet:           {byName, arguments, answers, state},
		wire.MethodResourcesRead:        {byURI, answers, state},
		wire.MethodResourcesSubscribe:   resource,
		wire.MethodResourcesUnsubscribe: resource,
		wire.MethodCompletionComplete: {
			{name: "ref", of: members{{name: "type"}, byName, byURI, {name: "title", since: wire.June2025}}},
			{name: "argument", of: members{{name: "name"}, {name: "value"}}},
			{name: "context", since: wire.June2025, of: members{{name: "arguments"}}}},
		wire.MethodLoggingSetLevel: {{name: "level"}},
		wire.MethodSubscriptionsListen: {{name: "notifications", of: members{{name: "toolsListChanged"},
			{name: "promptsListChanged"}, {name: "resourcesListChanged"}, {name: "resourceSubscriptions"},
			{name: "taskIds"}, {name: anyName}}}},
		wire.MethodToolsList: page, wire.MethodPromptsList: page, wire.MethodResourcesList: page,
		wire.MethodResourcesTemplatesList: page, wire.MethodTasksList: page, "skills/list": page,
		wire.MethodTasksGet: task, wire.MethodTasksCancel: task, wire.MethodTasksResult: {id, answers, state},
		"tasks/update": {id, {name: "inputResponses", of: responses}},
		"skills/get":   resource, "resources/directory/read": {byURI, cursor},
		wire.MethodDiscover: {}, wire.MethodInitialize: {}, wire.MethodPing: {},
		wire.MethodRootsList: {}, wire.MethodSamplingCreateMessage: {}, wire.MethodElicitationCreate: {}, // by servers
	}
	v.extension = members{byName, byURI, {name: "arguments"}, {name: "inputResponses"}, {name: "requestState"},
		{name: anyName}}
	v.keys = map[string]struct{}{}
	for method := range v.methods {
		v.keys[methodKey(method)] = struct{}{}
	}
}

func membersOf(method string) members {
	v := known.get()
	if of, ok := v.methods[method]; ok {
		return of
	}
	return v.extension
}

// find returns the description of the member with this name, or nil if the member is not defined.
func (of members) find(name []byte) *member {
	for i := range of {
		if of[i].name == string(name) && of[i].name != anyName {
			return &of[i]
		}
	}
	if n := len(of) - 1; n >= 0 && of[n].name == anyName && string(name) != "_meta" {
		return &of[n]
	}
	return nil
}

// isOf reports whether a revision defines the member. Zero means any revision.
func (m *member) isOf(r wire.Revision) bool {
	return r == 0 || r >= m.since && (m.until == 0 || r <= m.until)
}

// Params returns the params of a request without the members that no revision defines, or nil if
// all members are defined. It refuses names that a lenient server could confuse: a method that
// differs from a method of the protocol, or a member that differs from another member, only in
// case, in white space around it or in invisible characters.
func Params(method string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
	v := known.get()
	of, ok := v.methods[method]
	if !ok {
		if v.resembles(method) {
			return nil, &jsonrpc.Error{Code: wire.CodeMethodNotFound, Message: "method not found: " + method}
		}
		of = v.extension
	}
	defined, err := of.check(params, "")
	if err != nil || defined {
		return nil, err
	}
	b := []byte{'{'}
	if meta, ok := jsonscan.Get(params, "_meta"); ok {
		b = append(append(b, `"_meta":`...), meta...)
	}
	mark := len(b)
	if b = of.append(b, params, 0, ""); mark == 1 && len(b) > mark {
		b = append(b[:mark], b[mark+1:]...) // without the first comma
	}
	return append(b, '}'), nil
}

// check reports whether all members of an object are defined, and refuses ambiguous names. path is
// the path of the object in the params.
func (of members) check(object []byte, path string) (defined bool, err *jsonrpc.Error) {
	defined = true
	var others map[string]struct{} // names that are not defined, folded
	for name, value := range jsonscan.Members(object) {
		m := of.find(name)
		switch {
		case m == nil && string(name) == "_meta":
			continue
		case m == nil || m.name == anyName:
			key := fold.Key(name)
			if _, twice := others[key]; twice || of.folds(key) {
				return false, ambiguous(path, name)
			}
			if others == nil {
				others = map[string]struct{}{}
			}
			others[key] = struct{}{}
			if m == nil {
				defined = false
				continue
			}
		}
		exact, err := m.check(value, path)
		if err != nil {
			return false, err
		}
		defined = defined && exact
	}
	return defined, nil
}

func (m *member) check(value []byte, path string) (defined bool, err *jsonrpc.Error) {
	kind := jsonscan.Kind(value)
	switch {
	case m.isObject && kind == 'n':
		return false, nil
	case m.isObject && kind != '{':
		return false, &jsonrpc.Error{Code: wire.CodeInvalidParams,
			Message: "invalid params" + path + "." + m.name + ": must be an object"}
	case m.of == nil:
		return true, nil
	case kind == '{':
		return m.of.check(value, path+"."+m.name)
	}
	defined = true
	for element := range jsonscan.Elements(value) {
		exact, err := m.of.check(element, path+"."+m.name)
		if err != nil {
			return false, err
		}
		defined = defined && exact
	}
	return defined, nil
}

// folds reports whether key equals the fold.Key of a defined member.
func (of members) folds(key string) bool {
	for i := range of {
		if of[i].name != anyName && fold.Key(of[i].name) == key {
			return true
		}
	}
	return key == "_meta"
}

func ambiguous(path string, name []byte) *jsonrpc.Error {
	return &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: "invalid params" + path + ": " +
		(&fold.AmbiguousError{Name: string(name)}).Error()}
}

// append appends the members of an object that the revision defines, each after a comma. A zero
// revision means any revision. If subject is not empty, it replaces the name or URI.
func (of members) append(dst, object []byte, r wire.Revision, subject string) []byte {
	d := jsonscan.Descend(object) // no closure of an iterator: this runs for each request
	d.Into('{')
	for name, ok := d.Key(); ok; name, ok = d.Key() {
		value := d.Value()
		m := of.find(name)
		if m == nil || !m.isOf(r) || m.isObject && jsonscan.Kind(value) != '{' {
			continue
		}
		if m.name == anyName {
			dst = append(jsonscan.AppendQuote(append(dst, ','), string(name)), ':')
		} else {
			dst = append(append(append(dst, `,"`...), m.name...), `":`...)
		}
		if m.subject && subject != "" {
			dst = jsonscan.AppendQuote(dst, subject)
		} else {
			dst = m.append(dst, value, r, subject)
		}
	}
	return dst
}

func (m *member) append(dst, value []byte, r wire.Revision, subject string) []byte {
	switch kind := jsonscan.Kind(value); {
	case m.of != nil && kind == '{':
		return m.of.appendObject(dst, value, r, subject)
	case m.of != nil && kind == '[':
		dst = append(dst, '[')
		for element := range jsonscan.Elements(value) {
			if dst[len(dst)-1] != '[' {
				dst = append(dst, ',')
			}
			if jsonscan.Kind(element) == '{' {
				dst = m.of.appendObject(dst, element, r, subject)
			} else {
				dst = append(dst, element...)
			}
		}
		return append(dst, ']')
	}
	return append(dst, value...)
}

func (of members) appendObject(dst, object []byte, r wire.Revision, subject string) []byte {
	mark := len(dst)
	dst = of.append(dst, object, r, subject)
	if len(dst) == mark {
		return append(dst, "{}"...)
	}
	dst[mark] = '{' // in place of the first comma
	return append(dst, '}')
}

// AppendParams appends the members of the params of a request that the revision defines, each after
// a comma, without `_meta`. For a method of an extension it appends all members. If subject is not
// empty, it replaces the name or URI.
func AppendParams(dst, params []byte, method, subject string, r wire.Revision) []byte {
	return membersOf(method).append(dst, params, r, subject)
}

// Subject returns the name or URI in the params of a request that [AppendParams] replaces.
func Subject(params []byte, method string) string {
	of := membersOf(method)
	if method == wire.MethodCompletionComplete {
		params, _ = jsonscan.Get(params, "ref")
		of = of[0].of
	}
	for name, value := range jsonscan.Members(params) {
		if m := of.find(name); m != nil && m.subject {
			text, _ := jsonscan.Unquote(value)
			return text
		}
	}
	return ""
}

// methodKey returns the same text for all methods that a lenient server confuses with each other:
// it folds the parts of the method and drops empty parts.
func methodKey(method string) string {
	parts := strings.FieldsFunc(method, func(r rune) bool { return r == '/' })
	for i, part := range parts {
		parts[i] = fold.Key(part)
	}
	return strings.Join(parts, "/")
}

// resembles reports whether a method is not a method of the protocol, but differs from a method of
// the protocol only in case, white space, invisible characters or slashes.
func (v *vocabulary) resembles(method string) bool {
	key := methodKey(method)
	_, resembles := v.keys[key]
	for _, r := range wire.Revisions() {
		if _, exact := r.Method(method); exact {
			return false
		}
		_, folded := r.Method(key)
		resembles = resembles || folded
	}
	return resembles
}
