package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const modernMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s}`

// modernRequest returns a request of the newest revision, made by the given principal.
func modernRequest(t *testing.T, who *mcp.Principal, method string, params map[string]any) *mcp.Request {
	t.Helper()
	all := map[string]any{"_meta": json.RawMessage(fmt.Sprintf(modernMeta, `{"elicitation":{}}`))}
	for k, v := range params {
		all[k] = v
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: method, Params: raw})
	if err != nil {
		t.Fatal(err)
	}
	req.Principal = who
	return req
}

// serveModern serves one request of the newest revision and returns its result or its error.
func serveModern(t *testing.T, s *mcp.Server, method string, params map[string]any) (string, *mcp.Error) {
	t.Helper()
	return serveAs(t, s, nil, method, params)
}

func serveAs(t *testing.T, s *mcp.Server, who *mcp.Principal, method string, params map[string]any) (string, *mcp.Error) {
	t.Helper()
	req := modernRequest(t, who, method, params)
	res, err := s.ServeMCP(context.Background(), req)
	if err != nil {
		var e *mcp.Error
		if !errors.As(err, &e) {
			t.Fatalf("%s: got %v, want a *mcp.Error", method, err)
		}
		return "", e
	}
	raw, err := req.EncodeResult(res)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	if !json.Valid(raw) {
		t.Fatalf("%s: not JSON: %s", method, raw)
	}
	return string(raw), nil
}

// quietServer returns a server that discards its log.
func quietServer(opts mcp.ServerOptions) *mcp.Server {
	opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	return mcp.NewServer("test", "1", &opts)
}

// want checks that a result contains the texts.
func want(t *testing.T, got string, err *mcp.Error, texts ...string) {
	t.Helper()
	if err != nil {
		t.Errorf("got error %d %s %s", err.Code, err.Message, err.Data)
		return
	}
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("got %s, want %s in it", got, text)
		}
	}
}

// wantError checks the code of an error, and that its message or data contain the texts.
func wantError(t *testing.T, got string, err *mcp.Error, code int, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("got %s, want an error with code %d", got, code)
		return
	}
	all := err.Message + " " + string(err.Data)
	if err.Code != code {
		t.Errorf("got code %d (%s), want %d", err.Code, all, code)
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("got %s, want %s in it", all, text)
		}
	}
}

func read(t *testing.T, s *mcp.Server, uri string) (string, *mcp.Error) {
	t.Helper()
	return serveModern(t, s, "resources/read", map[string]any{"uri": uri})
}

func addText(s *mcp.Server, uri, text string) *mcp.Registration[mcp.Resource] {
	return mcp.AddResource(s, &mcp.Resource{URI: uri, Name: "text"},
		func(context.Context, string) (string, error) { return text, nil })
}

// Requirement: RES-01
func TestMethodsWithoutFeaturesAreNotFound(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	for _, method := range []string{"resources/list", "resources/templates/list", "resources/read", "prompts/list", "prompts/get", "completion/complete"} {
		got, err := serveModern(t, s, method, map[string]any{"uri": "x://y", "name": "x"})
		wantError(t, got, err, mcp.CodeMethodNotFound, method)
	}
}

// Requirement: RES-02
func TestEmptyListsAreReturned(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	addText(s, "x://a", "").Remove()
	for method, empty := range map[string]string{"resources/list": `"resources":[]`, "resources/templates/list": `"resourceTemplates":[]`} {
		got, err := serveModern(t, s, method, nil)
		want(t, got, err, empty, `"resultType":"complete"`, `"ttlMs":0,"cacheScope":"private"`)
	}
}

// Requirement: RES-03, RES-21
func TestResultsOfResourceFunctions(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	add := func(uri string) *mcp.Resource { return &mcp.Resource{URI: uri, Name: "n"} }
	mcp.AddResource(s, add("x://string"), func(context.Context, string) (string, error) { return "a\nb", nil })
	mcp.AddResource(s, add("x://empty"), func(context.Context, string) (string, error) { return "", nil })
	mcp.AddResource(s, add("x://bytes"), func(context.Context, string) ([]byte, error) { return []byte{0xff, 0}, nil })
	mcp.AddResource(s, add("x://nobytes"), func(context.Context, string) ([]byte, error) { return nil, nil })
	mcp.AddResource(s, &mcp.Resource{URI: "x://one", Name: "n", MIMEType: "text/html"},
		func(context.Context, string) (*mcp.ResourceContents, error) {
			return &mcp.ResourceContents{Text: "<p>", Meta: mcp.Meta{"com.example/a": 1}}, nil
		})
	mcp.AddResource(s, add("x://several"), func(_ context.Context, uri string) ([]*mcp.ResourceContents, error) {
		return []*mcp.ResourceContents{{URI: uri + "/1", MIMEType: "a/b", Text: "1"}, {URI: uri + "/2", Blob: []byte{}}}, nil
	})
	mcp.AddResource(s, add("x://result"), func(context.Context, string) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{Text: "t"}}, Meta: mcp.Meta{"com.example/b": 2}}, nil
	})
	for uri, contents := range map[string]string{
		"x://string":  `"contents":[{"uri":"x://string","mimeType":"text/plain","text":"a\nb"}]`,
		"x://empty":   `"contents":[{"uri":"x://empty","mimeType":"text/plain","text":""}]`,
		"x://bytes":   `"contents":[{"uri":"x://bytes","mimeType":"application/octet-stream","blob":"/wA="}]`,
		"x://nobytes": `"contents":[{"uri":"x://nobytes","mimeType":"application/octet-stream","blob":""}]`,
		"x://one":     `"contents":[{"uri":"x://one","mimeType":"text/html","text":"<p>","_meta":{"com.example/a":1}}]`,
		"x://several": `"contents":[{"uri":"x://several/1","mimeType":"a/b","text":"1"},{"uri":"x://several/2","blob":""}]`,
		"x://result":  `"com.example/b":2`,
	} {
		got, err := read(t, s, uri)
		want(t, got, err, contents, `"resultType":"complete"`, `"ttlMs":0,"cacheScope":"private"`)
	}
}

// Requirement: RES-09, RES-10
func TestNotFoundNamesTheURI(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	addText(s, "x://there", "")
	fail := func(uri string, err error) {
		mcp.AddResource(s, &mcp.Resource{URI: uri, Name: "n"}, func(context.Context, string) (string, error) { return "", err })
	}
	fail("x://gone", mcp.NotFound("x://gone"))
	fail("x://wrapped", fmt.Errorf("read: %w", &fs.PathError{Op: "open", Path: "/secret", Err: fs.ErrNotExist}))
	mcp.AddResource(s, &mcp.Resource{URI: "x://nil", Name: "n"}, func(context.Context, string) (*mcp.ResourceContents, error) { return nil, nil })
	mcp.AddResource(s, &mcp.Resource{URI: "x://none", Name: "n"}, func(context.Context, string) ([]*mcp.ResourceContents, error) {
		return []*mcp.ResourceContents{}, nil
	})
	mcp.AddResource(s, &mcp.Resource{URI: "x://noresult", Name: "n"}, func(context.Context, string) (*mcp.ReadResourceResult, error) { return nil, nil })
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://n/{n}", Name: "number"},
		func(context.Context, struct {
			N int `json:"n"`
		}) (string, error) {
			return "", fs.ErrNotExist
		})
	for _, uri := range []string{"x://gone", "x://wrapped", "x://nil", "x://none", "x://noresult", "x://other", "x://there/", "X://there", "x://n/5", "x://n/five"} {
		got, err := read(t, s, uri)
		wantError(t, got, err, mcp.CodeInvalidParams, "not found", `{"uri":"`+uri+`"}`)
		if err != nil && strings.Contains(err.Message, "secret") {
			t.Errorf("%s: got %q, want no details", uri, err.Message)
		}
	}
}

// Requirement: RES-11
func TestOtherErrorsAreInternal(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	fail := func(uri string, err error) {
		mcp.AddResource(s, &mcp.Resource{URI: uri, Name: "n"}, func(context.Context, string) (string, error) { return "", err })
	}
	fail("x://plain", errors.New("password is secret"))
	fail("x://protocol", mcp.Errorf(4711, "not today"))
	mcp.AddResource(s, &mcp.Resource{URI: "x://panic", Name: "n"}, func(context.Context, string) (string, error) { panic("secret") })
	mcp.AddResource(s, &mcp.Resource{URI: "x://hole", Name: "n"}, func(context.Context, string) ([]*mcp.ResourceContents, error) {
		return []*mcp.ResourceContents{nil}, nil
	})
	mcp.AddResource(s, &mcp.Resource{URI: "x://cache", Name: "n"}, func(context.Context, string) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{}}, Cache: mcp.Cache{TTL: -1 * time.Millisecond}}, nil
	})
	for _, uri := range []string{"x://plain", "x://panic", "x://hole", "x://cache"} {
		got, err := read(t, s, uri)
		wantError(t, got, err, mcp.CodeInternalError, "internal error")
		if err != nil && strings.Contains(err.Message+string(err.Data), "secret") {
			t.Errorf("%s: got %v, want no details", uri, err)
		}
	}
	got, err := read(t, s, "x://protocol")
	wantError(t, got, err, 4711, "not today")
}

// Requirement: RES-16
func TestInvalidURIsAreInvalidParams(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "{+any}", Name: "any"},
		func(_ context.Context, vars map[string]string) (string, error) { return vars["any"], nil })
	for _, uri := range []string{"", "a", "x y://a", "x://a b", "x://é", "x://%", "x:" + strings.Repeat("a", 8<<10)} {
		got, err := read(t, s, uri)
		wantError(t, got, err, mcp.CodeInvalidParams, "params.uri")
	}
	got, err := serveModern(t, s, "resources/read", nil)
	wantError(t, got, err, mcp.CodeInvalidParams, "params.uri is missing")
	got, err = serveModern(t, s, "resources/read", map[string]any{"uri": 5})
	wantError(t, got, err, mcp.CodeInvalidParams, "params.uri")
	got, err = read(t, s, "x:a")
	want(t, got, err, `"text":"x:a"`)
}

type logVars struct {
	Day   int      `json:"day" jsonschema:"minimum=1,maximum=31"`
	Host  []string `json:"host,omitempty"`
	Level string   `json:"level,omitempty" jsonschema:"enum=info|warning,default=info"`
	Full  bool     `json:"full,omitempty"`
	URI   string   `json:"uri"`
}

// Requirement: RES-04
func TestVariablesAreTyped(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "log://{day}{/host*}{?level,full}", Name: "log"},
		func(_ context.Context, v logVars) (string, error) { return fmt.Sprintf("%+v", v), nil })
	for uri, text := range map[string]string{
		"log://5":                          "{Day:5 Host:[] Level:info Full:false URI:log://5}",
		"log://5/a/b%2Fc?full=true":        "{Day:5 Host:[a b/c] Level:info Full:true URI:log://5/a/b%2Fc?full=true}",
		"log://5?full=false&level=warning": "{Day:5 Host:[] Level:warning Full:false URI:log://5?full=false&level=warning}",
		"log://5?full=":                    "{Day:5 Host:[] Level:info Full:false URI:log://5?full=}",
	} {
		got, err := read(t, s, uri)
		want(t, got, err, `"text":"`+text+`"`)
	}
	for _, uri := range []string{"log://", "log://32", "log://x", "log://5.5", "log://%205", "log://1e1000000", "log://5?level=debug", "log://5?full=yes", "log:///a"} {
		got, err := read(t, s, uri)
		wantError(t, got, err, mcp.CodeInvalidParams, "not found", uri)
	}
}

// Requirement: RES-04
func TestTheMostLiteralMatchWins(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	add := func(pattern string) {
		mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: pattern, Name: "n"},
			func(context.Context, map[string]string) (string, error) { return pattern, nil })
	}
	add("x://{+all}")
	add("x://a/{b}")
	add("x://a/{b}.md")
	add("x://{a}/b.md")
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://a/number/{n}", Name: "n"},
		func(context.Context, struct {
			N int `json:"n"`
		}) (string, error) {
			return "number", nil
		})
	addText(s, "x://a/c", "static")
	for uri, text := range map[string]string{
		"x://a/c": "static", "x://a/d": "x://a/{b}", "x://a/d.md": "x://a/{b}.md", "x://a/b.md": "x://a/{b}.md", "x://b/b.md": "x://{a}/b.md",
		"x://b/c/d": "x://{+all}", "x://a/number/5": "number", "x://a/number/five": "x://{+all}",
	} {
		got, err := read(t, s, uri)
		want(t, got, err, `"text":"`+text+`"`)
	}
}

// Requirement: RES-17
func TestVisibleAppliesToEveryMethod(t *testing.T) {
	var visible = func(ctx context.Context, f mcp.Feature) bool {
		who := mcp.RequestFrom(ctx).Principal
		if who != nil {
			return true
		}
		switch {
		case f.Resource != nil:
			return f.Resource.Name != "secret"
		case f.Template != nil:
			return f.Template.Name != "secret"
		}
		return f.Prompt.Name != "secret"
	}
	s := quietServer(mcp.ServerOptions{Visible: visible, Cache: mcp.Cache{TTL: 5 * time.Millisecond, Public: true}})
	addText(s, "x://open", "open")
	mcp.AddResource(s, &mcp.Resource{URI: "x://hidden", Name: "secret", Cache: mcp.Cache{Public: true}},
		func(context.Context, string) (string, error) { return "hidden", nil })
	echo := func(_ context.Context, vars map[string]string) (string, error) { return vars["a"], nil }
	complete := map[string]mcp.CompleteFunc{"a": func(context.Context, string, map[string]string) ([]string, error) { return []string{"z"}, nil }}
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{+a}", Name: "all"}, echo)
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "y://{a}", Name: "secret", Complete: complete}, echo)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "secret", Complete: complete, Arguments: []mcp.PromptArgument{{Name: "a"}}}, echo)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "open"}, echo)

	ref := func(kind, key, value string) map[string]any {
		return map[string]any{"ref": map[string]any{"type": kind, key: value}, "argument": map[string]any{"name": "a", "value": ""}}
	}
	for _, use := range []struct {
		method string
		params map[string]any
		shows  string
	}{
		{"resources/read", map[string]any{"uri": "x://hidden"}, `"hidden"`}, // not through the template either
		{"resources/read", map[string]any{"uri": "y://b"}, `"text":"b"`},
		{"prompts/get", map[string]any{"name": "secret"}, `messages`},
		{"completion/complete", ref("ref/prompt", "name", "secret"), `["z"]`},
		{"completion/complete", ref("ref/resource", "uri", "y://{a}"), `["z"]`},
		{"completion/complete", ref("ref/resource", "uri", "y://b"), `["z"]`},
	} {
		got, err := serveModern(t, s, use.method, use.params)
		wantError(t, got, err, mcp.CodeInvalidParams)
		if err != nil && strings.Contains(err.Message, "mean") {
			t.Errorf("%v: got %s, want no suggestion", use, err.Message)
		}
		got, err = serveAs(t, s, &mcp.Principal{Subject: "ann"}, use.method, use.params)
		want(t, got, err, use.shows)
	}
	for _, method := range []string{"resources/list", "resources/templates/list", "prompts/list"} {
		got, err := serveModern(t, s, method, nil)
		want(t, got, err, `"ttlMs":5,"cacheScope":"private"`)
		if strings.Contains(got, "secret") {
			t.Errorf("%s: got %s, want no hidden features", method, got)
		}
		got, err = serveAs(t, s, &mcp.Principal{Subject: "ann"}, method, nil)
		want(t, got, err, "secret")
	}
	got, err := serveAs(t, s, &mcp.Principal{Subject: "ann"}, "resources/read", map[string]any{"uri": "x://hidden"})
	want(t, got, err, `"cacheScope":"private"`)
	got, err = serveModern(t, s, "prompts/get", map[string]any{"name": "secre"})
	if wantError(t, got, err, mcp.CodeInvalidParams); strings.Contains(err.Message, `"secret"`) {
		t.Errorf("got %s, want no hidden prompt suggested", err.Message)
	}
}

// Requirement: CACHE-01
func TestReadsCarryTheResourcesHint(t *testing.T) {
	s := quietServer(mcp.ServerOptions{Cache: mcp.Cache{TTL: 1000 * time.Millisecond, Public: true}})
	hint := mcp.Cache{TTL: 60_000 * time.Millisecond, Public: true}
	mcp.AddResource(s, &mcp.Resource{URI: "x://a", Name: "n", Cache: hint}, func(context.Context, string) (string, error) { return "", nil })
	mcp.AddResource(s, &mcp.Resource{URI: "x://b", Name: "n", Cache: hint}, func(context.Context, string) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{}}, Cache: mcp.Cache{TTL: 7 * time.Millisecond}}, nil
	})
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://t/{a}", Name: "n", Cache: hint},
		func(context.Context, map[string]string) (string, error) { return "", nil })
	addText(s, "x://c", "")
	for uri, cache := range map[string]string{
		"x://a": `"ttlMs":60000,"cacheScope":"public"`, "x://b": `"ttlMs":7,"cacheScope":"private"`,
		"x://t/1": `"ttlMs":60000,"cacheScope":"public"`, "x://c": `"ttlMs":0,"cacheScope":"private"`,
	} {
		got, err := read(t, s, uri)
		want(t, got, err, cache)
	}
	for _, method := range []string{"resources/list", "resources/templates/list"} {
		got, err := serveModern(t, s, method, nil)
		want(t, got, err, `"ttlMs":1000,"cacheScope":"public"`)
	}
}

// Requirement: PAG-01
func TestResourcesAreListedInPages(t *testing.T) {
	s := quietServer(mcp.ServerOptions{PageSize: 2})
	for _, uri := range []string{"x://3", "x://1", "x://2"} {
		addText(s, uri, "")
		mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: uri + "/{a}", Name: "n"},
			func(context.Context, map[string]string) (string, error) { return "", nil })
	}
	for method, key := range map[string]string{"resources/list": "uri", "resources/templates/list": "uriTemplate"} {
		var found []string
		var params map[string]any
		for range 3 {
			raw, err := serveModern(t, s, method, params)
			if err != nil {
				t.Fatal(err)
			}
			page := decode[struct {
				NextCursor                   string
				Resources, ResourceTemplates []map[string]string
			}](t, json.RawMessage(raw))
			for _, r := range append(page.Resources, page.ResourceTemplates...) {
				found = append(found, strings.TrimSuffix(r[key], "/{a}"))
			}
			if page.NextCursor == "" {
				break
			}
			params = map[string]any{"cursor": page.NextCursor}
		}
		if diff := cmp.Diff([]string{"x://1", "x://2", "x://3"}, found); diff != "" {
			t.Errorf("%s: %s", method, diff)
		}
		got, err := serveModern(t, s, method, map[string]any{"cursor": "x"})
		wantError(t, got, err, mcp.CodeInvalidParams, "cursor")
	}
}

// A list is private if it depends on the caller.
//
// Requirement: CACHE-12
func TestPagesOfAListHaveTheSameScope(t *testing.T) {
	hideOne := func(_ context.Context, f mcp.Feature) bool { return f.Resource == nil || f.Resource.URI != "x://2" }
	for scope, visible := range map[string]func(context.Context, mcp.Feature) bool{"public": nil, "private": hideOne} {
		s := quietServer(mcp.ServerOptions{PageSize: 1, Cache: mcp.Cache{Public: true}, Visible: visible})
		for _, uri := range []string{"x://1", "x://2", "x://3"} {
			addText(s, uri, "")
		}
		var params map[string]any
		for pages := 1; ; pages++ {
			got, err := serveModern(t, s, "resources/list", params)
			want(t, got, err, `"cacheScope":"`+scope+`"`)
			cursor := decode[struct{ NextCursor string }](t, json.RawMessage(got)).NextCursor
			if cursor == "" {
				if pages < 2 {
					t.Errorf("%s: got %d pages, want several", scope, pages)
				}
				break
			}
			params = map[string]any{"cursor": cursor}
		}
	}
}

// Requirement: RES-19
func TestListsContainEveryMember(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	priority, size := 0.0, int64(0)
	changed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	annotations := &mcp.Annotations{Audience: []mcp.Role{mcp.RoleUser, mcp.RoleAssistant}, Priority: &priority, LastModified: &changed}
	icons := []mcp.Icon{{Src: "https://example.com/i.png"}}
	r := &mcp.Resource{URI: "x://a", Name: "n", Title: "T", Description: "D", MIMEType: "a/b", Size: &size, Annotations: annotations, Icons: icons, Meta: mcp.Meta{"com.example/x": true}}
	handle := mcp.AddResource(s, r, func(context.Context, string) (string, error) { return "", nil })
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{b}", Name: "n", Title: "T", Description: "D", MIMEType: "a/b", Annotations: annotations, Icons: icons, Meta: mcp.Meta{"com.example/x": true}},
		func(context.Context, map[string]string) ([]byte, error) { return nil, nil })
	rest := `"annotations":{"audience":["user","assistant"],"priority":0,"lastModified":"2026-01-02T03:04:05Z"},"icons":[{"src":"https://example.com/i.png"}],"_meta":{"com.example/x":true}}]`
	got, err := serveModern(t, s, "resources/list", nil)
	want(t, got, err, `"resources":[{"uri":"x://a","name":"n","title":"T","description":"D","mimeType":"a/b","size":0,`+rest)
	got, err = serveModern(t, s, "resources/templates/list", nil)
	want(t, got, err, `"resourceTemplates":[{"uriTemplate":"x://{b}","name":"n","title":"T","description":"D","mimeType":"a/b",`+rest)

	r.Title = "the caller's own"
	handle.Update(func(r *mcp.Resource) { r.Title = "U" })
	got, err = serveModern(t, s, "resources/list", nil)
	want(t, got, err, `"title":"U"`)
	handle.Disable()
	got, err = read(t, s, "x://a") // the template matches now
	want(t, got, err, `"mimeType":"a/b","blob":""`)
	handle.Enable()
	got, err = read(t, s, "x://a")
	want(t, got, err, `"text":""`)
}

// Requirement: RES-20, CACHE-03
func TestResourcesMayAsk(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	mcp.AddResource(s, &mcp.Resource{URI: "x://a", Name: "n"}, func(ctx context.Context, _ string) (*mcp.ResourceContents, error) {
		ok, err := mcp.Ask[bool](ctx, "ok", "Read it?", nil)
		if err != nil || !ok {
			return nil, err
		}
		return &mcp.ResourceContents{Text: "read"}, nil
	})
	got, err := read(t, s, "x://a")
	want(t, got, err, `"resultType":"input_required"`, `"ok":`)
	if strings.Contains(got, "ttlMs") {
		t.Errorf("got %s, want no caching hints", got)
	}
}

func files() fstest.MapFS {
	changed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	return fstest.MapFS{
		"readme.md":     {Data: []byte("# Grüezi")},
		"a b/c#d?.json": {Data: []byte("{}"), ModTime: changed},
		"logo.png":      {Data: []byte("\x89PNG")},
		"bad.txt":       {Data: []byte("\xff")},
		"Makefile":      {Data: []byte("all:")},
		"core":          {Data: []byte("a\x00b")},
		"é%41":          {Data: []byte("name")},
		"big":           {Data: make([]byte, 11<<20)},
	}
}

// Requirement: RES-14
func TestFilesOfAFileSystem(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	handles := mcp.AddFS(s, "docs://guide/", files())
	if len(handles) != 8 {
		t.Errorf("got %d registrations, want 8", len(handles))
	}
	got, err := serveModern(t, s, "resources/list", nil)
	want(t, got, err,
		`{"uri":"docs://guide/readme.md","name":"readme.md","mimeType":"text/markdown","size":9}`,
		`{"uri":"docs://guide/a%20b/c%23d%3F.json","name":"a b/c#d?.json","mimeType":"application/json","size":2,"annotations":{"lastModified":"2026-01-02T02:04:05Z"}}`,
		`{"uri":"docs://guide/Makefile","name":"Makefile","size":4}`)
	for uri, contents := range map[string]string{
		"docs://guide/readme.md":           `"mimeType":"text/markdown","text":"# Grüezi"`,
		"docs://guide/a%20b/c%23d%3F.json": `"mimeType":"application/json","text":"{}"`,
		"docs://guide/logo.png":            `"mimeType":"image/png","blob":"iVBORw=="`,
		"docs://guide/bad.txt":             `"mimeType":"text/plain","blob":"/w=="`,
		"docs://guide/Makefile":            `"mimeType":"text/plain","text":"all:"`,
		"docs://guide/core":                `"mimeType":"application/octet-stream","blob":"YQBi"`,
		"docs://guide/%C3%A9%2541":         `"text":"name"`,
		"docs://guide/big":                 `"mimeType":"application/octet-stream","blob":"AAAA`,
	} {
		got, err := read(t, s, uri)
		want(t, got, err, contents)
	}
	got, err = read(t, s, "docs://guide/readme.MD")
	wantError(t, got, err, mcp.CodeInvalidParams, "not found")
}

// Requirement: RES-18
func TestPathsCannotLeaveTheirFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"secret": "secret", "in/a.txt": "a", "in/sub/b.txt": "b"} {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(dir, "in", "link")); err != nil {
		t.Skip(err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := quietServer(mcp.ServerOptions{})
	mcp.AddFSTemplate(s, &mcp.ResourceTemplate{URITemplate: "file:///in/{+path}", Name: "files"}, root.FS())
	mcp.AddFSTemplate(s, &mcp.ResourceTemplate{URITemplate: "in://{path}", Name: "files"}, root.FS())
	for uri, text := range map[string]string{"file:///in/a.txt": "a", "file:///in/sub/b.txt": "b", "in://sub%2Fb.txt": "b"} {
		got, err := read(t, s, uri)
		want(t, got, err, `"mimeType":"text/plain","text":"`+text+`"`)
	}
	for _, path := range []string{
		"../secret", "%2e%2e/secret", "%2E%2E%2Fsecret", "sub/../../secret", "sub/../a.txt", "./a.txt", "/etc/passwd", "%2Fetc/passwd",
		"//etc/passwd", "a.txt/", "a.txt%00", "a.txt/x", "..%5Csecret", "%252e%252e/secret", "..", ".", "", "sub", "sub/", "link",
		strings.Repeat("a", 5000), "sub//b.txt", "%C0%AE%C0%AE/secret", "nosuch",
	} {
		got, err := read(t, s, "file:///in/"+path)
		wantError(t, got, err, mcp.CodeInvalidParams, "not found")
		got, err = read(t, s, "in://"+strings.ReplaceAll(path, "/", "%2F"))
		wantError(t, got, err, mcp.CodeInvalidParams, "not found")
	}

	complete := func(typed string) string {
		got, err := serveModern(t, s, "completion/complete", map[string]any{
			"ref":      map[string]any{"type": "ref/resource", "uri": "file:///in/{+path}"},
			"argument": map[string]any{"name": "path", "value": typed}})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(decode[struct{ Completion mcp.Completion }](t, json.RawMessage(got)).Completion.Values)
	}
	for typed, found := range map[string]string{
		"": "[a.txt link sub/]", "s": "[sub/]", "sub/": "[sub/b.txt]", "sub/c": "[]", "../": "[]", "/": "[]", "nosuch/": "[]", "a.txt/": "[]", "sub//": "[]",
	} {
		if got := complete(typed); got != found {
			t.Errorf("%q: got %s, want %s", typed, got, found)
		}
	}
}

// Requirement: RES-18
func TestFilesThatCannotBeServed(t *testing.T) {
	fsys := fstest.MapFS{
		"big":  {Data: make([]byte, 11<<20+1)},
		"pipe": {Mode: fs.ModeNamedPipe},
		"dir":  {Mode: fs.ModeDir},
	}
	s := quietServer(mcp.ServerOptions{})
	mcp.AddFSTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{+path}", Name: "files"}, fsys)
	got, err := read(t, s, "x://big")
	wantError(t, got, err, mcp.CodeInternalError, "11534336 bytes")
	for _, name := range []string{"pipe", "dir"} {
		got, err := read(t, s, "x://"+name)
		wantError(t, got, err, mcp.CodeInvalidParams, "not found")
	}
	if handles := mcp.AddFS(s, "y://", fstest.MapFS{}); len(handles) != 0 {
		t.Errorf("got %d registrations, want 0", len(handles))
	}
	got, err = serveModern(t, s, "resources/list", nil)
	want(t, got, err, `"resources":[]`)
}

func mustPanic(t *testing.T, what, says string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), says) {
			t.Errorf("%s: got panic %v, want %q in it", what, v, says)
		}
	}()
	f()
}

