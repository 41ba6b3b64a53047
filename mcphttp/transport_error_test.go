package mcphttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestConnectToAWrongPathNamesURLStatusAndHint(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	_, err := mcp.Connect(t.Context(), mcphttp.NewTransport(s.URL+"/wrong?token=secret", nil), nil)
	want := `mcp: initialize: no MCP server at ` + s.URL + `/wrong, check the path, ` +
		`which is often /mcp: HTTP 404 Not Found: "404 page not found\n"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error without the query of the URL", err)
	}
}
