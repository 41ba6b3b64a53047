package conformance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf16"
)

// A gatewayPlan says where a client connects and what it uses there. Clients in TypeScript get it as
// JSON; see clients/gateway.mjs.
type gatewayPlan struct {
	Kind    string          `json:"kind"` // http or stdio
	URL     string          `json:"url"`
	Key     string          `json:"key,omitempty"`
	Command []string        `json:"command"`
	Root    string          `json:"root"` // the root of the client: a file URI
	ID      string          `json:"id"`   // in what the client writes
	Servers []plannedServer `json:"servers"`
	Plain   bool            `json:"plain"` // names have no prefix: there is one server
}

type plannedServer struct {
	Name string `json:"name"` // in the configuration
	Is   string `json:"is"`   // everything, filesystem, memory, thinking or fixtures
}

// A gatewayReport is what a client saw.
type gatewayReport struct {
	Revision     string
	Server       struct{ Name string }
	Instructions string
	Tools        []string
	Prompts      []string
	Resources    []string
	Templates    []string
	Unknown      string // the error for an unknown tool
	Servers      map[string]*serverReport
}

// A serverReport is what a client saw of one server. Which members are set depends on the server.
type serverReport struct {
	Echo, Sum, Long, Afterwards, Form, Page, Sample, Async, Roots, Rounds, Three, Simple string

	Structured, Thought                     json.RawMessage
	Image, Links, Asked                     []string
	Wrong, Logged, Updated, Changed, Listed bool
	Failed, Allowed, Denied                 bool
	Progress                                []float64
	Cancelled, Blob, Prompt, Made           string
	Missing                                 int
	Completion, TemplateCompletion          []string
	Read                                    json.RawMessage
	Written, Found, Template                string
}

// A goClient is a client of another Go SDK. do sends a request of the session era: params and the
// result have the form of the specification. Progress goes to the host by its token.
type goClient interface {
	peer() (revision, server, instructions string)
	do(ctx context.Context, method string, params any) (any, error)
	watch(ctx context.Context, uri string) error
	close()
}

// A goHost is what the user and the model of a goClient do, and what they get.
type goHost struct {
	mu             sync.Mutex
	asked, logs    []string
	updated        []string
	changes        int
	tokens         int
	onProgress     map[string]func(progress, total float64)
	root, logLevel string
	acks           atomic.Int64 // of subscriptions
}

func (h *goHost) note(list *[]string, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*list = append(*list, text)
}

// has reports whether a condition holds, which may read the host.
func (h *goHost) has(condition func() bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return condition()
}

func (h *goHost) progress(token any, progress, total float64) {
	h.mu.Lock()
	f := h.onProgress[fmt.Sprint(token)]
	h.mu.Unlock()
	if f != nil {
		f(progress, total)
	}
}

func (h *goHost) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes++
}

// elicit fills in the required fields of a form, and accepts every page.
func (h *goHost) elicit(mode, message, page string, schema any) map[string]any {
	h.note(&h.asked, strings.TrimSpace(fmt.Sprintf("%s: %s %s", cmp.Or(mode, "form"), message, page)))
	text, _ := json.Marshal(schema)
	var form struct {
		Properties map[string]struct{ Type, Format string }
		Required   []string
	}
	if mode == "url" || json.Unmarshal(text, &form) != nil {
		return nil
	}
	content := map[string]any{}
	for _, name := range form.Required {
		switch field := form.Properties[name]; {
		case field.Type == "boolean":
			content[name] = true
		case field.Format == "email":
			content[name] = "ada@example.com"
		case field.Type == "string":
			content[name] = "Ada"
		default:
			content[name] = 7
		}
	}
	return content
}

