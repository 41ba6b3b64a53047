package legacy_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
)

// Sessions get neither the result type nor the server info of a modern result.
func TestResultsWithoutServerInfo(t *testing.T) {
	const (
		described = `{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"capabilities":{"tools":{}}}`
		frame     = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}`
		content   = `"content":[{"type":"text","text":"a"}]`
	)
	core := &cannedCore{fakeCore: fakeCore{discovered: described}, result: described}
	session, _ := legacy.Initialize(t.Context(), config(core), initialize("2025-11-25"))
	for given, want := range map[string]string{
		`{` + frame + `,` + content + `}`:                             `{` + content + `}`,
		`{` + frame + `}`:                                             `{}`,
		`{` + frame + `,"_more":1,` + content + `}`:                   `{"_more":1,` + content + `}`,
		`{"resultType":"complete",` + content + `}`:                   `{` + content + `}`,
		`{"resultType":"complete","_meta":{"a/b":1},` + content + `}`: `{"_meta":{"a/b":1},` + content + `}`,
		`{` + frame[:len(frame)-1] + `,"a/b":1},` + content + `}`:     `{"_meta":{"a/b":1},` + content + `}`,
		`{` + content + `,` + frame + `}`:                             `{` + content + `}`,
		`{"resultType":"complete","_meta":` + `{"io.modelcontextprotocol/serverInfo":{"name":"other"}},` + content + `}`: `{` + content + `}`,
	} {
		core.result = given
		checkCall(t, session, given, want)
	}
}

// Other members of `_meta` remain.
func TestResultsKeepOtherMeta(t *testing.T) {
	const begin = `{"resultType":"complete","_meta":{"a/b":1,"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},`
	core := &cannedCore{fakeCore: fakeCore{discovered: discovered}, result: begin + `"capabilities":{"tools":{}}}`}
	session, _ := legacy.Initialize(t.Context(), config(core), initialize("2025-11-25"))
	core.result = begin + `"content":[]}`
	checkCall(t, session, core.result, `{"_meta":{"a/b":1},"content":[]}`)
}

func checkCall(t *testing.T, session *legacy.Session, given, want string) {
	t.Helper()
	x := new(legacy.Exchange)
	if reply := session.Begin(t.Context(), x, message(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`), nil); reply != nil {
		t.Fatal(reply.Error)
	}
	got, _ := x.AppendResponse(nil)
	if want = `{"jsonrpc":"2.0","id":1,"result":` + want + `}`; string(got) != want {
		t.Errorf("%s\ngot  %s\nwant %s", given, got, want)
	}
}
