package config

import "encoding/json"

// ServerSettings are the settings of a server.
type ServerSettings struct {
	// Share selects the callers that use an instance together. Default: ShareCaller.
	Share Share `json:"share,omitzero" jsonschema:"callers of an instance,enum=shared|cluster|caller|session|call"`
	// Era selects the revisions of the protocol for the server. Default: EraAuto.
	Era Era `json:"era" jsonschema:"era of the protocol,enum=auto|modern|session,default=auto"`
	// Allow contains patterns of the original names of the served tools; nil means all tools. Default:
	// the member allowedTools of the server. See [Match].
	Allow []string `json:"allow,omitzero" jsonschema:"patterns of the only tools served,minLength=1,maxLength=256"`
	// Deny contains patterns of the original names of tools that must not be served, even if Allow
	// matches them. It includes the patterns of the member excludedTools of the server.
	Deny []string `json:"deny,omitzero" jsonschema:"patterns of tools not served,minLength=1,maxLength=256"`
	// Timeout limits the silence of a request. Default: 60 seconds.
	Timeout Duration `json:"timeout" jsonschema:"longest silence of a request,format=duration,default=60s"`
	// MaxTimeout limits a request in total. It must be at least Timeout. Default: 10 minutes.
	MaxTimeout Duration `json:"maxTimeout" jsonschema:"longest request,format=duration,default=10m"`
	// Idle is the time after which an unused instance is closed; zero means never. Default: 10 minutes.
	Idle Duration `json:"idle" jsonschema:"stop after; 0s for never,format=duration,default=10m"`
	// StartTimeout limits the start of the server. Default: 2 minutes.
	StartTimeout Duration `json:"startTimeout" jsonschema:"longest start,format=duration,default=2m"`
	// Roots selects the roots that the server receives.
	Roots Roots `json:"roots,omitzero" jsonschema:"roots: none, those of the caller, or a list of file URIs"`
	// Limits limits the resources of the processes of a command.
	Limits Limits `json:"limits,omitzero" jsonschema:"what the processes of a command may use"`
	// Sandbox isolates the processes of a command from the machine; nil means that they have all rights of
	// the host.
	Sandbox *Sandbox `json:"sandbox,omitzero" jsonschema:"isolation of the processes of a command"`
	// Rate limits the rate of requests to the server. Requests above it wait. Default: no limit.
	Rate Rate `json:"rate" jsonschema:"rate of requests,format=rate,default=off"`
	// ToolRates limits the rates at which a caller may call tools, by original name. They replace
	// [CallerLimits.PerTool].
	ToolRates map[string]Rate `json:"toolRates,omitzero" jsonschema:"rates of tools by caller, by original name"`
	// Concurrency limits the requests that a server serves at once. It applies to each process of a command
	// that is not shared, else to the whole server. Further requests wait. Default: 8 for a command, 64 for
	// a URL.
	Concurrency int `json:"concurrency,omitzero" jsonschema:"requests at once,minimum=1,maximum=100000"`
	// Instances limits the processes of a command, or the connections to a URL. Default: 16 processes, 1000
	// connections.
	Instances int `json:"instances,omitzero" jsonschema:"most processes or connections,minimum=1,maximum=100000"`
	// Queue limits the waiting requests, and QueueTimeout their wait. Defaults: 64 and 10 seconds.
	Queue        int      `json:"queue" jsonschema:"requests that wait,minimum=0,maximum=100000,default=64"`
	QueueTimeout Duration `json:"queueTimeout" jsonschema:"longest wait,format=duration,default=10s"`
	// Breaker controls when requests are refused because the server does not respond.
	Breaker Breaker `json:"breaker,omitzero" jsonschema:"when a server that does not respond gets no requests"`
	// Rename holds the public names of tools and prompts, without the prefix, by original name. The public
	// names must differ.
	Rename map[string]string `json:"rename,omitzero" jsonschema:"public names without prefix, by original name"`
	// Describe holds descriptions that replace the descriptions of tools, by original name.
	Describe map[string]string `json:"describe,omitzero" jsonschema:"descriptions of tools, by original name"`
	// HideArgs holds the names of arguments that are removed from the definitions of tools, by original
	// name.
	HideArgs map[string][]string `json:"hideArgs,omitzero" jsonschema:"removed arguments of tools, by original name"`
	// Validate selects whether structured results are validated against the output schema. Default:
	// ValidateWarn.
	Validate Validate `json:"validate" jsonschema:"validation of structured results,enum=off|warn,default=warn"`
	// Trust selects the definitions of the server that are approved without a user; see package host. If
	// it is empty and the host compares definitions with approved ones, it means TrustReview for a server
	// of a project file, and TrustFirst for other servers.
	Trust Trust `json:"trust,omitzero" jsonschema:"definitions approved without a user,enum=first|review|insecureAll"`
	// TrustResources approves resources and resource templates as they are listed, including changed
	// ones. Without it, new resources of servers with [TrustFirst] are approved.
	TrustResources bool `json:"trustResources" jsonschema:"approve resources as they are listed,default=false"`
	// Methods contains patterns of the methods of extensions that a host of several servers sends to this
	// server; see [Match].
	Methods []string `json:"methods,omitzero" jsonschema:"patterns of methods of extensions,minLength=1,maxLength=256"`
	// Auth selects how requests are authorized. For the default, see [ServerAuth].
	Auth ServerAuth `json:"auth,omitzero" jsonschema:"credentials,enum=none|static|gateway|caller|forward"`
	// OAuth identifies the client of logins, for AuthCaller and AuthGateway.
	OAuth OAuthClient `json:"oauth,omitzero" jsonschema:"client of logins, for auth caller or gateway"`
	// ForwardHeaders contains the canonical names of the callers' headers that the server receives, for
	// AuthForward.
	ForwardHeaders []string `json:"forwardHeaders,omitzero" jsonschema:"headers to pass on,minLength=1"`
	// InsecureHTTP sends credentials in headers, of the entry or of callers, to an http URL of another
	// machine, which exposes them to the network. By default, the host refuses to connect to such a
	// server. Credentials for https and loopback URLs do not require it.
	InsecureHTTP bool `json:"insecureHTTP" jsonschema:"send credentials over http to other machines,default=false"`
	// InsecureForwardAuthorization sends the header Authorization of callers to the server, for AuthForward.
	// With the header, the server can use the gateway in the name of its callers.
	InsecureForwardAuthorization bool `json:"insecureForwardAuthorization" jsonschema:"pass it on,default=false"`
	// ForwardBaggage sends the member baggage of the callers' `_meta` to the server: text that programs send
	// along a trace, and that may be meant for a single organization. By default, the member is removed.
	ForwardBaggage bool `json:"forwardBaggage" jsonschema:"pass on the baggage of traces,default=false"`
}

