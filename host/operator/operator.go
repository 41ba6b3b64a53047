// Package operator declares the operations of a host that a gateway or a console needs, and an
// agent does not: logins and limits of callers, the end of sessions, the record of events, and
// details of servers.
package operator

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An Operator contains the operations of a host for the program that serves it to others. The
// method Operator of a host returns it. Its methods are safe for concurrent use. Later versions
// may add methods to its interfaces, which only hosts implement.
type Operator struct {
	Logins
	Servers
	Sessions
	Records
	Limits
	Tasks
}

// Logins are the logins of callers at servers.
type Logins interface {
	// SetLoginURL sets the base URL of the pages on which users log in, without a slash at its
	// end. The page of a login is base, "/" and a ticket for Login; base and "/callback" is the
	// redirect URI of all logins. Until it is set, callers are not asked to log in.
	//
	// refuse reports why the page cannot verify that its visitor is a principal; requests of the
	// principal that require a login then fail with this error. It returns nil if the page can, and
	// must be safe for concurrent use. A nil refuse refuses no principal.
	SetLoginURL(base string, refuse func(p *mcp.Principal) error)
	// Login returns the login with a ticket. The error is [ErrNoLogin], or [ErrLoginUsed] if it was
	// started.
	Login(ticket string) (Login, error)
	// BeginLogin returns a login of a caller at a server whose settings contain "auth": "caller".
	// For the local user, whose Principal is nil, the setting may also be "gateway", or may be
	// missing if the server has no header Authorization either: then the requests of all callers
	// use the login, and a function host.Options.Dial must use the tokens of host.Options.Tokens.
	// BeginLogin returns a pending login again. The error is [ErrLoginUnused], or a *hosterr.Error
	// with CodeLimited if too many logins are pending.
	BeginLogin(ctx context.Context, server string, c *policy.Caller, scopes ...string) (Login, error)
	// FinishLogin passes the response of an authorization server to its login, and waits for the
	// end of the login. browser is the argument of [Login.Start]. The error is [ErrNoLogin],
	// [ErrOtherBrowser] or an error of package oauthclient; see [LoginFailure]. The response of
	// another browser does not end the login.
	FinishLogin(ctx context.Context, browser string, response url.Values) (Login, error)
	// Logout removes the tokens of a caller for a server, and revokes them if the authorization
	// server supports that, and ends the connections that used them. The tokens are removed even
	// if there is an error.
	Logout(ctx context.Context, server string, c *policy.Caller) error
}

// Servers are details of the configuration in force and of its servers.
type Servers interface {
	// Profiles returns the names of the profiles, sorted.
	Profiles() []string
	// HasServer reports whether a profile contains a server. The empty profile contains all
	// servers, an unknown profile no server.
	HasServer(profile, server string) bool
	// IsLocal reports whether the configuration reserves a server for the local user; see
	// config.Entry. It is false for an unknown server.
	IsLocal(server string) bool
	// ForwardsAuthorization reports whether a server has "insecureForwardAuthorization"; see
	// [WithAuthorization].
	ForwardsAuthorization() bool
	// Inspect connects the local user to a server, unless it is connected already, and reads its
	// instructions, its serverInfo and all pages of its lists over that connection. It records
	// them in the state as a request does, and returns the pins of the server. The host must use
	// host.Options.Pins.
	//
	// To show definitions to a user before another host uses them, give this host a state.Memory,
	// and copy the definitions that it found with [pin.Copy].
	Inspect(ctx context.Context, server string) ([]*pin.Pin, error)
	// WaitLists waits until the lists that are being read have arrived, and the first lists of
	// servers that are starting, or until ctx ends. The host then holds their definitions in its
	// state: a host that is opened later lists approved definitions at once. Close does not wait
	// for lists.
	WaitLists(ctx context.Context)
}

// Sessions are the ends of sessions, and of the program.
type Sessions interface {
	// EndSession ends the connections, views and grants of a session or connection that has ended.
	// Servers with "share": "session" use such connections.
	EndSession(session string)
	// LeaveSession ends the connections and views of a session that continues at other processes of
	// the gateway. Its grants stay, and EndSession removes them only if the session uses one again.
	LeaveSession(session string)
	// EndApprovals refuses the requests that wait for an approval of the operator, and later
	// requests that would wait: the program is ending. Other requests continue. Call it before the
	// shutdown of the server that serves the host.
	EndApprovals()
	// LeaveCluster refuses new requests of the other hosts of host.Options.Cluster, and waits until
	// their requests in progress end, which it cancels shortly before the deadline of ctx. Each server
	// of the cluster ends after its last request, also of this host, and then another host can start
	// it. The error is the error of ctx if requests are still running. Call it together with the
	// shutdown of the server that serves the host: closing the host ends requests at once.
	LeaveCluster(ctx context.Context) error
}

// Limits are the figures of the limits of callers. The figures of the limits of a server are part
// of status.Server.
type Limits interface {
	// CallerLimits returns the figures of the callers that sent requests, sorted by principal: at
	// most 20,000.
	CallerLimits() []status.Caller
	// LimitSharing returns the number of processes that these figures count, zero for this process only.
	// Unless the store answers, each process counts on its own, and admits its share.
	LimitSharing() (processes int, answers bool)
	// CallerSettings returns the limits of callers that are in force. They must not be modified.
	CallerSettings() *config.CallerLimits
}

// Errors of [Tasks].
var (
	ErrNoTask    = errors.New("host: no such task: its server forgot it, or the host was restarted")
	ErrTaskEnded = errors.New("host: the task has ended already")
)

// Tasks are the tasks of callers.
type Tasks interface {
	// Tasks returns the tasks that callers created or asked about since the host was opened, the
	// newest first: at most 200 of each of 1,000 principals. It sends no requests.
	Tasks() []status.Task
	// Task returns a task as its server describes it now. method is tasks/get, which does not start a stopped
	// server, tasks/cancel, after which the server may continue, or tasks/result. result is the result of the
	// call that became the task, or its JSON-RPC error, before the policy treats it; nil for a task without a
	// result. The error is [ErrNoTask] or, for tasks/cancel, [ErrTaskEnded], or that of the server.
	Task(ctx context.Context, id, method string) (t status.Task, result json.RawMessage, err error)
}

// Records are the records of events, and what they are made of.
type Records interface {
	// Record passes a record to host.Options.Recorder, with the time unless it contains a time. It
	// is for events that no request of a view causes, such as logins. The error is the error of
	// the Recorder.
	Record(r *event.Record) error
	// Mask returns a text with "[secret]" in place of each secret of the servers that the host
	// connected to, and of each token that it sent to them: see config.Server.Secrets.
	Mask(text string) string
	// Observer returns host.Options.Observer, for handlers that serve views.
	Observer() mcp.Observer
	// State returns the store that the host uses: host.Options.State.
	State() state.Store
}
