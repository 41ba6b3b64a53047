package mcp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Only a request that can have effects may have run, and only if there was no response.
func TestErrorsSayWhatHappenedFirst(t *testing.T) {
	broke := errors.New("the connection broke")
	invalid := fmt.Errorf("%w: no content", mcp.ErrInvalidResult)
	for want, err := range map[string]*mcp.TransportError{
		"mcp: tools/call: the connection broke; it may have run":      {Method: "tools/call", MayHaveRun: true, Err: broke},
		"mcp: com.example/pay: the connection broke; it may have run": {Method: "com.example/pay", MayHaveRun: true, Err: broke},
		"mcp: tools/call: the result is invalid: no content":          {Method: "tools/call", MayHaveRun: true, Err: invalid},
		"mcp: prompts/get: the connection broke":                      {Method: "prompts/get", MayHaveRun: true, Err: broke},
		"mcp: resources/read: the connection broke":                   {Method: "resources/read", Err: broke},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
