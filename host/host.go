package host

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/cluster"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/approve"
	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/observe"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/result"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/internal/webhooks"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Options configures a [Host]. The zero value is valid.
type Options struct {
	// Dial returns the transport of a new instance of a server, whose variables are expanded. Its
	// context contains the caller that the instance serves: see [CallerFrom]. Default: [Dial].
	Dial func(ctx context.Context, s *config.Server) (mcp.Transport, error)
	// Lookup returns the values of variables in the configuration; see [config.Server.Expand].
	// Default: os.LookupEnv.
	Lookup func(name string) (string, bool)
	// Client identifies the host to servers. Its functions Elicit, ElicitURL, Sample and Roots
	// answer questions that belong to no request of a caller. ForwardCapabilities contains the
	// capabilities that callers can support at most; the host declares them to commands of
	// revisions before 2026-07-28. Default: all capabilities.
	Client mcp.ClientOptions
	// Consent asks the user before [Host.Call] calls a tool. Default: every call is refused.
	Consent func(ctx context.Context, a *policy.Action) (*approval.Verdict, error)
	// Policy decides about the requests of all callers, and about their results. Default: all are
	// allowed. [Host.SetPolicy] replaces it.
	Policy policy.Policy
	// Channels are the ways to ask for the approval of a request, in order: the host uses the first
	// channel that can ask. If no channel can ask, the request is refused. Default: ChannelClient.
	Channels []policy.Channel
	// Webhook asks another program for the approval of a request, for ChannelWebhook. ctx ends when
	// the request does, after 5 minutes at the latest. An empty Answer leaves the decision to
	// others: see [Approvals]. An error refuses the request unless Channels contains
	// ChannelConsole.
	Webhook func(ctx context.Context, p *approval.Pending) (approval.Answer, error)
	// WebhookName is the approver in records and grants of requests that Webhook answers, such as
	// the host of its URL.
	WebhookName string
	// Configure sets Policy, Channels and Webhook of o as a file specifies, and returns the settings of
	// the file, including members that only the program knows. [Open] and [Host.Reload] call it with a
	// copy of the Options; an error means that the file is invalid. It must always return settings of the
	// same type, or always nil, which means the settings of the host. Reload reports members that differ:
	// in [Diff.Restart] if the field has the tag `reload:"restart"`, else in [Diff.Settings]. Default:
	// every file uses the values of the Options.
	Configure func(f *config.File, o *Options) (config.Section, error)
	// Recorder stores records of the requests of all callers, and of changes that affect them.
	// Default: the host stores no records.
	Recorder event.Recorder
	// State contains the data that must survive a restart, such as pins. Default: a state.Memory.
	State state.Store
	// Limits counts the rates and daily budgets of callers over all processes that share it, and divides
	// the concurrency and the rate of a server with a URL between them. While it does not answer, each
	// process admits its share. Default: each process counts on its own, and budgets are in State.
	Limits state.LimitStore
	// Cluster connects the host to the hosts with which it shares the servers of [config.ShareCluster], each of
	// which runs in a single process. Close it after the host. Default: requests for such
	// servers fail with [hosterr.CodeConfigError].
	Cluster *cluster.Node
	// Pins compares the definitions of all servers with the approved definitions in State. The host
	// must neither list nor use other definitions; see [pin.Pin]. Default: only servers whose
	// settings contain "trust".
	Pins bool
	// StateKeys encrypt data that callers carry for the host, such as the state of a question. Each
	// key must contain at least 32 random bytes. The first key encrypts, all keys decrypt. Hosts
	// that share keys accept each other's states. Default: a random key for this host.
	StateKeys [][]byte
	// Tokens returns the store of the tokens of a principal: [mcp.Principal.Key], which is empty
	// for the local user. Stores of different principals must not share tokens. With Dial, servers
	// without "auth" in their settings and servers with "auth": "gateway" use the login of the
	// local user; see operator.Logins. Default: a store in memory for each principal.
	Tokens func(principal string) oauthclient.Store
	// OAuth returns the client options for logins of a principal at a server. p is nil for the
	// local user. The fields Store and Authorizer are ignored. Default: the program registers itself as a
	// client where authorization servers support registration.
	OAuth func(s *config.Server, p *mcp.Principal) *oauthclient.TransportOptions
	// LoginCommand returns the command line with which the local user logs in to a server, for
	// errors. Default: errors contain no command line.
	LoginCommand func(server string) string
	// Instructions are sent to clients before the instructions of the servers.
	Instructions string
	// Observer receives the requests of all callers, as the observer of a server, and the host's
	// requests to its servers, as the observer of a client; see [mcp.Observer]. For requests to
	// servers, [ServerFrom] returns the server. The target of a caller's request is the public name
	// of a tool or prompt, or empty for a name that the caller's view does not contain. Default:
	// Client.Observer for the requests to servers.
	Observer mcp.Observer
	// Logger logs problems. Default: slog.Default().
	Logger *slog.Logger
}

