package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// endpointTimeout bounds the search for a server at the usual path.
const endpointTimeout = 3 * time.Second

// suggestEndpoint returns an error that suggests the endpoints of the site's server cards, or the
// usual path of a server, below that of t, if there is a server at that path. Otherwise it returns
// err, the error of connecting to t.
func (d *Dialer) suggestEndpoint(ctx context.Context, t *target.Target, err error) error {
	var status *mcphttp.StatusError
	if !errors.As(err, &status) || !isOtherPage(status) {
		return err
	}
	u, parse := url.Parse(t.URL)
	if parse != nil {
		return err
	}
	base := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")} // without secrets
	if isWebPage(status) {
		err = &exit.Error{Code: exit.Unreachable,
			Err: fmt.Errorf("no MCP server at %s: the response is a web page (HTTP %d)", base, status.StatusCode)}
	}
	claims, _ := d.Cards(ctx, base) // without a card there is nothing to suggest
	if claimed := claimedEndpoints(claims, base.String()); claimed != "" {
		return &exit.Error{Code: exit.Unreachable, Err: fmt.Errorf("no MCP server at %s: its server cards claim %s; "+
			"the claims are not verified: use such a URL if you trust it", base, claimed)}
	}
	if slices.Contains([]string{"mcp", "sse"}, path.Base(base.Path)) {
		return err
	}
	guess := base.JoinPath(Endpoint).String()
	d.IO.Err.Status("looking for a server at " + term.CleanLine(guess) + " …")
	defer d.IO.Err.Done()
	if !d.isServer(ctx, guess) {
		return err
	}
	return &exit.Error{Code: exit.Unreachable, Err: fmt.Errorf("no MCP server at %s: did you mean %s?", base, guess)}
}

// isOtherPage reports whether a response may be that of a web server at a path without an MCP server.
func isOtherPage(s *mcphttp.StatusError) bool {
	return s.StatusCode == http.StatusNotFound || s.StatusCode == http.StatusMethodNotAllowed || isWebPage(s)
}

// isWebPage reports whether a response is HTML, and not from a proxy whose server is down.
func isWebPage(s *mcphttp.StatusError) bool {
	kind, _, _ := mime.ParseMediaType(s.Header.Get("Content-Type"))
	switch s.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false
	}
	isFailure := s.StatusCode >= http.StatusInternalServerError && s.StatusCode != http.StatusNotImplemented
	return kind == "text/html" && !isFailure
}

// isServer reports whether an MCP server answers at a URL, or a server that requires a login. The
// requests must not contain headers, credentials or capabilities, because the user did not name the
// URL.
func (d *Dialer) isServer(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	silent := slog.New(slog.DiscardHandler)
	transport := mcphttp.NewTransport(address, &mcphttp.TransportOptions{Logger: silent, Client: d.Net.HTTPClient()})
	c, err := mcp.Connect(ctx, transport, &mcp.ClientOptions{Logger: silent})
	if err == nil {
		_ = c.Close() // the session is not used
		return true
	}
	var status *mcphttp.StatusError
	return errors.As(err, &status) && status.StatusCode == http.StatusUnauthorized
}

// NameEndpoint returns middleware that answers requests for the root with the URL of the server.
func NameEndpoint(address string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				http.Error(w, "The MCP server is at "+address, http.StatusNotFound)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// Endpoint is the path of the server.
const Endpoint = "/mcp"
