package hosterr

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// ForPeer returns an error as a host sends it to another host of its cluster. public is the reason for callers; if it
// is empty, callers must not see the reason. Errors of a server lose the member that marks an error of a host.
func ForPeer(err error, public string) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		remote, ok := errors.AsType[*mcp.Error](err)
		if !ok || !jsonscan.IsObject(remote.Data) {
			return err
		}
		plain := *remote
		plain.Data = jsonscan.Without(remote.Data, metaError)
		return &plain
	}
	text := public
	if text == "" {
		text = e.Err.Error()
	}
	fault := mcp.Errorf(codeServer, "%s", text)
	fault.Data = jsonscan.WithMember(json.RawMessage("{}"), metaError, e.detail(""))
	if public != "" {
		fault.Data = jsonscan.WithMember(fault.Data, "public", []byte("true"))
	}
	return fault
}

// maxRetryAfter limits the time to wait that another host names. Daily budgets are the longest.
const maxRetryAfter = 24 * time.Hour

// codes are the codes that another host may name, because codes are counted.
var codes = []Code{CodeUnavailable, CodeStarting, CodeCrashLoop, CodeTimeout, CodeAuthRequired, CodeDenied,
	CodeUnrecorded, CodeApprovalNeeded, CodeApprovalExpired, CodeLimited, CodeTooLarge, CodeCallLost,
	CodeInvalidResult, CodeQuarantined, CodeConfigError}

// FromPeer returns the error that [ForPeer] sent from another host of the cluster, or err. It must not be called for
// errors of a server.
func FromPeer(err error, server string) error {
	remote, ok := errors.AsType[*mcp.Error](err)
	if !ok || !jsonscan.IsObject(remote.Data) {
		return err
	}
	raw, ok := jsonscan.Get(remote.Data, metaError)
	if !ok {
		return err
	}
	var d struct {
		Code         Code    `json:"code"`
		MayHaveRun   bool    `json:"mayHaveRun"`
		RetryAfterMs float64 `json:"retryAfterMs"`
	}
	if json.Unmarshal(raw, &d) != nil {
		return err
	}
	e := &Error{Code: d.Code, Server: server, MayHaveRun: d.MayHaveRun, Err: errors.New(remote.Message)}
	if !slices.Contains(codes, d.Code) {
		e.Code = CodeUnavailable
	}
	if ms := float64(maxRetryAfter / time.Millisecond); d.RetryAfterMs > 0 {
		e.RetryAfter = time.Duration(min(d.RetryAfterMs, ms)) * time.Millisecond
	}
	if jsonscan.Has(remote.Data, "public") {
		e.Err = Public{Err: e.Err}
	}
	return e
}
