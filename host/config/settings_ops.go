package config

import (
	"net"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// isAddress reports whether text is host:port with a port to listen on, where 0 means any free
// port.
func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && host != "" && (port == "0" || netx.IsPort(port))
}

// checkGateway completes and checks the settings of a gateway.
func (r *settingsReader) checkGateway(s *Settings) {
	r.audit(s.Audit)
	r.auth(s.Auth, s.Profiles)
	s.PublicURL = r.publicURL(s.PublicURL)
	r.hosts(s.AllowedHosts)
	if !isAddress(s.Listen) {
		r.problem("/listen", "got %.64q, want host:port, such as \"127.0.0.1:7777\"", s.Listen)
	}
	r.ops(s)
	r.policy(s.Policy)
	if s.Webhook != nil {
		r.decider("/webhook/url", s.Webhook.URL)
	} else if slices.Contains(s.Approve, "webhook") {
		r.problem("/approve", "has \"webhook\", and the settings have no member webhook")
	}
}

// ops checks the address of metrics. It must not be the address of the gateway, whose clients would see
// the metrics, and with profiles it must be a loopback address.
func (r *settingsReader) ops(s *Settings) {
	switch host, _, _ := net.SplitHostPort(s.Ops); {
	case s.Ops == "":
	case !isAddress(s.Ops):
		r.problem("/ops", "got %.64q, want host:port, such as \"127.0.0.1:9464\"", s.Ops)
	case s.Ops == s.Listen:
		r.problem("/ops", "got %q, which is also listen: want another port, which clients do not use", s.Ops)
	case s.Pprof && !netx.IsLoopback(host):
		r.problem("/pprof", "got true, and other machines reach ops, %q: want a loopback address for profiles", s.Ops)
	}
}
