package host

import (
	"crypto/sha256"
	"errors"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// maxOutputSchemas bounds the compiled output schemas of one server.
const maxOutputSchemas = 1000

// An outputSchemas has the compiled output schemas of the tools of a server, by the digest of the
// definition. It is safe for concurrent use.
type outputSchemas struct {
	mu       sync.Mutex // guards compiled
	compiled map[[sha256.Size]byte]*schema.Schema
}

// of returns the output schema of a tool, nil if it has none or an invalid one.
func (o *outputSchemas) of(item *catalogue.Item) *schema.Schema {
	o.mu.Lock()
	defer o.mu.Unlock()
	compiled, ok := o.compiled[item.Digest]
	if ok {
		return compiled
	}
	if raw, has := jsonscan.Get(item.Raw, "outputSchema"); has {
		compiled, _ = schema.Compile(raw) // the server validates with its own
	}
	if o.compiled == nil || len(o.compiled) >= maxOutputSchemas {
		o.compiled = map[[sha256.Size]byte]*schema.Schema{}
	}
	o.compiled[item.Digest] = compiled
	return compiled
}

// validate logs a result that does not match the output schema of its tool. Spec: server/tools,
// Output Schema.
func (v *View) validate(r *route, raw []byte) {
	if r.item == nil || r.item.Kind != catalogue.Tools || r.pool.up.settings.Validate == config.ValidateOff {
		return
	}
	s := r.pool.up.outputs.of(r.item)
	if s == nil {
		return
	}
	if isError, _ := jsonscan.Get(raw, "isError"); string(isError) == "true" {
		return
	}
	content, ok := jsonscan.Get(raw, "structuredContent")
	err := errors.New("missing structuredContent")
	if ok {
		err = s.Validate(content)
	}
	if err != nil {
		v.host.opts.Logger.Warn("host: result does not match the output schema of the tool",
			"server", r.pool.up.name, "tool", r.target, "error", err)
	}
}
