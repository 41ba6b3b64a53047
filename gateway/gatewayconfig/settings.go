// Package gatewayconfig declares the settings of a gateway, and reads them from a configuration
// file.
//
//	file, err := config.Load("mcp.json")
//	settings, err := gatewayconfig.Read(file)
//
// The member patchbay of a file contains the settings of the host, which package host/config
// declares, and the settings of the gateway, which this package declares. A host that reads the
// file without this package ignores the settings of the gateway.
package gatewayconfig

import (
	"encoding/json"
	"net"
	"slices"
	"strconv"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// Settings is the member patchbay of a configuration file: how a gateway serves the servers of the
// file. Absent members have their defaults.
type Settings struct {
	// Listen is the address of a gateway as host:port. Default: 127.0.0.1:7777.
	Listen string `json:"listen" jsonschema:"address of the gateway as host:port,default=127.0.0.1:7777" reload:"restart"` //nolint:lll // a tag
	// Ops is the address as host:port at which a gateway serves metrics, health and readiness over
	// HTTP, without authorization. If it is empty, the gateway does not serve them.
	Ops string `json:"ops,omitzero" jsonschema:"address of metrics and health as host:port" reload:"restart"`
	// Pprof serves profiles at the address of Ops, which must be a loopback address.
	Pprof bool `json:"pprof" jsonschema:"serve profiles at the address of ops on loopback,default=false" reload:"restart"` //nolint:lll // a tag
	// TrustTraceContext lets callers choose the trace of their requests, and whether the trace is
	// sampled, even where other machines reach the gateway: at PublicURL, or at an address of
	// Listen that is not loopback. Without it, spans only link to the traces of such callers.
	TrustTraceContext bool `json:"trustTraceContext" jsonschema:"continue traces of other machines,default=false" reload:"restart"` //nolint:lll // a tag
	// Store lists the stores that several gateways share, at most a Redis server and a file: the
	// URL of a Redis or Valkey server, or bolt:PATH, whose file then contains the state of the
	// gateways. A password must be a variable, as in redis://:${REDIS_PASSWORD}@HOST:PORT. Default:
	// a file of the user.
	Store []string `json:"store,omitzero" jsonschema:"stores that gateways share,minLength=1" reload:"restart"`
	// Cluster connects the gateways that share a store, for servers with the share "cluster". It requires a
	// store in Redis.
	Cluster *Cluster `json:"cluster,omitzero" jsonschema:"how gateways reach each other" reload:"restart"`
	// Settings are the settings of the host.
	config.Settings
	// Audit configures the log of requests; nil means that the gateway does not log them.
	Audit *Audit `json:"audit,omitzero" jsonschema:"log of all requests; absent for none" reload:"restart"`
	// Policy decides what callers may do; nil means no restrictions.
	Policy *Policy `json:"policy,omitzero" jsonschema:"what callers may do"`
	// Approve lists the channels that are asked for approvals, in order: "client", "console" and
	// "webhook". Default: "client", "console".
	Approve []string `json:"approve" jsonschema:"how approvals are asked for,enum=client|console|webhook,default=client|console"` //nolint:lll // a tag
	// Webhook is asked for approvals of the channel "webhook", which requires it.
	Webhook *Webhook `json:"webhook,omitzero" jsonschema:"URL that is asked for approvals"`
	// PublicURL is the URL by which clients reach the gateway, without a path, such as the URL of a
	// reverse proxy. Default: the URL of Listen.
	PublicURL string `json:"publicURL,omitzero" jsonschema:"URL of the gateway for clients,pattern=^https?://" reload:"restart"` //nolint:lll // a tag
	// AllowedHosts lists further names by which clients may reach the gateway; see package mcphttp.
	AllowedHosts []string `json:"allowedHosts,omitzero" jsonschema:"names of the gateway,minLength=1,maxLength=256" reload:"restart"` //nolint:lll // a tag
	// TLS serves https at Listen; nil means plain HTTP.
	TLS *TLS `json:"tls,omitzero" jsonschema:"serves https at listen; absent for plain HTTP" reload:"restart"`
	// Card describes the gateway in a server card, which everybody may read and which requires
	// PublicURL; nil means no card.
	Card *Card `json:"card,omitzero" jsonschema:"public description of the gateway; absent for none" reload:"restart"`
	// Events configures the webhooks of events; nil means the defaults.
	Events *Events `json:"events,omitzero" jsonschema:"webhooks of events" reload:"restart"`
	// Auth configures the credentials that a gateway accepts over HTTP; nil means keys only.
	Auth *Auth `json:"auth,omitzero" jsonschema:"whom the gateway serves over HTTP" reload:"restart"`
	// Capture is the part of its traffic that a gateway holds in memory: "off", "summaries", which
	// adds the messages while somebody reads them, or "always" for summaries and messages. Default:
	// "summaries" with a console, otherwise "off".
	Capture string `json:"capture,omitzero" jsonschema:"recorded traffic,enum=off|summaries|always" reload:"restart"`
	// Console serves a web console; nil means that the gateway serves none.
	Console *Console `json:"console,omitzero" jsonschema:"web console of the gateway; absent for none" reload:"restart"`
}

// A Webhook is a URL that receives requests for approval.
type Webhook struct {
	URL string `json:"url" jsonschema:"receives requests for approval by POST,pattern=^https?://"`
	// Secret names the environment variable that contains the key for signing the requests.
	Secret string `json:"secret" jsonschema:"variable with the key of signatures,pattern=^[A-Za-z_][A-Za-z0-9_]*$"`
}

// Read returns the settings of a file, with the defaults of absent members. For errors, see
// [config.File.Decode].
func Read(f *config.File) (*Settings, error) {
	s := new(Settings)
	if err := f.Decode(s); err != nil {
		return nil, err
	}
	return s, nil
}

// BaseURL returns the URL of a gateway at an address for its clients, without a path.
func (s *Settings) BaseURL(addr string) string {
	switch {
	case s.PublicURL != "":
		return s.PublicURL
	case s.TLS != nil:
		return "https://" + addr
	}
	return "http://" + addr
}

// Schema returns the JSON Schema of configuration files with the settings of a gateway.
func Schema() json.RawMessage { return config.Schema(new(Settings)) }

// isAddress reports whether text is host:port with a port to listen on, where 0 means any free
// port.
func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && host != "" && (port == "0" || netx.ValidPort(port))
}