// until waits until a condition holds, for at most 20 s.
func until(ctx context.Context, met func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for !met() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// A calledTool is the part of the result of tools/call that is judged.
type calledTool struct {
	IsError           bool
	StructuredContent json.RawMessage
	Content           []struct{ Type, Text, URI, MimeType string }
}

func (r calledTool) text() string {
	texts := make([]string, 0, len(r.Content))
	for _, c := range r.Content {
		texts = append(texts, c.Text)
	}
	return strings.Join(texts, "\n")
}

// A gatewayExercise is the run of one client. Its functions panic with failure.
type gatewayExercise struct {
	ctx  context.Context
	plan gatewayPlan
	c    goClient
	h    *goHost
	seen gatewayReport
	name string // of the current server
}

type failure struct{ err error }

// run does what clients/gateway.mjs does.
func (e *gatewayExercise) run() (seen *gatewayReport, err error) {
	defer func() {
		if f, ok := recover().(failure); ok {
			seen, err = nil, fmt.Errorf("server %q: %w", e.name, f.err)
		}
	}()
	e.seen.Revision, e.seen.Server.Name, e.seen.Instructions = e.c.peer()
	e.seen.Servers = map[string]*serverReport{}
	until(e.ctx, func() bool { // servers that start slowly are listed later
		e.seen.Tools = e.list("tools", "name")
		return !slices.ContainsFunc(e.plan.Servers, func(s plannedServer) bool {
			return !e.plan.Plain && !slices.ContainsFunc(e.seen.Tools, func(name string) bool {
				return strings.HasPrefix(name, s.Name+"__")
			})
		})
	})
	e.seen.Prompts = e.list("prompts", "name")
	e.seen.Resources = e.list("resources", "uri")
	e.seen.Templates = e.list("resourceTemplates", "uriTemplate")
	if e.seen.Revision < "2026-07-28" {
		e.get("logging/setLevel", map[string]any{"level": "debug"}, nil)
	} else {
		e.h.logLevel = "debug"
	}
	for _, s := range e.plan.Servers {
		e.name = s.Name
		before := len(e.h.asked)
		r := &serverReport{}
		e.seen.Servers[s.Name] = r
		switch s.Is {
		case "everything":
			e.everything(r)
		case "filesystem":
			e.filesystem(r)
		case "memory":
			e.memory(r)
		case "thinking":
			r.Thought = e.call("sequentialthinking", map[string]any{"thought": "First.", "nextThoughtNeeded": true,
				"thoughtNumber": 1, "totalThoughts": 2}).StructuredContent
		case "fixtures":
			e.fixtures(r)
		}
		r.Asked = slices.Clone(e.h.asked[before:])
	}
	result, err := e.c.do(e.ctx, "tools/call", map[string]any{"name": "no_such_tool", "arguments": map[string]any{}})
	e.seen.Unknown = fmt.Sprint(result, err)
	return &e.seen, nil
}

// get sends a request and decodes the result, unless it is nil.
func (e *gatewayExercise) get(method string, params map[string]any, result any) {
	got, err := e.c.do(e.ctx, method, params)
	if err != nil {
		panic(failure{fmt.Errorf("%s %v: %w", method, params, err)})
	}
	if err := convert(got, result); err != nil {
		panic(failure{fmt.Errorf("%s %v: %w", method, params, err)})
	}
}

// convert copies a value to another of the same JSON form. to may be nil.
func convert(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil || to == nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// list returns a member of all items of a list.
func (e *gatewayExercise) list(kind, member string) (values []string) {
	method := map[string]string{"resourceTemplates": "resources/templates"}[kind]
	params := map[string]any{}
	for {
		var page map[string]json.RawMessage
		e.get(cmp.Or(method, kind)+"/list", params, &page)
		var items []map[string]any
		if err := json.Unmarshal(page[kind], &items); err != nil {
			panic(failure{err})
		}
		for _, item := range items {
			values = append(values, fmt.Sprint(item[member]))
		}
		var next string
		if _ = json.Unmarshal(page["nextCursor"], &next); next == "" {
			return values
		}
		params["cursor"] = next
	}
}

// item returns the public name of a tool or prompt of the current server. A long one ends in a hash.
func (e *gatewayExercise) item(original string) string {
	if e.plan.Plain {
		return original
	}
	public := e.name + "__" + original
	for _, name := range e.seen.Tools {
		if len(public) > len(name) && len(name) == maxPublicName && strings.HasPrefix(name, public[:maxPublicName-7]+"_") {
			return name
		}
	}
	return public
}

// maxPublicName is the default maximum length of a name, in characters.
const maxPublicName = 48

// uri returns the listed form of a URI of the current server.
func (e *gatewayExercise) uri(original string) string {
	mapped := "patchbay://" + e.name + "/"
	for _, u := range e.seen.Resources {
		if escaped, ok := strings.CutPrefix(u, mapped); ok {
			if got, err := url.PathUnescape(escaped); err == nil && got == original {
				return u
			}
		}
	}
	return original
}

func (e *gatewayExercise) template(original string) string {
	if mapped := "patchbay://" + e.name + "/" + original; slices.Contains(e.seen.Templates, mapped) {
		return mapped
	}
	return original
}

func (e *gatewayExercise) call(tool string, args map[string]any) (r calledTool) {
	r, err := e.try(e.ctx, tool, args, nil)
	if err != nil {
		panic(failure{fmt.Errorf("%s: %w", tool, err)})
	}
	return r
}

// try calls a tool with a function for its progress, which may be nil.
func (e *gatewayExercise) try(ctx context.Context, tool string, args map[string]any,
	onProgress func(progress, total float64)) (r calledTool, err error) {
	meta := map[string]any{}
	if e.h.logLevel != "" {
		meta["io.modelcontextprotocol/logLevel"] = e.h.logLevel
	}
	if onProgress != nil {
		e.h.mu.Lock()
		e.h.tokens++
		token := fmt.Sprintf("%s-%d", e.plan.ID, e.h.tokens)
		e.h.onProgress[token] = onProgress
		e.h.mu.Unlock()
		meta["progressToken"] = token
	}
	if args == nil {
		args = map[string]any{}
	}
	got, err := e.c.do(ctx, "tools/call", map[string]any{"name": e.item(tool), "arguments": args, "_meta": meta})
	if err == nil {
		err = convert(got, &r)
	}
	return r, err
}

func (e *gatewayExercise) everything(r *serverReport) {
	r.Echo = e.call("echo", map[string]any{"message": "hé from " + e.plan.ID}).text()
	r.Sum = e.call("get-sum", map[string]any{"a": 20, "b": 22}).text()
	r.Structured = e.call("get-structured-content", map[string]any{"location": "Chicago"}).StructuredContent
	for _, c := range e.call("get-tiny-image", nil).Content {
		if c.Type == "image" {
			r.Image = append(r.Image, c.MimeType)
		}
	}
	for _, c := range e.call("get-resource-links", map[string]any{"count": 3}).Content {
		if c.Type == "resource_link" {
			r.Links = append(r.Links, c.URI)
		}
	}
	wrong, err := e.try(e.ctx, "get-sum", map[string]any{"a": "x"}, nil)
	r.Wrong = wrong.IsError || err != nil
	e.longCalls(r)
	r.Form = e.call("trigger-elicitation-request", nil).text()
	r.Page = e.call("trigger-url-elicitation", map[string]any{"url": "https://example.com/consent",
		"message": "Please consent."}).text()
	r.Sample = e.call("trigger-sampling-request", map[string]any{"prompt": "hello"}).text()
	r.Roots = e.call("get-roots-list", nil).text()
	if e.plan.Plain {
		r.Async = e.call("trigger-sampling-request-async", map[string]any{"prompt": "hello"}).text()
		e.h.has(func() bool { e.h.asked = e.h.asked[:len(e.h.asked)-1]; return true }) // as the one before
	}
	e.data(r)
	e.changes(r)
}

// longCalls uses progress, log messages and cancellation. A log message is sent while a call runs;
// where it arrives otherwise is not defined.
func (e *gatewayExercise) longCalls(r *serverReport) {
	toggled := make(chan error, 1)
	toggle := sync.OnceFunc(func() {
		go func() {
			_, err := e.try(e.ctx, "toggle-simulated-logging", nil, nil)
			toggled <- err
		}()
	})
	var mu sync.Mutex
	long, err := e.try(e.ctx, "trigger-long-running-operation", map[string]any{"duration": 0.6, "steps": 3},
		func(progress, total float64) {
			mu.Lock()
			defer mu.Unlock()
			r.Progress = append(r.Progress, progress/total)
			toggle()
		})
	if err != nil {
		panic(failure{err})
	}
	mu.Lock()
	r.Long, r.Progress = long.text(), slices.Clone(r.Progress)
	mu.Unlock()
	toggle()
	if err := <-toggled; err != nil {
		panic(failure{err})
	}
	r.Logged = until(e.ctx, func() bool {
		return e.h.has(func() bool {
			return slices.ContainsFunc(e.h.logs, func(l string) bool { return strings.Contains(l, "essage") })
		})
	})
	e.h.has(func() bool { e.h.logs = nil; return true })
	e.call("toggle-simulated-logging", nil)
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	_, err = e.try(ctx, "trigger-long-running-operation", map[string]any{"duration": 2, "steps": 20},
		func(float64, float64) { cancel() })
	r.Cancelled = "a result"
	if err != nil && ctx.Err() != nil && e.ctx.Err() == nil {
		r.Cancelled = "cancelled"
	}
	r.Afterwards = e.call("echo", map[string]any{"message": "still there"}).text()
}

// A readResult is the part of the result of resources/read that is judged.
type readResult struct {
	Contents []struct {
		URI, MimeType, Text string
		Blob                []byte
	}
}

func (e *gatewayExercise) read(uri string) (r readResult) {
	e.get("resources/read", map[string]any{"uri": uri}, &r)
	if len(r.Contents) == 0 {
		panic(failure{fmt.Errorf("resources/read %s: no contents", uri)})
	}
	return r
}

func (e *gatewayExercise) prompt(name string, args map[string]any) string {
	var r struct {
		Messages []struct{ Content struct{ Text string } }
	}
	e.get("prompts/get", map[string]any{"name": e.item(name), "arguments": args}, &r)
	if len(r.Messages) == 0 {
		panic(failure{errors.New("prompts/get: no messages")})
	}
	return r.Messages[0].Content.Text
}

func (e *gatewayExercise) complete(ref map[string]any, name, value string, known map[string]any) []string {
	var r struct{ Completion struct{ Values []string } }
	params := map[string]any{"ref": ref, "argument": map[string]any{"name": name, "value": value}}
	if known != nil {
		params["context"] = map[string]any{"arguments": known}
	}
	e.get("completion/complete", params, &r)
	return r.Completion.Values
}

func (e *gatewayExercise) data(r *serverReport) {
	document := e.uri("demo://resource/static/document/features.md")
	got := e.read(document).Contents[0]
	r.Read, _ = json.Marshal(map[string]any{"asked": document, "uri": got.URI, "mimeType": got.MimeType,
		"length": len(utf16.Encode([]rune(got.Text)))})
	blobs := e.template("demo://resource/dynamic/blob/{resourceId}")
	blob := e.read(strings.ReplaceAll(blobs, "{resourceId}", "7")).Contents[0].Blob
	r.Blob, _, _ = strings.Cut(string(blob), ":")
	_, err := e.c.do(e.ctx, "resources/read", map[string]any{"uri": "demo://nowhere"})
	r.Missing = errorCode(err)
	r.Prompt = e.prompt("args-prompt", map[string]any{"city": "Kyoto"})
	r.Completion = e.complete(map[string]any{"type": "ref/prompt", "name": e.item("completable-prompt")}, "name", "A",
		map[string]any{"department": "Engineering"})
	r.TemplateCompletion = e.complete(map[string]any{"type": "ref/resource",
		"uri": e.template("demo://resource/dynamic/text/{resourceId}")}, "resourceId", "7", nil)
}

func (e *gatewayExercise) changes(r *serverReport) {
	document := e.uri("demo://resource/static/document/features.md")
	if err := e.c.watch(e.ctx, document); err != nil {
		panic(failure{fmt.Errorf("subscription: %w", err)})
	}
	e.call("toggle-subscriber-updates", nil)
	r.Updated = until(e.ctx, func() bool {
		return e.h.has(func() bool { return slices.Contains(e.h.updated, document) })
	})
	e.call("toggle-subscriber-updates", nil)
	e.h.has(func() bool { e.h.changes = 0; return true })
	file := e.plan.ID + ".gz"
	made := e.call("gzip-file-as-resource", map[string]any{"name": file, "data": "data:text/plain,hi",
		"outputType": "resourceLink"})
	if len(made.Content) > 0 {
		r.Made = made.Content[0].URI
	}
	r.Changed = until(e.ctx, func() bool { return e.h.has(func() bool { return e.h.changes > 0 }) })
	r.Listed = until(e.ctx, func() bool { return slices.Contains(e.list("resources", "name"), file) })
}

func (e *gatewayExercise) filesystem(r *serverReport) {
	dir := strings.TrimPrefix(e.plan.Root, "file://")
	path := dir + "/" + e.plan.ID + ".txt"
	if err := os.WriteFile(path, []byte("hé\nllo"), 0o600); err != nil {
		panic(failure{err})
	}
	r.Allowed = strings.Contains(e.call("list_allowed_directories", nil).text(), dir)
	r.Written = e.call("write_file", map[string]any{"path": dir + "/" + e.plan.ID + "-new.txt",
		"content": "new"}).text()
	var structured struct {
		Content string `json:"content"`
	}
	_ = json.Unmarshal(e.call("read_text_file", map[string]any{"path": path}).StructuredContent, &structured)
	r.Read, _ = json.Marshal(structured.Content)
	denied, err := e.try(e.ctx, "read_text_file", map[string]any{"path": "/etc/passwd"}, nil)
	r.Denied = err == nil && denied.IsError
}

func (e *gatewayExercise) memory(r *serverReport) {
	entity := map[string]any{"name": e.plan.ID, "entityType": "person", "observations": []string{"writes " + e.plan.ID}}
	e.call("create_entities", map[string]any{"entities": []any{entity}})
	r.Found = e.call("search_nodes", map[string]any{"query": "writes " + e.plan.ID}).text()
}

// fixtures uses the server of the conformance suites, ./server.
func (e *gatewayExercise) fixtures(r *serverReport) {
	r.Simple = e.call("test_simple_text", nil).text()
	var mu sync.Mutex
	if _, err := e.try(e.ctx, "test_tool_with_progress", nil, func(progress, _ float64) {
		mu.Lock()
		defer mu.Unlock()
		r.Progress = append(r.Progress, progress)
	}); err != nil {
		panic(failure{err})
	}
	e.h.has(func() bool { e.h.logs = nil; return true })
	e.call("test_tool_with_logging", nil)
	r.Logged = until(e.ctx, func() bool { return e.h.has(func() bool { return len(e.h.logs) >= 3 }) })
	r.Form = e.call("test_elicitation", map[string]any{"message": "Who are you?"}).text()
	r.Rounds = e.call("test_input_required_result_multi_round", nil).text()
	r.Three = e.call("test_input_required_result_multiple_inputs", nil).text()
	r.Sample = e.call("test_sampling", map[string]any{"prompt": "hello"}).text()
	r.Roots = e.call("test_input_required_result_list_roots", nil).text()
	r.Failed = e.call("test_error_handling", nil).IsError
	r.Read, _ = json.Marshal(e.read("test://static-text").Contents[0].Text)
	r.Template = e.read("test://template/7/data").Contents[0].Text
	r.Prompt = e.prompt("test_prompt_with_arguments", map[string]any{"arg1": "a", "arg2": "b"})
	r.Completion = e.complete(map[string]any{"type": "ref/prompt", "name": e.item("test_prompt_with_arguments")},
		"arg1", "test", nil)
}
