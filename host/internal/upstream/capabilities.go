package upstream

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// noCapabilities is the class of requests whose client declares no capability that a class depends
// on.
const noCapabilities = "-"

// Class returns the client capabilities that select the connection for a request. Only servers of
// the session era over HTTP need several connections: modern servers learn the capabilities with
// each request, and for a command each class would be one more process. Requests that do not depend
// on capabilities use the class that was returned last: see [Pool.instance].
func (p *Pool) Class(req *mcp.Request) string {
	u := p.up
	u.mu.Lock()
	modern := u.modern
	u.mu.Unlock()
	if u.isCommand() || modern {
		return AnyClass
	}
	declares := func(path ...string) bool { return jsonscan.HasObject(req.Driver().Capabilities, path...) }
	all := make([]byte, 0, len("form url sampling tools roots "))
	add := func(name string, declared bool) {
		if declared {
			all = append(append(all, name...), ' ')
		}
	}
	url := declares("elicitation", "url")
	add("form", declares("elicitation") && (!url || declares("elicitation", "form")))
	add("url", url)
	add("sampling", declares("sampling"))
	add("tools", declares("sampling", "tools"))
	add("roots", p.roots().areDeclared(declares("roots")))
	if all = bytes.TrimSpace(all); len(all) == 0 {
		all = append(all, noCapabilities...)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	present := u.presentLocked(p, time.Now())
	if present.latest != string(all) {
		present.latest = string(all)
	}
	return present.latest
}

// declared returns the capabilities that an instance declares to a server of the session era, nil
// for all.
func (i *instance) declared() *mcp.ClientCapabilities {
	if i.class == AnyClass && i.pool.up.isCommand() {
		return nil
	}
	yes := &struct{}{}
	c := &mcp.ClientCapabilities{}
	elicitation := &mcp.ElicitationCapability{}
	for _, name := range strings.Fields(i.class) {
		switch name {
		case "form":
			c.Elicitation, elicitation.Form = elicitation, yes
		case "url":
			c.Elicitation, elicitation.URL = elicitation, yes
		case "sampling":
			c.Sampling = &mcp.SamplingCapability{}
		case "tools":
			c.Sampling.Tools = yes
		case "roots":
			c.Roots = yes
		}
	}
	return c
}

// ClientCapabilities returns what the server is told about the client of a request, nil for what the
// client itself has declared.
func (p *Pool) ClientCapabilities(req *mcp.Request) json.RawMessage {
	if p.roots().mode != config.RootsList || req.Capabilities().Roots != nil {
		return nil
	}
	raw, ok := req.Meta(wire.MetaClientCapabilities)
	if !ok {
		raw = json.RawMessage("{}")
	}
	return jsonscan.WithMember(raw, "roots", []byte("{}"))
}
