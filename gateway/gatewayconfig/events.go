package gatewayconfig

import "github.com/patchbay-mcp/patchbay/host/config"

// Events configures how a gateway delivers events to the URLs of callers. Each member is optional.
type Events struct {
	// Store is the file with the subscriptions, absolute if the path of the configuration file is known. Only a single
	// gateway at a time may use it. Default: a file beside the state of the gateway.
	Store string `json:"store,omitzero" jsonschema:"file with the subscriptions of webhooks"`
	// AllowedHosts names hosts within a company to which events may be delivered, besides hosts with public
	// addresses.
	AllowedHosts []string `json:"allowedHosts,omitzero" jsonschema:"internal receivers,minLength=1,maxLength=256"`
}

func (e *Events) check(p *config.Problems) {
	if e != nil {
		e.Store = p.Path(e.Store)
		checkHosts(p, "/events/allowedHosts", e.AllowedHosts)
	}
}
