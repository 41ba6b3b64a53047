package mcphttp

import "net/http"

// corsMaxAge is how long a browser may cache a preflight response, in seconds: long enough to save
// most preflights, short enough for a change of AllowedOrigins to take effect.
const corsMaxAge = "600"

// allowOrigin lets the page that sent the request read the response, if its origin is allowed.
// Pages of the server's own origin need no CORS headers.
func (g *guard) allowOrigin(w http.ResponseWriter, origin field) {
	if len(g.origins) == 0 && !g.anyOrigin {
		return
	}
	header := w.Header()
	header.Add("Vary", "Origin")
	if !origin.sent || !g.anyOrigin && !g.origins[origin.value] {
		return
	}
	header.Set("Access-Control-Allow-Origin", origin.value)
	header.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Mcp-Protocol-Version, Retry-After, WWW-Authenticate")
}

// serveOptions serves OPTIONS, which browsers send as a preflight.
func (h *Handler) serveOptions(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Allow", allowedMethods)
	if header.Get("Access-Control-Allow-Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" {
		header.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
		header.Set("Access-Control-Max-Age", corsMaxAge)
		if requested := r.Header.Get("Access-Control-Request-Headers"); requested != "" {
			// An allowed origin may send any header: tools choose the Mcp-Param headers, and
			// middleware chooses the headers of authentication.
			header.Set("Access-Control-Allow-Headers", requested)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}