// A Share selects the callers that use an instance of a server together.
type Share string

// Modes of sharing.
const (
	ShareShared  Share = "shared"  // all callers
	ShareCluster Share = "cluster" // all callers of all gateways that share a store; for commands
	ShareCaller  Share = "caller"  // the requests of a caller
	ShareSession Share = "session" // a session or connection of a caller
	ShareCall    Share = "call"    // a single call
)

// An Era selects the revisions of the protocol for a server.
type Era string

// Eras of the protocol.
const (
	EraAuto    Era = "auto"    // the newest revision that the server supports
	EraModern  Era = "modern"  // revisions without sessions: 2026-07-28 and newer
	EraSession Era = "session" // revisions with sessions and initialize: 2025-11-25 and older
)

// A Trust selects the definitions of a server that are approved without a user.
type Trust string

// Values of Trust.
const (
	TrustFirst  Trust = "first"  // the definitions of the first connection
	TrustReview Trust = "review" // no definitions: a user must approve each
	// TrustInsecureAll approves all definitions, including changed definitions: for servers that add and
	// change tools while they run, and that are trusted as much as the program itself.
	TrustInsecureAll Trust = "insecureAll"
)

// A Validate selects what happens to a structured result that does not match the output schema.
type Validate string

// Modes of validation.
const (
	ValidateOff  Validate = "off"  // results are not validated
	ValidateWarn Validate = "warn" // a mismatch is logged
)

// Roots selects the roots that a server receives.
type Roots struct {
	// Mode selects the roots. Default: RootsDefault.
	Mode RootsMode
	// URIs contains the roots of RootsList: file URIs.
	URIs []string
}

// UnmarshalJSON decodes a mode, or the list of URIs of RootsList.
func (r *Roots) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &r.Mode) == nil {
		return nil
	}
	r.Mode = RootsList
	return json.Unmarshal(text, &r.URIs)
}

// A RootsMode selects the roots that a server receives.
type RootsMode string

// Modes of roots.
const (
	// RootsDefault means RootsPass for a command with a single local caller, else RootsNone.
	RootsDefault RootsMode = ""
	RootsNone    RootsMode = "none" // an empty list
	RootsPass    RootsMode = "pass" // the roots of the caller
	RootsList    RootsMode = "list" // [Roots.URIs]
)

// Limits limits the resources of all processes of a server together. Zero means no limit.
type Limits struct {
	// Memory limits the memory.
	Memory Size `json:"memory,omitzero" jsonschema:"memory,format=size"`
	// Processes limits the number of processes.
	Processes int `json:"processes,omitzero" jsonschema:"number of processes,minimum=1,maximum=1000000"`
	// OpenFiles limits the number of open files of each process.
	OpenFiles int `json:"openFiles,omitzero" jsonschema:"open files of each process,minimum=1,maximum=1000000"`
	// CPU limits the processors: 0.5 means half of a processor, 2 means two.
	CPU float64 `json:"cpu,omitzero" jsonschema:"processors: 0.5 is half of one,minimum=0.01,maximum=1024"`
	// BestEffort starts the server even on systems that cannot enforce the limits.
	BestEffort bool `json:"bestEffort" jsonschema:"start also where limits cannot be enforced,default=false"`
}

// A Breaker controls when a server that does not respond no longer receives requests.
type Breaker struct {
	// Failures limits the successive requests without a response; zero means no limit. Default: 5.
	Failures int `json:"failures" jsonschema:"requests without a response; 0: never,minimum=0,maximum=1000,default=5"`
	// Open is the time without requests, after which a single request tests the server. Default: 10
	// seconds.
	Open Duration `json:"open" jsonschema:"time without requests,format=duration,default=10s"`
}
