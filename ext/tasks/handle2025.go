package tasks

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// complete adds to a task of 2025-11-25 that has ended what the extension has in the task itself.
//
// Spec: basic/utilities/tasks (2025-11-25), Retrieving Task Results.
func (h *Handle) complete(ctx context.Context, s *sighting) error {
	if !formIn(h.client.Revision()).is2025 || s.Status != StatusCompleted && s.Status != StatusFailed {
		return nil
	}
	raw, err := h.client.Request(ctx, methodResult, taskParams{ID: h.id})
	var fault *mcp.Error
	switch {
	case err == nil:
		s.Result = raw
	case s.Status == StatusFailed && errors.As(err, &fault) && fault.Remote():
		s.Error = fault
	default:
		return err
	}
	return nil
}
