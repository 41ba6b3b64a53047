package pins_test

import (
	"context"
	"errors"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A pool is a server whose lists cannot be read.
type pool struct {
	call.Pool
	failed error
}

func (p *pool) Verify(context.Context, ...catalogue.Kind) error       { return p.failed }
func (*pool) Reviewed(catalogue.Kind) (*catalogue.List, *pins.Server) { return nil, nil }
func (*pool) Pinned() *pins.Server                                    { return &pins.Server{} }

func TestUnapprovedDefinitionsAreNotCalled(t *testing.T) {
	failed, quarantined := errors.New("the list cannot be read"), errors.New("not approved")
	for name, test := range map[string]struct {
		call call.Call
		want error
	}{
		"a list that cannot be read":    {call.Call{Kind: policy.ActionCall}, failed},
		"a name in quarantine":          {call.Call{Kind: policy.ActionCall, Quarantined: quarantined}, quarantined},
		"the answer to a question":      {call.Call{Kind: policy.ActionCall, Suspended: true}, nil},
		"a resource of the host itself": {call.Call{Kind: policy.ActionRead, Own: true}, nil},
	} {
		test.call.Pool = &pool{failed: failed}
		sent := false
		_, err := pins.Stage{}.Check(func(context.Context, *call.Call) (mcp.Result, error) {
			sent = true
			return nil, nil
		})(t.Context(), &test.call)
		if !errors.Is(err, test.want) || sent != (test.want == nil) {
			t.Errorf("%s: got %v, sent %t; want %v", name, err, sent, test.want)
		}
	}
}
