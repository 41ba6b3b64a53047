package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const fullParams = `{"name":"echo","arguments":{"message":"hi","_meta":{"progressToken":true}},"_meta":{
	"io.modelcontextprotocol/protocolVersion":"2026-07-28",
	"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},
	"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},
	"io.modelcontextprotocol/logLevel":"warning",
	"progressToken":7,
	"com.example/x":[1,2]}}`

func TestOpenReadsTheEnvelope(t *testing.T) {
	e, err := wire.Open(json.RawMessage(fullParams))
	if err != nil {
		t.Fatal(err)
	}
	meta, _ := jsonscan.Get([]byte(fullParams), "_meta")
	want := wire.Envelope{
		VersionText: "2026-07-28", HasVersion: true, Revision: wire.July2026,
		ClientInfo:    json.RawMessage(`{"name":"c","version":"1"}`),
		Capabilities:  json.RawMessage(`{"elicitation":{}}`),
		LogLevel:      "warning",
		ProgressToken: json.RawMessage("7"),
		Meta:          meta,
	}
	if diff := cmp.Diff(want, e, cmpopts.IgnoreUnexported(wire.Envelope{})); diff != "" {
		t.Error(diff)
	}
	if err := e.Complete(); err != nil {
		t.Errorf("Complete: %v", err)
	}
}

func TestSubjectOfEqualParamsIsTheSame(t *testing.T) {
	for _, text := range []string{
		fullParams, ``, `{}`, `{"_meta":{}}`,
		`{ "_meta" : { "name" : 1 } , "n\u0061me" : "x" , "uri":"u","cursor":"c" }`,
		`{"inputResponses":{"a":{}},"requestState":"s","_meta":{"a":{"b":[1]},"c":2},"arguments":{}}`,
		`{"_meta":{ },"name":"last"}`,
	} {
		params := json.RawMessage(text)
		e, err := wire.Open(params)
		if err != nil {
			t.Fatal(err)
		}
		var want wire.Subject
		want.Name, _ = jsonscan.Get(params, "name")
		want.URI, _ = jsonscan.Get(params, "uri")
		want.Arguments, _ = jsonscan.Get(params, "arguments")
		want.InputResponses, _ = jsonscan.Get(params, "inputResponses")
		want.RequestState, _ = jsonscan.Get(params, "requestState")
		if diff := cmp.Diff(want, e.Subject(params)); diff != "" {
			t.Errorf("Subject(%s): %s", text, diff)
		}
		if diff := cmp.Diff(want, e.Subject(append(json.RawMessage(nil), params...))); diff != "" {
			t.Errorf("Subject of a copy of %s: %s", text, diff)
		}
		clone := e.Clone()
		if diff := cmp.Diff(want, clone.Subject(params)); diff != "" {
			t.Errorf("Subject by a clone of the envelope of %s: %s", text, diff)
		}
		if other := e.Subject(json.RawMessage(`{"name":"other"}`)); string(other.Name) != `"other"` {
			t.Errorf("Subject of other params: got name %s, want other", other.Name)
		}
	}
}

// Params are identified by their address and length.
func TestEnvelopeIdentifiesItsParams(t *testing.T) {
	params := append(make(json.RawMessage, 0, 100), `{"name":"t","arguments":{}}`...)
	e, err := wire.Open(params)
	if err != nil {
		t.Fatal(err)
	}
	clone := e.Clone()
	if !e.IsOf(params) || clone.IsOf(params) {
		t.Errorf("IsOf(params) = %v, want true; by a clone: %v, want false", e.IsOf(params), clone.IsOf(params))
	}
	check := func(other json.RawMessage, name, uri string) {
		t.Helper()
		s := e.Subject(other)
		if e.IsOf(other) || string(s.Name) != name || string(s.URI) != uri {
			t.Errorf("IsOf(%s) = %v, name %s, uri %s, want false, %s, %s", other, e.IsOf(other), s.Name, s.URI, name, uri)
		}
	}
	check(json.RawMessage(`{"uri":"u","arguments":"n"}`), "", `"u"`)
	check(append(params[:len(params)-1], `,"uri":"u"}`...), `"t"`, `"u"`)
	check(nil, "", "")
}

