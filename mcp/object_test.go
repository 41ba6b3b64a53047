package mcp_test

import (
	"context"
	stdjson "encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// What is written by hand is what the JSON package makes of it, to the letter, with all of its members and with none.
func TestWrittenByHandIsAsEncoded(t *testing.T) {
	info := mcp.Implementation{
		Name: "n\"ö", Version: "1", Title: "t", Description: "line\nand <line>", WebsiteURL: "https://x.test", Icons: icons,
	}
	full := mcp.NewServer(info.Name, info.Version, &mcp.ServerOptions{
		Title: info.Title, Description: info.Description, WebsiteURL: info.WebsiteURL, Icons: info.Icons,
		Cache: mcp.Cache{TTLMs: 5, Scope: mcp.CachePublic},
	})
	addFull(full)
	bare := mcp.NewServer("s", "1", nil)
	features(bare)
	for name, test := range map[string]struct {
		server *mcp.Server
		info   mcp.Implementation
	}{
		"full": {full, info}, "bare": {bare, mcp.Implementation{Name: "s", Version: "1"}},
	} {
		for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover"} {
			var res mcp.Result
			got := answered(t, method, func(ctx context.Context, req *mcp.Request) (_ mcp.Result, err error) {
				res, err = test.server.ServeMCP(ctx, req)
				return res, err
			})
			want := `{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":` + encoded(t, test.info) + `},` + encoded(t, res)[1:]
			if got != want {
				t.Errorf("%s, %s:\ngot  %s\nwant %s", name, method, got, want)
			}
			if name == "full" && method != "server/discover" {
				checkFull(t, reflect.ValueOf(res).Elem().Field(0).Index(0).Elem())
			}
		}
	}
	checkFull(t, reflect.ValueOf(info))
}

func TestADescriptionIsAsEncoded(t *testing.T) {
	full := mcp.ServerCapabilities{
		Tools: &mcp.ListCapability{ListChanged: true}, Prompts: &mcp.ListCapability{ListChanged: true},
		Resources: &mcp.ResourceCapability{Subscribe: true, ListChanged: true}, Completions: &struct{}{}, Logging: &struct{}{},
		Experimental: object{"b": 1, "a": []int{2}}, Extensions: object{"x.test/x": struct{}{}},
		Tasks: &mcp.TasksCapability{List: &struct{}{}},
	}
	for name, res := range map[string]*mcp.DiscoverResult{
		"full": {
			SupportedVersions: []string{"2026-07-28", "2025-11-25"}, Capabilities: full, Instructions: "be kind",
			Cache: mcp.Cache{TTLMs: 1, Scope: mcp.CachePrivate},
		},
		"empty parts": {Capabilities: mcp.ServerCapabilities{
			Tools: &mcp.ListCapability{}, Resources: &mcp.ResourceCapability{}, Experimental: object{}, Extensions: object{},
		}},
		"empty": {},
	} {
		if name == "full" {
			checkFull(t, reflect.ValueOf(res))
		}
		got := answered(t, "server/discover", func(context.Context, *mcp.Request) (mcp.Result, error) { return res, nil })
		if want := `{"resultType":"complete",` + encoded(t, res)[1:]; got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
}

func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	const broken = "\xff"
	nothing := func(context.Context, struct{}) (string, error) { return "", nil }
	for name, register := range map[string]func(s *mcp.Server){
		"server": func(*mcp.Server) { mcp.NewServer("s", broken, nil) },
		"tool":   func(s *mcp.Server) { mcp.AddTool(s, &mcp.Tool{Name: "x", Title: broken}, nothing) },
		"prompt": func(s *mcp.Server) { mcp.AddPrompt(s, &mcp.Prompt{Name: "x", Description: broken}, nothing) },
		"argument": func(s *mcp.Server) {
			mcp.AddPrompt(s, &mcp.Prompt{Name: "x", Arguments: []mcp.PromptArgument{{Name: broken}}}, nothing)
		},
		"resource": func(s *mcp.Server) {
			mcp.AddResource(s, &mcp.Resource{URI: "x://x", Name: broken}, func(context.Context, string) (string, error) { return "", nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("taken")
				}
			}()
			register(newServer(t, nil))
		})
	}
	for _, res := range []*mcp.DiscoverResult{{Instructions: broken}, {SupportedVersions: []string{broken}}, {Cache: mcp.Cache{Scope: broken}}} {
		_, err := mcp.AppendResult(nil, t.Context(), mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return res, nil }),
			modernRequest(t, nil, "server/discover", object{}))
		wantCode(t, "a description", err, mcp.CodeInternalError)
	}
}

