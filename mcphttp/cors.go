package mcphttp

import "net/http"

// corsMaxAge is how long, in seconds, a browser may remember a preflight: long enough to save most of them, short
// enough for a change of AllowedOrigins to take effect.
const corsMaxAge = "600"

// shareWithOrigin lets the page that asks read the answer, if its origin is an allowed one. The server's own pages need
// no permission.
func (g *guard) shareWithOrigin(w http.ResponseWriter, origin field) {
	if len(g.origins) == 0 && !g.anyOrigin {
		return
	}
	head := w.Header()
	head.Add("Vary", "Origin")
	if !origin.sent || !g.anyOrigin && !g.origins[origin.value] {
		return
	}
	head.Set("Access-Control-Allow-Origin", origin.value)
	head.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Mcp-Protocol-Version, Retry-After, WWW-Authenticate")
}

// serveOptions answers OPTIONS: a browser's preflight, or anyone who asks what the endpoint can do.
func (h *Handler) serveOptions(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Allow", allowedMethods)
	if head.Get("Access-Control-Allow-Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" {
		head.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
		head.Set("Access-Control-Max-Age", corsMaxAge)
		if wanted := r.Header.Get("Access-Control-Request-Headers"); wanted != "" {
			// An origin that may use the server may say what it likes: which arguments become headers is for tools to
			// decide, and how callers prove who they are for middleware.
			head.Set("Access-Control-Allow-Headers", wanted)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}
