package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Requirement: LIFE-02, LIFE-04, LIFE-07
func TestOpenInitializesInEachRevision(t *testing.T) {
	for version, want := range map[string]string{
		"2024-11-05": `{"roots":{"listChanged":true},"sampling":{}}`,
		"2025-03-26": `{"roots":{"listChanged":true},"sampling":{}}`,
		"2025-06-18": `{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}`,
		"2025-11-25": `{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}`,
		"":           `{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}`,
	} {
		t.Run(version, func(t *testing.T) {
			cfg := clientConfig(version)
			cfg.Info = json.RawMessage(`{"name":"c","title":"C","version":"1"}`)
			s := &fakeServer{done: make(chan struct{})}
			c := legacy.NewClient(cfg)
			defer c.Close()
			if c.Revision() != 0 {
				t.Error("Revision before Open is not 0")
			}
			got, err := c.Open(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if version == "" {
				version = "2025-11-25" // LIFE-07
			}
			info := clientInfo
			if version >= "2025-06-18" {
				info = `{"name":"c","title":"C","version":"1"}`
			}
			s.wants(t, `"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":`+want+`,"clientInfo":`+info+`}`,
				`"method":"notifications/initialized"`)
			discover := `{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["` + version + `"],"capabilities":` + allServerCapabilities +
				`,"instructions":"Be kind.","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}`
			if diff := cmp.Diff(discover, string(got)); diff != "" {
				t.Errorf("result of Open (-want +got):\n%s", diff)
			}
			if c.Revision().String() != version {
				t.Errorf("revision is %s, want %s", c.Revision(), version)
			}
			again, err := c.RoundTrip(t.Context(), "server/discover", withEnvelope("", ""), nil)
			if string(again) != discover || err != nil {
				t.Errorf("server/discover: %s, %v", again, err)
			}
			s.wants(t)
		})
	}
}

// Requirement: LIFE-05
func TestOnlyInitializeIsSentBeforeItsResult(t *testing.T) {
	for _, version := range sessionVersions {
		c := legacy.NewClient(clientConfig(version))
		s := &fakeServer{done: make(chan struct{})}
		s.serve = func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method != "initialize" {
				return nil
			}
			if _, err := c.RoundTrip(ctx, "tools/list", withEnvelope("", ""), nil); err == nil {
				t.Errorf("%s: a request during initialize returned no error", version)
			}
			if err := c.RootsChanged(ctx); err == nil {
				t.Errorf("%s: a notification during initialize returned no error", version)
			}
			if got := s.take(); len(got) != 1 || !strings.HasPrefix(got[0], `"method":"initialize"`) {
				t.Errorf("%s: sent %q before the result of initialize, want initialize only", version, got)
			}
			return nil
		}
		if _, err := c.Open(t.Context(), s); err != nil {
			t.Errorf("%s: %v", version, err)
		}
		c.Close()
	}
}