// Requirement: RES-15, RES-19
func TestInvalidRegistrationsPanic(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	text := func(context.Context, string) (string, error) { return "", nil }
	static := func(r mcp.Resource) func() { return func() { mcp.AddResource(s, &r, text) } }
	minus, nan := int64(-1), 2.0
	mustPanic(t, "no URI", "no scheme", static(mcp.Resource{Name: "n"}))
	mustPanic(t, "path", "no scheme", static(mcp.Resource{URI: "/etc/hosts", Name: "n"}))
	mustPanic(t, "IRI", "percent-encoded", static(mcp.Resource{URI: "x://é", Name: "n"}))
	mustPanic(t, "no name", "name is empty", static(mcp.Resource{URI: "x://a"}))
	mustPanic(t, "size", "Size", static(mcp.Resource{URI: "x://a", Name: "n", Size: &minus}))
	mustPanic(t, "audience", "Audience", static(mcp.Resource{URI: "x://a", Name: "n", Annotations: &mcp.Annotations{Audience: []mcp.Role{"all"}}}))
	mustPanic(t, "priority", "Priority", static(mcp.Resource{URI: "x://a", Name: "n", Annotations: &mcp.Annotations{Priority: &nan}}))
	mustPanic(t, "cache", "TTL", static(mcp.Resource{URI: "x://a", Name: "n", Cache: mcp.Cache{TTL: -1 * time.Millisecond}}))
	mustPanic(t, "output", "want string", func() {
		mcp.AddResource(s, &mcp.Resource{URI: "x://a", Name: "n"}, func(context.Context, string) (int, error) { return 0, nil })
	})
	handle := mcp.AddResource(s, &mcp.Resource{URI: "x://a", Name: "n"}, text)
	mustPanic(t, "twice", "registered already", static(mcp.Resource{URI: "x://a", Name: "n"}))
	mustPanic(t, "update", "cannot become", func() { handle.Update(func(r *mcp.Resource) { r.URI = "x://b" }) })

	template := func(pattern string) func() {
		return func() {
			mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: pattern, Name: "n"},
				func(context.Context, struct {
					A string   `json:"a"`
					L []string `json:"l,omitempty"`
				}) (string, error) {
					return "", nil
				})
		}
	}
	mustPanic(t, "syntax", "not closed", template("x://{a"))
	mustPanic(t, "unknown variable", `"b" has no field`, template("x://{a}{b}{l}"))
	mustPanic(t, "unknown field", `"l" is not a variable`, template("x://{a}"))
	mustPanic(t, "exploded string", `"a" has an explode modifier`, template("x://{a*}{l}"))
	mustPanic(t, "prefix of a list", `"l" has a prefix`, template("x://{a}{l:3}"))
	mustPanic(t, "variables", "want a struct", func() {
		mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{a}", Name: "n"}, func(context.Context, []string) (string, error) { return "", nil })
	})
	mustPanic(t, "field type", "want a string, a number", func() {
		mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{a}", Name: "n"}, func(context.Context, struct {
			A map[string]string `json:"a"`
		}) (string, error) {
			return "", nil
		})
	})
	mustPanic(t, "completion", "no such argument", func() {
		mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{a}", Name: "n", Complete: map[string]mcp.CompleteFunc{"b": nil}},
			func(context.Context, map[string]string) (string, error) { return "", nil })
	})
	mustPanic(t, "prefix", "ends with a slash", func() { mcp.AddFS(s, "x://docs", fstest.MapFS{}) })
	mustPanic(t, "big file", "11534336", func() { mcp.AddFS(s, "x://docs/", fstest.MapFS{"f": {Data: make([]byte, 11<<20+1)}}) })
	mustPanic(t, "two paths", "want one", func() {
		mcp.AddFSTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{a}/{b}", Name: "n"}, fstest.MapFS{})
	})
}

