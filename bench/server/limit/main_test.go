package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// ask sends one request to a server on stdio.
func ask(t *testing.T, era echo.Era, method string) (answer struct {
	ID     int
	Error  *struct{ Code int }
	Result map[string]any
}) {
	t.Helper()
	var out strings.Builder
	in := strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{}}` + "\n")
	if err := serveLines(in, &out, answersOf(era)); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out.String()), &answer); err != nil || answer.ID != 7 {
		t.Fatalf("%s, %s: %v in %s", era, method, err, out.String())
	}
	return answer
}

func TestClientsDetectTheEra(t *testing.T) {
	for _, era := range []echo.Era{echo.Modern, echo.Session} {
		discovered := ask(t, era, "server/discover")
		if versions, _ := discovered.Result["supportedVersions"].([]any); era == echo.Modern &&
			(len(versions) != 1 || versions[0] != era.Revision()) {
			t.Errorf("%s: server/discover result = %+v, want the modern version, or an error in the session era", era, discovered)
		}
		if era == echo.Session && (discovered.Error == nil || discovered.Error.Code != -32601) {
			t.Errorf("%s: server/discover result = %+v, want the modern version, or an error in the session era", era, discovered)
		}
		tools, _ := ask(t, era, "tools/list").Result["tools"].([]any)
		if len(tools) != 1 || tools[0].(map[string]any)["name"] != echo.Tool {
			t.Errorf("%s: tools/list result = %v, want %s", era, tools, echo.Tool)
		}
		content, _ := ask(t, era, "tools/call").Result["content"].([]any)
		if len(content) != 1 || content[0].(map[string]any)["text"] != echo.Message {
			t.Errorf("%s: tools/call content = %v, want %q", era, content, echo.Message)
		}
	}
	if got := ask(t, echo.Session, "initialize").Result["protocolVersion"]; got != echo.Session.Revision() {
		t.Errorf("initialize: protocolVersion = %v, want %s", got, echo.Session.Revision())
	}
}
