// Package status describes the condition of the servers of a host.
package status

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A State is the condition of a server or of an instance.
type State string

// States of a server.
const (
	Off       State = "off"           // not started
	Starting  State = "starting"      // connecting
	Ready     State = "ready"         // connected
	Degraded  State = "degraded"      // connected, but the last request failed without a valid response
	Backoff   State = "backoff"       // ended or not reached; the next start is delayed
	CrashLoop State = "crashloop"     // ended soon after each of several starts; host.Upstream.Restart ends this state
	Stopped   State = "stopped"       // ended because it was not used, or by host.Upstream.Stop
	Draining  State = "draining"      // replaced; ends with its last request
	Auth      State = "auth_required" // the server requires a login
	// Quarantined means that the server sent definitions that are not approved. Its instances
	// continue.
	Quarantined State = "quarantined"
	Config      State = "config_error" // the entry of the configuration cannot be used
)

// A Server is the condition of a server at a moment.
type Server struct {
	// State is the state of the instance that is best able to serve, and Since is when it began.
	State State
	Since time.Time
	// Revision is the protocol revision of the connection, or empty without a connection. Session
	// reports whether the connection belongs to the session era, before 2026-07-28.
	Revision string
	Session  bool
	// Requests counts the requests in progress, and Suspended the requests that wait for an answer
	// of their caller.
	Requests, Suspended int
	// Starts is the number of processes or connections so far.
	Starts int
	// Err is the last failure; nil means that no instance failed since an instance became ready.
	// The text may come from the server and must not be trusted.
	Err error
	// Exit describes the exit of the last process that ended by itself; nil means that none did.
	Exit *mcp.ExitError
	// RetryAfter is the time until a delayed start may begin; zero means no delay.
	RetryAfter time.Duration
	// Limits are the figures of the limits of requests.
	Limits Limits
	// Instances are the connections and attempts to connect, the oldest first.
	Instances []Instance
}

// An Instance is the condition of an instance: a connection, and a process if the server is a
// command.
type Instance struct {
	// ID identifies the instance. It is random.
	ID    string    `json:"id,omitzero"`
	State State     `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Caller is the caller that the instance serves, if it does not serve all.
	Caller *policy.Caller `json:"-"`
	// PID is the id of the process, zero if it is not known.
	PID       int    `json:"pid"`
	Revision  string `json:"revision,omitzero"`
	Requests  int    `json:"requests"`
	Suspended int    `json:"suspended"`
	// Unenforced lists the limits of the process that the system cannot enforce, such as "cpu". It
	// is empty unless the setting bestEffort allows the process to run without them.
	Unenforced []string `json:"unenforced,omitzero"`
}

// Limits contains the figures of the limits of a server at a moment. Package host/config declares
// the limits, in ServerSettings and CallerLimits.
type Limits struct {
	// Running is the number of requests at the server, and Queued the number of requests that wait
	// for their turn. Requests that wait for an answer of their caller do not count.
	Running, Queued int
	// Concurrency and Queue are the configured limits of Running and Queued: of each process if
	// the server is a command that is not shared.
	Concurrency, Queue int
	// Instances is the limit of processes or connections of the server.
	Instances int
	// Breaker is the state of the breaker that refuses most, and RetryAfter the time until it
	// tries the server again.
	Breaker    Breaker
	RetryAfter time.Duration
	// Refused counts the requests that each setting refused since the server was configured. A key
	// is a setting, such as "concurrency" or "limits.perCaller".
	Refused map[string]uint64
}

// A Breaker tells whether requests are sent to a server.
type Breaker string

// States of a breaker.
const (
	BreakerClosed   Breaker = "closed"    // all requests are sent
	BreakerOpen     Breaker = "open"      // requests are refused
	BreakerHalfOpen Breaker = "half-open" // one request at a time tries the server
)

// A StderrLine is a line from the standard error of a process of a server.
type StderrLine struct {
	// Number is the number of the line among all of the server, from 1.
	Number uint64
	Time   time.Time
	// Instance is the ID of the [Instance] that wrote the line.
	Instance string
	// Text is the line, with control and other invisible characters in the form of Go strings, such
	// as \x1b: it comes from the server and must not be trusted. Lines of more than 16 KiB are cut.
	Text string
}

// A Caller contains the figures of the limits of a caller at a moment. A host holds them for
// callers that sent requests since it was opened, and forgets the callers that were idle the
// longest.
type Caller struct {
	Subject string `json:"subject,omitzero" jsonschema:"of the principal; absent for the local user"`
	Issuer  string `json:"issuer,omitzero"`
	// Calls and Bytes are the used parts of limits.callsPerDay and limits.bytesPerDay since
	// midnight UTC. They are zero unless the settings contain a budget.
	Calls int64 `json:"calls" jsonschema:"used part of callsPerDay"`
	Bytes int64 `json:"bytes" jsonschema:"used part of bytesPerDay"`
	// Rates are the rates of which the caller has used a part, sorted by server and tool.
	Rates []Rate `json:"rates" jsonschema:"rates of which the caller has used a part"`
}

// A Rate is the state of a limited rate of a caller.
type Rate struct {
	// Server and Tool name the tool whose calls the rate limits, as the server names it. They are
	// empty for the rate of all requests of the caller.
	Server string `json:"server,omitzero" jsonschema:"absent for the rate of all requests"`
	Tool   string `json:"tool,omitzero" jsonschema:"name of the tool at its server"`
	// Limit is the rate as the settings contain it, such as "3/m burst 5".
	Limit string `json:"limit" jsonschema:"as in the configuration, such as 3/m burst 5"`
	// Burst is the largest number of requests that the caller may send at once, and Left the
	// number of requests that it may send at once now.
	Burst int `json:"burst" jsonschema:"most requests at once"`
	Left  int `json:"left" jsonschema:"requests that the caller may send at once now"`
}

// A Task is a task of a caller, as its server last described it. Status, Message and Question are
// texts of the server, which must not be trusted.
type Task struct {
	// ID identifies the task for operators. It is random, and callers cannot use it.
	ID      string         `json:"id"`
	Handle  string         `json:"-"` // the ID as its caller knows it, which only the caller may use
	TaskID  string         `json:"taskId,omitzero" jsonschema:"at the server; absent for a task of the gateway"`
	Server  string         `json:"server"`
	Tool    string         `json:"tool,omitzero" jsonschema:"name at the server; absent if it is not known"`
	Owner   *policy.Caller `json:"-"`
	Status  string         `json:"status" jsonschema:"such as working or completed; unknown if its server forgot it"`
	Message string         `json:"message,omitzero" jsonschema:"of the server about the status; not trusted"`
	// Question is the first open question of the server. A server of 2025-11-25 asks only while
	// its caller waits for the result.
	Question  string    `json:"question,omitzero" jsonschema:"first open question of the server; not trusted"`
	Created   time.Time `json:"created" jsonschema:"when the gateway first saw it"`
	Updated   time.Time `json:"updated,omitzero" jsonschema:"last change that the server reported"`
	Expires   time.Time `json:"expires,omitzero" jsonschema:"when the server may forget it; absent for never"`
	Checked   time.Time `json:"checked" jsonschema:"when the server described it"`
	HasResult bool      `json:"hasResult" jsonschema:"the task ended with a result or an error"`
}