// Requirement: RES-03
func TestContentsEncodeAndDecode(t *testing.T) {
	for wire, c := range map[string]mcp.ResourceContents{
		`{"uri":"x://a","text":""}`:                           {URI: "x://a"},
		`{"uri":"x://a","mimeType":"a/b","blob":""}`:          {URI: "x://a", MIMEType: "a/b", Blob: []byte{}},
		`{"uri":"x://a","blob":"/wA=","_meta":{"a.b/c":"d"}}`: {URI: "x://a", Blob: []byte{0xff, 0}, Meta: mcp.Meta{"a.b/c": "d"}},
	} {
		raw, err := c.MarshalJSON()
		if err != nil || string(raw) != wire {
			t.Errorf("got %s, %v, want %s", raw, err, wire)
		}
		var back mcp.ResourceContents
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Errorf("%s: %v", wire, err)
		}
		if diff := cmp.Diff(c, back); diff != "" {
			t.Errorf("%s: %s", wire, diff)
		}
	}
}

func ExampleAddResource() {
	s := mcp.NewServer("notes", "1.0.0", nil)
	mcp.AddResource(s, &mcp.Resource{URI: "notes://today", Name: "today", Title: "Today's note"},
		func(context.Context, string) (string, error) { return "Water the plants.", nil })
	printResult(s, "resources/read", `"uri":"notes://today"`)
	// Output: {"contents":[{"uri":"notes://today","mimeType":"text/plain","text":"Water the plants."}],"ttlMs":0,"cacheScope":"private"}
}