// Check completes and checks the settings. [config.File.Decode] calls it.
func (s *Settings) Check(p *config.Problems) {
	s.Audit.check(p)
	s.Auth.check(p, s)
	s.PublicURL = checkPublicURL(p, "/publicURL", s.PublicURL)
	checkHosts(p, "/allowedHosts", s.AllowedHosts)
	s.Events.check(p)
	s.Card.check(p, s.PublicURL)
	s.checkTLS(p)
	if !isAddress(s.Listen) {
		p.Add("/listen", "got %.64q, want host:port, such as \"127.0.0.1:7777\"", s.Listen)
	}
	s.checkOps(p)
	for i, text := range s.Store {
		if err := CheckStore(text); err != nil {
			p.Add(config.Pointer("store", strconv.Itoa(i)), "%v", err)
		}
	}
	s.checkCluster(p)
	s.checkConsole(p)
	s.Policy.check(p)
	if s.Webhook != nil {
		checkDecider(p, "/webhook/url", s.Webhook.URL)
	} else if slices.Contains(s.Approve, "webhook") {
		p.Add("/approve", "has \"webhook\", and the settings have no member webhook")
	}
	s.Settings.Check(p)
}

// checkOps checks the address of metrics. It must not be the address of the gateway, whose clients
// would see the metrics, and with profiles it must be a loopback address.
func (s *Settings) checkOps(p *config.Problems) {
	switch host, _, _ := net.SplitHostPort(s.Ops); {
	case s.Ops == "":
	case !isAddress(s.Ops):
		p.Add("/ops", "got %.64q, want host:port, such as \"127.0.0.1:9464\"", s.Ops)
	case s.Ops == s.Listen:
		p.Add("/ops", "got %q, which is also listen: want another port, which clients do not use", s.Ops)
	case s.Pprof && !netx.IsLocalHost(host):
		p.Add("/pprof", "got true, and other machines reach ops, %q: want a loopback address for profiles", s.Ops)
	}
}