// A Host uses the servers of a configuration. It is safe for concurrent use.
type Host struct {
	opts      Options
	servers   *upstream.Servers
	operator  operator.Operator
	approve   *approve.Approver
	prompt    *login.Prompt
	states    *round.Sealer
	observe   *observe.Calls
	authorize *authorize.Authorizer
	calls     call.Next // the pipeline
	recent    observe.Recent
	misnamed  routes.Misnamed
	dials     bool // [Dial] makes the connections
	logins    *login.Logins
	tasks     task.Table
	task      *task.Stages
	routes    routes.Stage
	pins      pins.Stage
	login     login.Stage
	limits    *limits.Limits
	result    *result.Steps
	counts    hostCounts
	relay     *upstream.Relay                   // nil without a cluster
	seats     sync.Map                          // *seat of streams of events, and of kept events by ID
	webhooks  atomic.Pointer[webhooks.Webhooks] // nil until OfferWebhooks

	reloading sync.Mutex     // held by Reload
	settings  config.Section // of the last file; written by Reload

	ctx    context.Context // of all that no request waits for
	cancel context.CancelCauseFunc
	agent  agent
	stop   func() // ends the watch of answers to requests for approval

	mu         sync.Mutex // guards the fields below; must not be held while a server or view is called
	closed     bool
	ending     bool               // run no longer counts goroutines
	running    sync.WaitGroup     // goroutines of run
	views      map[string]*View   // by viewKey
	subscribed map[*View]struct{} // views with subscriptions
	readers    map[chan Event]struct{}
}

// Start connects the instances of the local user to the named servers, or to all, and waits until
// they are ready. The error joins the errors of servers that could not be connected.
func (h *Host) Start(ctx context.Context, names ...string) error {
	servers := h.servers.Current().Servers()
	errs := make([]error, len(servers))
	var wait sync.WaitGroup
	for n, u := range servers {
		if len(names) == 0 || slices.Contains(names, u.Name()) {
			wait.Go(func() { errs[n] = u.Connect(ctx) })
		}
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Upstreams returns the servers that are not disabled, in the order of the file.
func (h *Host) Upstreams() []*Upstream {
	var all []*Upstream
	for _, u := range h.servers.Current().Servers() {
		all = append(all, &Upstream{u})
	}
	return all
}

// closeTimeout is longer than a process that does not exit takes to be killed.
const closeTimeout = 12 * time.Second

// Close ends all instances and their processes, and the requests in progress. It returns within 12
// seconds. The error reports a function of [Options] that blocks.
func (h *Host) Close() error {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.mu.Unlock()
	if closed {
		return nil
	}
	done := make(chan struct{})
	go func() { // ends with the functions of Options
		defer close(done)
		if w := h.webhooks.Load(); w != nil { // first: the end of the host ends no subscription
			w.Close()
		}
		h.cancel(mcp.ErrClosed)
		h.stop()
		h.agent.close()
		var wait sync.WaitGroup
		for _, u := range h.servers.All() {
			wait.Go(u.Close)
		}
		wait.Wait()
		h.mu.Lock()
		h.ending = true
		h.mu.Unlock()
		h.running.Wait()
		h.limits.Close()
		h.result.Close()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errors.New("host: a function of Options has not returned although its context has ended")
	}
}

// run runs f in a goroutine. Close waits for f, unless Close already waits for the other goroutines: then
// the context of the host has ended, and f returns at once.
func (h *Host) run(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ending {
		go f()
		return
	}
	h.running.Go(f)
}

// Dial returns the transport to a server: a child process with its command, or Streamable HTTP to
// its URL, with HTTP+SSE as the fallback. It is the default of [Options.Dial]. The transport sends
// no credentials to an http URL of another machine, unless a [Host] calls Dial for a server with
// the setting insecureHTTP.
func Dial(ctx context.Context, s *config.Server) (mcp.Transport, error) {
	return connection.Dial(s, upstream.ClientFrom(ctx), upstream.IsInsecure(ctx)), nil
}

// ClientFrom returns the HTTP client for the connection that ctx of [Options.Dial] is for. The
// client adds the caller's credentials for a server with "auth": "caller" or "forward". It is nil
// for other servers. For "gateway", [Dial] receives a client, too; a function of the program must
// authorize the requests itself.
func ClientFrom(ctx context.Context) *http.Client { return upstream.ClientFrom(ctx) }