func ExampleAddResourceTemplate() {
	type day struct {
		Year  int `json:"year"`
		Month int `json:"month" jsonschema:"minimum=1,maximum=12"`
	}
	s := mcp.NewServer("notes", "1.0.0", nil)
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "notes://{year}/{month}", Name: "month"},
		func(_ context.Context, d day) (string, error) {
			return time.Month(d.Month).String(), nil
		})
	printResult(s, "resources/read", `"uri":"notes://2026/7"`)
	// Output: {"contents":[{"uri":"notes://2026/7","mimeType":"text/plain","text":"July"}],"ttlMs":0,"cacheScope":"private"}
}

func ExampleAddFS() {
	docs := fstest.MapFS{"intro.md": {Data: []byte("# Welcome")}} // or an embed.FS
	s := mcp.NewServer("docs", "1.0.0", nil)
	mcp.AddFS(s, "docs://manual/", docs)
	printResult(s, "resources/list", "")
	printResult(s, "resources/read", `"uri":"docs://manual/intro.md"`)
	// Output:
	// {"resources":[{"uri":"docs://manual/intro.md","name":"intro.md","mimeType":"text/markdown","size":9}],"ttlMs":0,"cacheScope":"private"}
	// {"contents":[{"uri":"docs://manual/intro.md","mimeType":"text/markdown","text":"# Welcome"}],"ttlMs":0,"cacheScope":"private"}
}

