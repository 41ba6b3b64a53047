package host

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Dial returns the transport to a server: a child process with its command, or Streamable HTTP to
// its URL, with HTTP+SSE as the fallback. It is the default of [Options.Dial].
func Dial(_ context.Context, s *config.Server) (mcp.Transport, error) {
	if s.Type != config.TypeStdio {
		header := http.Header{}
		for key, value := range s.Header {
			header.Set(key, value)
		}
		return mcphttp.NewTransport(s.URL, &mcphttp.TransportOptions{Header: header}), nil
	}
	t := mcp.Command(s.Command, s.Args...)
	t.Dir = s.Dir
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		t.Env = append(t.Env, key+"="+s.Env[key])
	}
	return t, nil
}
