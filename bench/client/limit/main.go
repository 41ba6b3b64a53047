// Command limit is the baseline client. It uses bare net/http or a bare pair of
// pipes, sends a prepared request in which only the id changes, and searches
// the response without parsing it. With -json it encodes and decodes both with
// encoding/json.
package main

import (
	"context"
	"flag"

	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func main() {
	useJSON := flag.Bool("json", false, "encode and decode with encoding/json")
	rig.ClientMain(func(_ context.Context, t rig.Target) (*rig.Connection, error) {
		var c codec = newPreparedCodec(t.Era)
		if *useJSON {
			c = &jsonCodec{era: t.Era}
		}
		if t.URL != "" {
			return &rig.Connection{Revision: t.Era.Revision(), Echo: newHTTPCaller(t, c).echo}, nil
		}
		p, err := newStdioCaller(t, c)
		if err != nil {
			return nil, err
		}
		return &rig.Connection{Revision: t.Era.Revision(), Echo: p.echo}, nil
	})
}
