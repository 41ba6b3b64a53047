package pins

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A Target is the definition that a request uses: its kinds, and its name or URI.
type Target struct {
	Kinds []catalogue.Kind
	Name  string // at the server
}

// kindsOf are the kinds of definitions that requests use.
var kindsOf = map[policy.ActionKind][]catalogue.Kind{
	policy.ActionCall:     {catalogue.Tools},
	policy.ActionGet:      {catalogue.Prompts},
	policy.ActionRead:     {catalogue.Resources, catalogue.Templates},
	policy.ActionComplete: {catalogue.Prompts, catalogue.Resources, catalogue.Templates},
	policy.ActionEvent:    {catalogue.Events},
}

// TargetOf returns the definition that a request uses. A request of another kind uses no
// definition.
func TargetOf(kind policy.ActionKind, name string) Target { return Target{kindsOf[kind], name} }

// isHidden reports whether a list of the server hides the target.
func (t Target) isHidden(kind catalogue.Kind, list, resources *catalogue.List) bool {
	return list.Hides(t.Name) ||
		kind == catalogue.Templates && !resources.Has(t.Name) && list.HidesURI(t.Name)
}

// Lists are the reviewed lists of a server for a caller.
type Lists interface {
	// Verify reads lists again, unless they are the lists of the connection.
	Verify(ctx context.Context, kinds ...catalogue.Kind) error
	// Reviewed returns a list, and the pins that it was reviewed with.
	Reviewed(kind catalogue.Kind) (*catalogue.List, *Server)
}

// Check refuses a request for a definition that is not approved: no request must reach a definition
// that changed since its approval.
func Check(ctx context.Context, l Lists, t Target) error {
	if err := l.Verify(ctx, t.Kinds...); err != nil {
		return err
	}
	for _, kind := range t.Kinds {
		list, pins := l.Reviewed(kind)
		resources, _ := l.Reviewed(catalogue.Resources)
		if t.isHidden(kind, list, resources) {
			return pins.Refusal(ctx, pin.Kind(pinrecord.Kinds[kind]), t.Name)
		}
	}
	return nil
}
