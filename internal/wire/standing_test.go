package wire_test

import (
	stdjson "encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

var standing = wire.NewStanding(wire.June2025, []byte(`{"name":"c"}`), []byte(`{"roots":{}}`), "info")

const standingMeta = `{"io.modelcontextprotocol/protocolVersion":"2025-06-18","io.modelcontextprotocol/clientInfo":{"name":"c"},` +
	`"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/logLevel":"info"}`

var standingStart = strings.TrimSuffix(standingMeta, "}") // to which the members of a request are added

func TestStandingEnvelope(t *testing.T) {
	if got := standing.Meta(); got != standingMeta {
		t.Errorf("got %s, want %s", got, standingMeta)
	}
	debug := standing.WithLogLevel("debug")
	if want := strings.Replace(standingMeta, `"info"`, `"debug"`, 1); debug.Meta() != want {
		t.Errorf("got %s, want %s", debug.Meta(), want)
	}
	if debug.WithLogLevel("info") != standing {
		t.Error("the same envelope does not compare equal")
	}
}

// The params that Join makes, and what it says of them without reading them, are what Open finds.
func TestJoin(t *testing.T) {
	for params, want := range map[string]string{
		`{"name":"t","arguments":{"a":1}}`: `{"_meta":` + standingMeta + `,"name":"t","arguments":{"a":1}}`,
		`{ "uri" : "x:y" , "k" : [ ] }`:    `{"_meta":` + standingMeta + `, "uri" : "x:y" , "k" : [ ] }`,
		`{"n\u0061me":"t","_Meta":{}}`:     `{"_meta":` + standingMeta + `,"n\u0061me":"t","_Meta":{}}`,
		``:                                 "",
		`{}`:                               "",
		`{ }`:                              "",
		`[1]`:                              "",
		`{"_meta":{"k":1},"name":"t"}`:     `{"_meta":` + standingStart + `,"k":1},"name":"t"}`,
		`{"uri":"x:y", "_meta" : { "progressToken" : "p" } }`: `{"uri":"x:y", "_meta" : ` + standingStart + `, "progressToken" : "p" } }`,
		`{"name":"t","_meta":{"progressToken":7,"k":{}},"arguments":{"a":1}}`: `{"name":"t","_meta":` + standingStart +
			`,"progressToken":7,"k":{}},"arguments":{"a":1}}`,
		`{"_meta":{}}`:                    "",
		`{"_meta":{ },"name":"t"}`:        "",
		`{"_meta":[],"name":"t"}`:         "",
		`{"_meta":{"progressToken":1.5}}`: "",
		`{"_meta":{"k":1,"` + wire.MetaLogLevel + `":"debug"},"name":"t"}`:        "",
		`{"_meta":{"` + wire.MetaProtocolVersion + `":"2025-06-18"},"name":"t"}`:  "",
		`{"_meta":{"` + wire.MetaClientInfo + `":{}},"name":"t"}`:                 "",
		`{"_meta":{"io.modelcontextprotocol\/clientCapabilities":{}},"name":"t"}`: "",
		`{"_meta":{"progressToken":1},"requestState":"s"}`:                        "",
		`{"_m\u0065ta":{"k":1}}`:           "",
		`{"_m\u0065ta":[]}`:                "",
		`{"name":"t","requestState":"s"}`:  "",
		`{"inputResponses":{},"name":"t"}`: "",
	} {
		joined, ok := standing.Join(&wire.Envelope{}, stdjson.RawMessage(params), &wire.Index{})
		if ok != (want != "") || string(joined) != want {
			t.Errorf("%s: got %v, %s, want %s", params, ok, joined, want)
		}
		checkJoin(t, stdjson.RawMessage(params))
	}
}

// otherIndex is that of params which are joined.
var otherIndex = func() wire.Index {
	opened, _ := wire.Open(stdjson.RawMessage(`{"name":"other"}`))
	return opened.Index()
}()

func checkJoin(t *testing.T, params stdjson.RawMessage) {
	t.Helper()
	var env wire.Envelope
	joined, ok := standing.Join(&env, params, &wire.Index{})
	own, err := wire.Open(params)
	if err == nil {
		var same wire.Envelope
		index := own.Index()
		again, alsoOK := standing.Join(&same, params, &index)
		if string(again) != string(joined) || alsoOK != ok || ok && !same.IsOf(again) {
			t.Errorf("%s: with its index joined as %v, %s", params, alsoOK, again)
		}
	}
	if others, othersOK := standing.Join(&wire.Envelope{}, params, &otherIndex); string(others) != string(joined) || othersOK != ok {
		t.Errorf("%s: with the index of others joined as %v, %s", params, othersOK, others)
	}
	if !ok {
		if !reflect.DeepEqual(env, wire.Envelope{}) {
			t.Errorf("%s: not joined, and yet the envelope is %+v", params, env)
		}
		return
	}
	opened, err := wire.Open(joined)
	if err != nil || !reflect.DeepEqual(env, opened) {
		t.Errorf("%s: joined as %+v, opened as %+v, %v", params, env, opened, err)
	}
	if err := jsonscan.Valid(joined, jsonscan.Limits{}); err != nil {
		t.Errorf("%s: joined as %s: %v", params, joined, err)
	}
	if err := env.Complete(); err != nil || !env.IsOf(joined) {
		t.Errorf("%s: the envelope is not that of %s: %v", params, joined, err)
	}
}

func FuzzJoin(f *testing.F) {
	for _, params := range []string{`{"name":"t","arguments":{"a":1}}`, `{ "uri" : "x" }`, `{"_meta":{}}`, `{"n\u0061me":1,"a":{"_meta":2}}`,
		`{"name":"t","_meta":{"progressToken":1},"arguments":{}}`, `{"_m\u0065ta":{"k":1}}`, `{ "_meta" : { "progressToken" : "p" } }`} {
		f.Add([]byte(params))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		if jsonscan.Valid(params, jsonscan.Limits{Keys: 1000}) == nil && jsonscan.Kind(params) == '{' && params[0] == '{' {
			checkJoin(t, params)
		}
	})
}