func TestOpenReadsTheRevision(t *testing.T) {
	for text, want := range map[string]wire.Revision{
		"2026-07-28":                 wire.July2026,
		`2026-07-2\u0038`:            wire.July2026,
		"2024-11-05":                 wire.November2024,
		"1900-01-01":                 0,
		"":                           0,
		`\u00e9`:                     0,
		strings.Repeat("9", 62):      0,
		`2026-07-28\u0000`:           0,
		strings.Repeat(`\u0039`, 10): 0,
	} {
		e, err := wire.Open(json.RawMessage(`{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + text + `"}}`))
		if err != nil || e.Revision != want || !e.HasVersion {
			t.Errorf("%q: revision %v, has version %v, error %v, want %v", text, e.Revision, e.HasVersion, err, want)
		}
		var unquoted string
		if err := json.Unmarshal([]byte(`"`+text+`"`), &unquoted); err != nil || e.VersionText != unquoted {
			t.Errorf("%q: version text %q, want %q", text, e.VersionText, unquoted)
		}
	}
}

// The error message names the member.
//
// Requirement: META-10, META-18
func TestMembersOfAWrongTypeAreInvalidParams(t *testing.T) {
	const prefix = "io.modelcontextprotocol/"
	long := `"` + strings.Repeat("x", 257) + `"`
	cases := []struct{ params, names string }{
		{`[]`, "params"},
		{`{"_meta":[]}`, "_meta"},
		{`{"_meta":{"` + prefix + `protocolVersion":20260728}}`, "protocolVersion"},
		{`{"_meta":{"` + prefix + `protocolVersion":` + long + `}}`, "protocolVersion"},
		{`{"_meta":{"` + prefix + `clientInfo":"me"}}`, "clientInfo"},
		{`{"_meta":{"` + prefix + `clientCapabilities":[]}}`, "clientCapabilities"},
		{`{"_meta":{"` + prefix + `logLevel":3}}`, "logLevel"},
		{`{"_meta":{"` + prefix + `logLevel":"WARNING"}}`, "logLevel"},
		{`{"_meta":{"` + prefix + `logLevel":"verbose"}}`, "debug, info, notice"},
		{`{"_meta":{"` + prefix + `logLevel":""}}`, "logLevel"},
		{`{"_meta":{"progressToken":1.5}}`, "progressToken"},
		{`{"_meta":{"progressToken":1e3}}`, "progressToken"},
		{`{"_meta":{"progressToken":true}}`, "progressToken"},
		{`{"_meta":{"progressToken":{}}}`, "progressToken"},
		{`{"_meta":{"progressToken":` + long + `}}`, "progressToken"},
		{`{"_meta":{"progressToken":` + strings.Repeat("1", 21) + `}}`, "progressToken"},
	}
	for _, c := range cases {
		if _, err := wire.Open(json.RawMessage(c.params)); err == nil || err.Code != wire.CodeInvalidParams ||
			!strings.Contains(err.Message, c.names) {
			t.Errorf("%.90s: error %v, want code %d with %s", c.params, err, wire.CodeInvalidParams, c.names)
		}
	}
}

// Null for an optional member is the same as its absence.
func TestNullMembersAreAbsent(t *testing.T) {
	for _, params := range []string{`{"_meta":null}`, `{"_meta":{"io.modelcontextprotocol/protocolVersion":null}}`,
		`{"_meta":{"io.modelcontextprotocol/clientCapabilities":null}}`, `{"_meta":{"progressToken":null}}`, `{"arguments":null,"name":null}`} {
		e, err := wire.Open(json.RawMessage(params))
		if s := e.Subject(json.RawMessage(params)); err != nil || e.HasVersion || e.Capabilities != nil || e.ProgressToken != nil ||
			s.Arguments != nil || s.Name != nil {
			t.Errorf("%s: got %+v, %v", params, e, err)
		}
	}
}

func TestProgressTokensAreAcceptedUpToTheLimit(t *testing.T) {
	for _, token := range []string{`""`, `"` + strings.Repeat("x", 256) + `"`, "0", "-1", strings.Repeat("1", 20),
		"-" + strings.Repeat("1", 20), "9007199254740993"} {
		e, err := wire.Open(json.RawMessage(`{"_meta":{"progressToken":` + token + `}}`))
		if err != nil || string(e.ProgressToken) != token {
			t.Errorf("progress token %s: got %s, error %v, want it unchanged", token, e.ProgressToken, err)
		}
	}
}

// clientInfo is optional, protocolVersion and clientCapabilities are not.
//
// Requirement: META-07, META-08, META-11
func TestCompleteReportsMissingKeys(t *testing.T) {
	const (
		version      = `"io.modelcontextprotocol/protocolVersion":"x"`
		capabilities = `"io.modelcontextprotocol/clientCapabilities":{}`
	)
	cases := []struct{ params, names string }{
		{``, "_meta"},
		{`{}`, "_meta"},
		{`{"arguments":{"_meta":{}}}`, "_meta"},
		{`{"_meta":{}}`, "protocolVersion"},
		{`{"_meta":{` + capabilities + `}}`, "protocolVersion"},
		{`{"_meta":{` + version + `}}`, "clientCapabilities"},
		{`{"_meta":{` + version + `,` + capabilities + `}}`, ""},
	}
	for _, c := range cases {
		e, err := wire.Open(json.RawMessage(c.params))
		if err != nil {
			t.Errorf("%s: Open: %v, want no error", c.params, err)
			continue
		}
		err = e.Complete()
		switch {
		case c.names == "" && err != nil:
			t.Errorf("%s: Complete: %v, want no error", c.params, err)
		case c.names != "" && (err == nil || err.Code != wire.CodeInvalidParams ||
			!strings.Contains(err.Message, c.names)):
			t.Errorf("%s: error %v, want one that names %s", c.params, err, c.names)
		}
	}
}

// Requirement: VER-04
func TestUnsupportedVersionErrorListsTheSupportedOnes(t *testing.T) {
	err := wire.UnsupportedVersion(`1900"`, nil)
	want := `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"1900\""}`
	if err.Code != -32022 || string(err.Data) != want {
		t.Errorf("got %d %s, want -32022 %s", err.Code, err.Data, want)
	}
	err = wire.UnsupportedVersion("2025-11-25", nil) // supported, but with initialize
	want = `{"supported":["2026-07-28"],"requested":"2025-11-25"}`
	if string(err.Data) != want {
		t.Errorf("got %s, want %s", err.Data, want)
	}
}

// Requirement: LOG-10
func TestLevelsAreOrderedBySeverity(t *testing.T) {
	for want, level := range []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"} {
		if got, ok := wire.LogSeverity(level); !ok || got != want {
			t.Errorf("LogSeverity(%q) = %d, %v, want %d", level, got, ok, want)
		}
	}
	if _, ok := wire.LogSeverity("Debug"); ok {
		t.Error("LogSeverity(Debug) = true, want false")
	}
}

// callParams are the params of a minimal call.
const callParams = `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}},"name":"echo","arguments":{"message":"hello world"}}`

func BenchmarkOpen(b *testing.B) {
	for name, text := range map[string]string{"full": fullParams, "call": callParams} {
		b.Run(name, func(b *testing.B) {
			params := json.RawMessage(text)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.Open(params); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMethod(b *testing.B) {
	for b.Loop() {
		if _, ok := wire.July2026.Method(wire.MethodToolsCall); !ok {
			b.Fatal("no such method")
		}
	}
}

func FuzzOpen(f *testing.F) {
	for _, seed := range []string{fullParams, `{}`, `[]`, `{"_meta":{}}`, `{"_meta":null}`,
		`{"_meta":{"progressToken":-}}`,
		`{"_meta":{"progressToken":"\ud800"}}`,
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-2\u0038"}}`,
		`{"\u005fmeta":{"progressToken":"a"}}`, `{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		if jsonscan.Valid(params, jsonscan.Limits{}) != nil {
			return
		}
		e, err := wire.Open(params)
		checkAgainstMap(t, params, e, err)
	})
}

// checkAgainstMap compares an envelope with params decoded into maps.
func checkAgainstMap(t *testing.T, params []byte, e wire.Envelope, err *jsonrpc.Error) {
	var top map[string]json.RawMessage
	var meta map[string]json.RawMessage
	if json.Unmarshal(params, &top) != nil || top == nil {
		if err == nil {
			t.Fatal("Open accepted params that are not an object")
		}
		return
	}
	raw, hasMeta := top["_meta"]
	if hasMeta && json.Unmarshal(raw, &meta) != nil {
		if err == nil {
			t.Fatal("Open accepted a _meta that is not an object")
		}
		return
	}
	if err != nil {
		if err.Code != wire.CodeInvalidParams || err.Message == "" {
			t.Fatalf("error %d %q, want %d with a message", err.Code, err.Message, wire.CodeInvalidParams)
		}
		return
	}
	var version string
	if raw, ok := meta[wire.MetaProtocolVersion]; ok != e.HasVersion || ok &&
		(json.Unmarshal(raw, &version) != nil || version != e.VersionText) {
		t.Fatalf("version %q, want %s", e.VersionText, raw)
	}
	if r, _ := wire.ParseRevision(version); r != e.Revision {
		t.Fatalf("revision %v for version %q", e.Revision, version)
	}
	for key, got := range map[string]json.RawMessage{
		wire.MetaClientInfo: e.ClientInfo, wire.MetaClientCapabilities: e.Capabilities,
		wire.MetaProgressToken: e.ProgressToken,
	} {
		if string(got) != string(meta[key]) {
			t.Fatalf("%s is %s, want %s", key, got, meta[key])
		}
	}
	if missing := e.Complete(); (missing == nil) != (hasMeta && meta[wire.MetaProtocolVersion] != nil &&
		meta[wire.MetaClientCapabilities] != nil) {
		t.Fatalf("Complete() = %v, want an error only if a required key is missing", missing)
	}
}
