package icons_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/icons"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// TestDocFetch runs the code of the package comment.
func TestDocFetch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("GIF89a\x01\x00\x01\x00\x00\x00\x00\x3b"))
	}))
	defer server.Close()
	ctx, serverURL := t.Context(), server.URL+"/mcp"
	tool := &mcp.Tool{Name: "draw", Icons: []mcp.Icon{{Src: server.URL + "/draw.gif"}}}
	image, err := icons.Fetch(ctx, nil, serverURL, tool.Icons[0])
	if err != nil || image.MIMEType != "image/gif" {
		t.Errorf("got %+v, %v", image, err)
	}
}
