package round

import (
	"context"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// ProgressInterval is the interval between progress notifications to a client that waits, because many
// clients stop waiting after a minute.
const ProgressInterval = 15 * time.Second

// NotifyProgress sends progress of a request that waits. The server's own progress follows.
func NotifyProgress(ctx context.Context, req *mcp.Request, n int, message string) {
	token, ok := req.Meta("progressToken")
	if !ok || req.Notify == nil {
		return
	}
	b := append(append([]byte(`{"progressToken":`), token...), fmt.Sprintf(`,"progress":%g`, float64(n)/1000)...)
	b = append(jsonscan.AppendQuote(append(b, `,"message":`...), message), '}')
	_ = req.Notify(ctx, "notifications/progress", b) // without it, the client may stop waiting
}

// A NotSentError is the error of a request that answers a question of the host: the server never
// received any part of it.
type NotSentError struct{ Err error }

// Error returns the text of Err.
func (e *NotSentError) Error() string { return e.Err.Error() }