func TestClientCapabilitiesAreThoseOfTheRevision(t *testing.T) {
	for _, tc := range []struct{ version, capabilities, want string }{
		{"2025-06-18", `{"elicitation":{"url":{}}}`, `{}`}, // the revision has form mode only
		{"2025-06-18", `{"elicitation":{}}`, `{"elicitation":{}}`},
		{"2025-11-25", `{"elicitation":{"url":{}}}`, `{"elicitation":{"url":{}}}`},
		{"2025-11-25", `{"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"a":[1]}},"tasks":{}}`,
			`{"extensions":{"io.modelcontextprotocol/ui":{"a":[1]}}}`}, // T-46
		{"2024-11-05", `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, `{}`},
		{"2024-11-05", `{"experimental":{"x":{}},"com.example":{"y":1},"sampling":null,"roots":true}`, `{"experimental":{"x":{}},"com.example":{"y":1}}`},
		{"2024-11-05", ``, `{}`},
	} {
		cfg := clientConfig(tc.version)
		cfg.Capabilities, cfg.Info = json.RawMessage(tc.capabilities), nil
		s := &fakeServer{done: make(chan struct{})}
		c := legacy.NewClient(cfg)
		if _, err := c.Open(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		want := `"method":"initialize","params":{"protocolVersion":"` + tc.version + `","capabilities":` + tc.want + `,"clientInfo":{"name":"unnamed","version":"0"}}`
		if got := s.take()[0]; got != want {
			t.Errorf("%s: %s\ngot  %s\nwant %s", tc.version, tc.capabilities, got, want)
		}
		c.Close()
	}
}

// Requirement: LIFE-10
func TestOtherRevisionsAreAcceptedOrRejected(t *testing.T) {
	for _, tc := range []struct{ offered, chosen, pinned, wantError string }{
		{"2025-11-25", "2024-11-05", "", ""},
		{"2025-03-26", "2025-11-25", "", ""}, // unusual, but a session revision
		{"2025-11-25", "2025-06-18", "pinned", "want 2025-11-25"},
		{"2025-06-18", "2025-06-18", "pinned", ""},
		{"2025-11-25", "2026-07-28", "", "has no sessions"},
		{"2025-11-25", "1999-01-01", "", `"1999-01-01" chosen by the server: want one of 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05`},
		{"2025-11-25", strings.Repeat("x", 1000), "", strings.Repeat("x", 64) + "…"},
		{"2026-07-28", "2025-11-25", "", "2026-07-28 has no sessions"},
	} {
		cfg := clientConfig(tc.offered)
		cfg.Pinned = tc.pinned != ""
		s := &fakeServer{version: tc.chosen, done: make(chan struct{})}
		c := legacy.NewClient(cfg)
		_, err := c.Open(t.Context(), s)
		switch {
		case tc.wantError == "" && (err != nil || c.Revision().String() != tc.chosen):
			t.Errorf("%+v: revision %s, error %v", tc, c.Revision(), err)
		case tc.wantError != "" && (err == nil || !strings.Contains(err.Error(), tc.wantError)):
			t.Errorf("%+v: error %v", tc, err)
		case tc.wantError != "" && s.closed == 0:
			t.Errorf("%+v: the Conn was not closed", tc)
		case tc.wantError != "" && slices.ContainsFunc(s.take(), func(l string) bool { return strings.Contains(l, "initialized") }):
			t.Errorf("%+v: notifications/initialized was sent", tc)
		}
		c.Close()
	}
}

func TestOpenFailsWithTheServer(t *testing.T) {
	gone := errors.New("gone")
	for _, tc := range []struct {
		name   string
		server *fakeServer
		want   func(error) bool
	}{
		{"error", &fakeServer{serve: failWith(-32602, "Unsupported protocol version", "")}, func(err error) bool {
			var e *jsonrpc.Error
			return errors.As(err, &e) && e.Remote() && e.Code == -32602
		}},
		{"result is not an object", &fakeServer{serve: respondWith(`7`)}, func(err error) bool { return errors.Is(err, legacy.ErrMalformed) }},
		{"no version", &fakeServer{serve: respondWith(`{}`)}, func(err error) bool { return errors.Is(err, legacy.ErrMalformed) }},
		{"version is not a string", &fakeServer{serve: respondWith(`{"protocolVersion":20250618}`)}, func(err error) bool { return errors.Is(err, legacy.ErrMalformed) }},
		{"failed write", &fakeServer{send: func(context.Context, *jsonrpc.Message) error { return gone }}, func(err error) bool { return errors.Is(err, gone) }},
	} {
		c := legacy.NewClient(clientConfig("2025-06-18"))
		tc.server.done = make(chan struct{})
		_, err := c.Open(t.Context(), tc.server)
		if !tc.want(err) || tc.server.closed == 0 {
			t.Errorf("%s: error %v, closed %d times", tc.name, err, tc.server.closed)
		}
	}
}

// Requirement: LIFE-20, LIFE-25
func TestServerCapabilitiesOfASession(t *testing.T) {
	for _, tc := range []struct{ version, declared, want string }{
		{"2024-11-05", `{"prompts":{}}`, `{"prompts":{},"completions":{}}`}, // LIFE-25
		{"2024-11-05", `{"tools":{}}`, `{"tools":{}}`},
		{"2025-03-26", `{"prompts":{}}`, `{"prompts":{}}`},
		{"2025-11-25", `{"tasks":{"list":{}},"tools":{"listChanged":"yes","x":1},"resources":{"subscribe":null,"listChanged":false},"logging":true,"prompts":null}`,
			`{"tasks":{"list":{}},"tools":{"x":1},"resources":{"listChanged":false}}`}, // TASKD-01
		{"2025-06-18", `{"tasks":{"list":{}}}`, `{}`},
		{"2025-11-25", `{"experimental":{"a":1},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{},"x":1},"com.example":{}}`,
			`{"experimental":{"a":1},"extensions":{"io.modelcontextprotocol/ui":{}},"com.example":{}}`},
		{"2025-11-25", `[]`, `{}`},
	} {
		c := open(t, clientConfig(tc.version), &fakeServer{capabilities: tc.declared})
		got, err := c.RoundTrip(t.Context(), "server/discover", nil, nil)
		if capabilities := member(got, "capabilities"); err != nil || capabilities != tc.want {
			t.Errorf("%s: capabilities %s became %s, want %s (error %v)", tc.version, tc.declared, capabilities, tc.want, err)
		}
	}
}

// Requirement: VER-23
func TestMinimalInitializeResults(t *testing.T) {
	for result, want := range map[string]string{
		`{"protocolVersion":"2025-06-18"}`: `{}`,
		`{"protocolVersion":"2025-06-18","capabilities":null,"serverInfo":7,"instructions":[]}`:            `{}`,
		`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x"}}`:                     `{}`,
		`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":1,"version":2}}`: `{"tools":{}}`,
	} {
		c := open(t, clientConfig("2025-06-18"), &fakeServer{serve: respondWith(result)})
		got, err := c.RoundTrip(t.Context(), "server/discover", nil, nil)
		whole := `{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2025-06-18"],"capabilities":` + want + `}`
		if err != nil || string(got) != whole {
			t.Errorf("%s: %s, %v", result, got, err)
		}
	}
}
