package capture

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Middleware returns middleware of a server that records its requests and results. server is its
// name.
func (r *Ring) Middleware(server string) mcp.Middleware {
	recorder := r.Recorder(nil)
	return func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			began := time.Now()
			res, err := next.ServeMCP(ctx, req)
			record := &event.Record{Event: event.End, Call: rand.Text(), Method: req.Method, Start: began,
				Duration: time.Since(began), Err: err,
				Action: policy.Action{Server: server, Caller: &policy.Caller{Principal: req.Principal}}}
			for _, name := range []string{"name", "uri"} {
				if raw, ok := req.Param(name); ok {
					record.Public, _ = rawjson.Unquote(raw)
				}
			}
			if raw, ok := req.Param("arguments"); ok {
				record.Arguments = raw
			}
			if err == nil {
				record.Result, _ = json.Marshal(res) // the server sends the same
			}
			_ = recorder.Record(record) // of End, so there is no error
			return res, err
		})
	}
}
