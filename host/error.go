package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// begun returns the error of a request that a server executed in part: a client must not send it
// again from the start, because the server would repeat its work.
func begun(err error) error {
	if unbegun, ok := errors.AsType[*round.NotSentError](err); ok {
		return unbegun.Err
	}
	return connection.Ran(err)
}

// response returns the response that a client receives for an error. A tool call that failed
// becomes a result, which the model can read: clients end sessions for some errors.
func (v *View) response(ctx context.Context, method string, err error) (mcp.Result, error) {
	e, ok := errors.AsType[*hosterr.Error](err)
	if !ok {
		return nil, err
	}
	reason, incident := v.reasonFor(ctx, method, e)
	return hosterr.Response(method, e, reason, incident)
}

// maxReason limits the reason of a failure that a caller receives, in bytes.
const maxReason = 2 << 10

// sentinels are reasons that callers see as they are.
var sentinels = []error{
	connection.ErrNotReady, upstream.ErrStopped, upstream.ErrStoppedByUser, upstream.ErrNoInstance, errNoConsent,
	driver.ErrSessionLost, mcp.ErrDisconnected, mcp.ErrTimeout, mcp.ErrClosed,
}

// publicReason returns the text of a reason that every caller may see. Other reasons contain
// addresses, paths and command lines of the host's machine. The text never contains the standard
// error of a process.
func publicReason(err error) (text string, ok bool) {
	if s, ok := errors.AsType[upstream.CrashError](err); ok {
		reason, known := publicReason(s.Last)
		if !known {
			reason = "it could not be started"
		}
		return s.Describe(reason), true
	}
	if e, ok := errors.AsType[*mcp.ExitError](err); ok {
		return exitText(e), true
	}
	if e, ok := errors.AsType[*mcphttp.StatusError](err); ok {
		return strings.TrimSpace(fmt.Sprintf("HTTP %d %s", e.StatusCode, http.StatusText(e.StatusCode))), true
	}
	if s, ok := errors.AsType[hosterr.Public](err); ok {
		return s.Error(), true
	}
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return s.Error(), true
		}
	}
	return "", false
}

func exitText(e *mcp.ExitError) string {
	if e.Signal != "" {
		return "the server was ended by a signal: " + e.Signal
	}
	return fmt.Sprintf("the server exited with status %d", e.ExitCode)
}

// summaries contains the texts that replace reasons which only the log may contain.
var summaries = map[hosterr.Code]string{
	hosterr.CodeUnavailable:    "the server cannot be reached",
	hosterr.CodeStarting:       "the server did not become ready in time",
	hosterr.CodeTimeout:        "the server did not respond in time",
	hosterr.CodeAuthRequired:   "the server requires authorization",
	hosterr.CodeDenied:         "denied",
	hosterr.CodeApprovalNeeded: "the request needs an approval that could not be asked for",
	hosterr.CodeUnrecorded:     "the request could not be recorded",
	hosterr.CodeInvalidResult:  "the response of the server violates the protocol",
	hosterr.CodeQuarantined:    "the definition is not known to be approved",
	hosterr.CodeConfigError:    "the entry of the server in the configuration is invalid",
}

// reasonFor returns the reason of a failure for the caller of the view. The local user sees every
// reason without secrets and output of processes. A caller with a principal sees reasons that do
// not describe the machine; for other reasons it receives an incident ID, and the log contains the
// full reason with the same ID. With a policy, the local user must not see parts of responses
// either.
func (v *View) reasonFor(ctx context.Context, method string, e *hosterr.Error) (text, incident string) {
	text, ok := publicReason(e.Err)
	local := v.caller.Principal == nil && !(v.host.authorize.Policy() != nil && quotesResponse(e))
	if _, exited := errors.AsType[*mcp.ExitError](e.Err); !exited && (!ok || local) {
		if local {
			text = e.Err.Error()
		} else {
			incident = rand.Text()[:16]
			text = "internal error"
			if s, ok := summaries[e.Code]; ok {
				text = s
			}
			text += " (incident " + incident + ")"
			v.host.opts.Logger.ErrorContext(ctx, "host: request failed", "method", method, "server", e.Server,
				"code", string(e.Code), "incident", incident, "error", e.Err)
		}
	}
	for _, u := range v.host.servers.All() {
		if u.Name() == e.Server {
			text = u.Mask(text)
		}
	}
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], ""), incident
}

// quotesResponse reports whether the text of an error may contain a part of a response. The policy
// does not decide about such a text, although it might hide or redact it.
func quotesResponse(e *hosterr.Error) bool {
	_, status := errors.AsType[*mcphttp.StatusError](e.Err)
	return status || e.Code == hosterr.CodeInvalidResult
}