func ExampleAddFSTemplate() {
	dir, err := os.MkdirTemp("", "project")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.WriteFile(filepath.Join(dir, "todo.txt"), []byte("Write tests."), 0o644)
	root, err := os.OpenRoot(dir)
	if err != nil {
		panic(err)
	}
	defer root.Close()
	s := mcp.NewServer("project", "1.0.0", nil)
	mcp.AddFSTemplate(s, &mcp.ResourceTemplate{URITemplate: "file:///project/{+path}", Name: "files"}, root.FS())
	printResult(s, "resources/read", `"uri":"file:///project/todo.txt"`)
	// Output: {"contents":[{"uri":"file:///project/todo.txt","mimeType":"text/plain","text":"Write tests."}],"ttlMs":0,"cacheScope":"private"}
}

func ExampleResourceTemplate_Expand() {
	t := &mcp.ResourceTemplate{URITemplate: "file:///logs/{host}{/day*}{?level}"}
	uri, err := t.Expand(map[string]any{"host": "web 1", "day": []string{"2026", "07"}, "level": "error"})
	fmt.Println(uri, err)
	// Output: file:///logs/web%201/2026/07?level=error <nil>
}

// printResult prints a result without the members that all results have.
func printResult(s *mcp.Server, method, params string) {
	if params != "" {
		params += ","
	}
	raw := `{` + params + `"_meta":` + fmt.Sprintf(modernMeta, `{}`) + `}`
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: method, Params: json.RawMessage(raw)})
	if err != nil {
		panic(err)
	}
	res, err := s.ServeMCP(context.Background(), req)
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := req.EncodeResult(res)
	if err != nil {
		panic(err)
	}
	_, own, _ := strings.Cut(string(out), `"version":"1.0.0"}},`)
	fmt.Println("{" + own)
}
