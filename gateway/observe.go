package gateway

import (
	"net/http"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Observer returns the observer of the host. Transports find it by this method, for sessions and refused
// requests.
func (e *endpoint) Observer() mcp.Observer { return e.gateway.host.Operator().Observer() }

// refuseHTTP refuses a request for a route, and reports that to the observer of the host.
func (g *Gateway) refuseHTTP(w http.ResponseWriter, status int, text string) {
	g.observeRefusal(status)
	http.Error(w, text, status)
}

// observeRefusal reports a refused request to the observer of the host, as the transport does.
func (g *Gateway) observeRefusal(status int) {
	if o, ok := g.host.Operator().Observer().(driver.RefusalObserver); ok {
		o.Refused(status, http.StatusText(status))
	}
}
