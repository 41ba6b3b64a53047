package tasks

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Bounds of what is taken of a server's list.
const (
	maxListed   = 10_000
	maxPages    = 1000
	maxTaskList = 4 << 10 // bytes of a cursor
)

// List returns the tasks of the client at its server, page after page as they are needed, without their results. An error is
// the last thing given. Only servers of revision 2025-11-25 may have such a list, and say so in their capabilities; those of
// this package do for authenticated callers. With others there is nothing but the IDs that the client has kept, and List gives
// an error that says so.
//
// Spec: basic/utilities/tasks (2025-11-25), Listing Tasks.
func List(ctx context.Context, c *mcp.Client) iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		if !formIn(c.Revision()).is2025 || capabilityOf(c).List == nil {
			yield(nil, errors.New("tasks: the server has no list of tasks for this client: keep the IDs of handles"))
			return
		}
		var cursor *string
		seen, count := map[string]bool{}, 0
		for range maxPages {
			page, err := listPage(ctx, c, cursor)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, raw := range page.Tasks {
				s, err := formIn(c.Revision()).seen(raw)
				if err != nil {
					err = invalid(methodList, err)
				} else if count++; count > maxListed {
					err = invalid(methodList, fmt.Errorf("the list has more than %d tasks", maxListed))
				}
				if err != nil {
					yield(nil, err)
					return
				}
				if !yield(&s.Task, nil) {
					return
				}
			}
			switch {
			case page.Next == nil:
				return
			case len(*page.Next) > maxTaskList || seen[*page.Next]:
				yield(nil, invalid(methodList, errors.New("a cursor is too long, or comes back that has been followed before")))
				return
			}
			cursor = page.Next
			seen[*cursor] = true
		}
		yield(nil, invalid(methodList, fmt.Errorf("the list has more than %d pages", maxPages)))
	}
}

// A taskPage is one page of a list of tasks.
type taskPage struct {
	Tasks []stdjson.RawMessage `json:"tasks"`
	Next  *string              `json:"nextCursor"`
}

func listPage(ctx context.Context, c *mcp.Client, cursor *string) (*taskPage, error) {
	params := struct {
		Cursor *string `json:"cursor,omitzero"`
	}{cursor}
	raw, err := c.Request(ctx, methodList, params)
	if err != nil {
		return nil, err
	}
	page := &taskPage{}
	if err := json.Unmarshal(raw, page); err != nil {
		return nil, invalid(methodList, err)
	}
	return page, nil
}