var icons = []mcp.Icon{{Src: "https://x.test/i.png", MIMEType: "image/png", Sizes: []string{"any"}, Theme: "dark"}}

// addFull adds one feature of each kind that has all members.
func addFull(s *mcp.Server) {
	meta, yes, half, size := mcp.Meta{"b": 1, "a": object{"c": nil}}, true, 0.5, int64(7)
	annotations := &mcp.Annotations{Audience: []mcp.Role{mcp.RoleUser}, Priority: &half, LastModified: &time.Time{}}
	mcp.AddTool(s, &mcp.Tool{
		Name: "x", Title: "t", Description: "d", Icons: icons, Meta: meta, Execution: &mcp.ToolExecution{TaskSupport: "optional"},
		InputSchema: stdjson.RawMessage("{\n\t\"type\": \"object\", \"title\": \"\\u00e4\\/\"\n}"),
		Annotations: &mcp.ToolAnnotations{Title: "t", ReadOnly: new(bool), Destructive: &yes, Idempotent: &yes, OpenWorld: &yes},
	}, func(context.Context, object) (out struct{ A int }, err error) { return out, nil })
	mcp.AddPrompt(s, &mcp.Prompt{
		Name: "x", Title: "t", Description: "d", Icons: icons, Meta: meta,
		Arguments: []mcp.PromptArgument{{Name: "a", Title: "t", Description: "d", Required: true}, {Name: "b"}},
	}, func(context.Context, map[string]string) (string, error) { return "", nil })
	mcp.AddResource(s, &mcp.Resource{
		URI: "x://x", Name: "x", Title: "t", Description: "d", MIMEType: "text/plain", Size: &size, Annotations: annotations, Icons: icons, Meta: meta,
	}, func(context.Context, string) (string, error) { return "", nil })
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{
		URITemplate: "y://{a}", Name: "x", Title: "t", Description: "d", MIMEType: "text/plain", Annotations: annotations, Icons: icons, Meta: meta,
	}, func(context.Context, map[string]string) (string, error) { return "", nil })
}

// checkFull fails for a member that a value does not have, or one in it: one that is new has to be written by hand as well.
func checkFull(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		checkFull(t, v.Elem())
	case reflect.Slice:
		checkFull(t, v.Index(0))
	case reflect.Struct:
		for f, member := range v.Fields() {
			switch {
			case !f.IsExported() || f.Tag.Get("json") == "-":
			case f.Type == reflect.TypeFor[*mcp.ToolExecution](), f.Type == reflect.TypeFor[*mcp.TasksCapability](): // not by hand
			case member.IsZero():
				t.Errorf("%s.%s is not tested", v.Type(), f.Name)
			case f.Type != reflect.TypeFor[stdjson.RawMessage]():
				checkFull(t, member)
			}
		}
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// answered returns what a handler answers a modern request.
func answered(t *testing.T, method string, h mcp.HandlerFunc) string {
	t.Helper()
	got, err := mcp.AppendResult(nil, t.Context(), h, modernRequest(t, nil, method, object{}))
	if err != nil {
		t.Fatal(method, err)
	}
	return string(got)
}

// A result may embed one of the protocol's, and hold more.
func TestAResultThatEmbedsAnotherIsWhole(t *testing.T) {
	res := struct {
		mcp.DiscoverResult
		More string `json:"more"`
	}{More: "x"}
	got := answered(t, "server/discover", func(context.Context, *mcp.Request) (mcp.Result, error) { return &res, nil })
	if want := `{"resultType":"complete",` + encoded(t, &res)[1:]; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
