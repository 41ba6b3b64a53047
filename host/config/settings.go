package config

import (
	"time"
)

// Settings are the member patchbay of a configuration file: how a host serves the servers of the
// file. Members that are absent have their defaults.
type Settings struct {
	// Listen is the address at which a gateway listens, as host:port. Default: 127.0.0.1:7777.
	Listen string
	// Ops is the address at which a gateway serves metrics, health and readiness over HTTP, without
	// authorization, as host:port. Default: empty, for none.
	Ops string
	// Pprof serves profiles at the address of Ops, which must be a loopback address.
	Pprof bool
	// TrustTraceContext lets callers choose the traces that their requests are part of, and whether these
	// are sampled, also where other machines reach the gateway: at PublicURL, or at an address of Listen
	// that is not loopback. Without it, spans have links to those of such callers.
	TrustTraceContext bool
	// PublicURL is the URL by which clients reach the gateway, without a path, such as that of a reverse
	// proxy. Default: that of Listen.
	PublicURL string
	// AllowedHosts are names by which clients may reach the gateway, besides that of PublicURL; see
	// package mcphttp.
	AllowedHosts []string
	// Auth configures the credentials that a gateway accepts over HTTP; nil for keys only.
	Auth *Auth
	// Names chooses the public names of tools and prompts.
	Names Names
	// Tools chooses how tools are listed.
	Tools ToolListing
	// Servers has the settings of each server of the file, by its name, valid or not.
	Servers map[string]*ServerSettings
	// Profiles are named parts of the servers and tools.
	Profiles map[string]*Profile
	// Audit configures how requests are recorded; nil if they are not.
	Audit *Audit
	// Policy decides what callers may do; nil for no restrictions.
	Policy *Policy
	// Approve are the channels by which approvals are asked for, in order: "client", "console" and
	// "webhook". Default: "client", "console".
	Approve []string
	// Webhook is asked for approvals of the channel "webhook"; nil if there is none.
	Webhook *Webhook
	// Limits bound what one caller may do.
	Limits CallerLimits
	// Connect configures how the users of callers log in to servers.
	Connect Connect
}

// A Webhook is a URL that receives requests for approval.
type Webhook struct {
	URL string
	// Secret is the name of a variable of the environment with the key that signs the requests.
	Secret string
}

// Names chooses the public names of tools and prompts.
type Names struct {
	// Mode is when a name has the id of its server as a prefix. Default: NamesPrefix.
	Mode NamesMode
	// Max is the most characters of a public name, from 36 to 128. Default: 48.
	Max int
}

// A NamesMode chooses when a public name has the id of its server as a prefix.
type NamesMode string

// Modes of public names.
const (
	NamesPrefix   NamesMode = "prefix"   // always: no name depends on other servers
	NamesConflict NamesMode = "conflict" // if another server has the name
	NamesNone     NamesMode = "none"     // never: two servers with one name are an error
)

// A ToolListing chooses how tools are listed.
type ToolListing struct {
	// Mode chooses between a list of all tools and a search. Default: ListAuto.
	Mode ListMode
	// Keep are patterns of public names that are listed also if the others are only found by a
	// search; see [Match].
	Keep []string
}

// A ListMode chooses between a list of all tools and a search.
type ListMode string

// Modes of lists.
const (
	ListAll    ListMode = "list"   // every tool is listed
	ListSearch ListMode = "search" // tools that search, describe and call are listed in place of the others
	ListAuto   ListMode = "auto"   // ListSearch if the definitions are large, else ListAll
)

// A Profile is a part of the servers and their tools.
type Profile struct {
	// Servers are names of servers of the file; nil for all.
	Servers []string
	// Tools are patterns of public names of tools; nil for all. See [Match].
	Tools []string
}

// ServerSettings are the settings of a server.
type ServerSettings struct {
	// Share is which callers use an instance together. Default: ShareCaller.
	Share Share
	// Era is the era of the protocol that is used with the server. Default: EraAuto.
	Era Era
	// Allow are patterns of the original names of the tools that are served; nil for all. Default:
	// the member allowedTools of the server. See [Match].
	Allow []string
	// Deny are patterns of the original names of tools that are not served, also if Allow has
	// them. The patterns of the member excludedTools of the server are added.
	Deny []string
	// Timeout is how long a request may be silent. Default: 60 seconds.
	Timeout time.Duration
	// MaxTimeout is how long a request may take in total, at least Timeout. Default: 10 minutes.
	MaxTimeout time.Duration
	// Idle is how long an unused instance stays open; zero for as long as the host. Default: 10
	// minutes.
	Idle time.Duration
	// StartTimeout is how long the start of the server may take. Default: 2 minutes.
	StartTimeout time.Duration
	// Roots are the roots that the server gets.
	Roots Roots
	// Limits bound what the processes of a command use.
	Limits Limits
	// Rate is the rate of requests to the server. Those above it wait. Default: none.
	Rate Rate
	// ToolRates are the rates of the calls of tools by one caller, by original name. They replace
	// [CallerLimits.PerTool].
	ToolRates map[string]Rate
	// Concurrency is how many requests a server serves at once: each process of a command that is not
	// shared, else the server as a whole. Further ones wait. Default: 8 for a command, 64 for a URL.
	Concurrency int
	// Instances is how many processes of a command, or connections to a URL, the server may have at once.
	// Default: 16 processes, 1000 connections.
	Instances int
	// Queue is how many requests may wait, and QueueTimeout for how long. Defaults: 64 and 10 seconds.
	Queue        int
	QueueTimeout time.Duration
	// Breaker is when requests are refused because the server does not respond.
	Breaker Breaker
	// Rename has public names of tools and prompts, without the prefix, by original name. Values are
	// unique.
	Rename map[string]string
	// Describe has descriptions that replace those of tools, by original name.
	Describe map[string]string
	// HideArgs has the names of arguments that are removed from the definitions of tools, by
	// original name.
	HideArgs map[string][]string
	// Validate is whether structured results are validated against the output schema. Default:
	// ValidateWarn.
	Validate Validate
	// Trust is which definitions of the server are approved without a user; see package host. The empty
	// value is TrustFirst, or TrustReview for a server of a project file, if the host compares
	// definitions with approved ones.
	Trust Trust
	// TrustResources approves resources and resource templates as they are listed, also those that have
	// changed. Without it, new resources of servers with [TrustFirst] are approved.
	TrustResources bool
	// Methods are patterns of methods of extensions that are sent to this server if a host serves
	// several; see [Match].
	Methods []string
	// Auth is how requests are authorized. Default: see [ServerAuth].
	Auth ServerAuth
	// OAuth is the client of logins, for AuthCaller and AuthGateway.
	OAuth OAuthClient
	// ForwardHeaders are the headers of callers that are passed on, for AuthForward. They have their
	// canonical form.
	ForwardHeaders []string
	// InsecureForwardAuthorization passes on the header Authorization of callers, for AuthForward: with
	// it the server can use the gateway as these callers do.
	InsecureForwardAuthorization bool
	// InsecureHTTP allows credentials in headers, of the entry or of callers, to be sent to an http
	// URL of another machine, which exposes them to the network. By default, the host refuses to
	// connect to such a server. Credentials for https and loopback URLs do not require it.
	InsecureHTTP bool
	// ForwardBaggage passes on the member baggage of the `_meta` of callers: text that programs send along a
	// trace, and that may be meant for those of one organization only. Without it the member is removed.
	ForwardBaggage bool
}

// A Share chooses which callers use an instance of a server together.
type Share string

// Modes of sharing.
const (
	ShareShared  Share = "shared"  // all callers
	ShareCaller  Share = "caller"  // the requests of one caller
	ShareSession Share = "session" // one session or connection of a caller
	ShareCall    Share = "call"    // one call
)

// An Era is the family of revisions of the protocol that is used with a server.
type Era string

// Eras of the protocol.
const (
	EraAuto    Era = "auto"    // what the server supports, the newest first
	EraModern  Era = "modern"  // requests that stand alone: 2026-07-28 and newer
	EraSession Era = "session" // sessions with initialize: 2025-11-25 and older
)

// A Trust chooses which definitions of a server are approved without a user.
type Trust string

// Values of Trust.
const (
	TrustFirst  Trust = "first"  // those of the first connection
	TrustReview Trust = "review" // none
	// TrustInsecureAll approves all, also those that have changed since: for servers that add and change
	// tools while they run, and that are trusted as much as the program itself.
	TrustInsecureAll Trust = "insecureAll"
)

// A Validate chooses what happens with a structured result that does not match the output schema.
type Validate string

// Modes of validation.
const (
	ValidateOff  Validate = "off"  // results are not validated
	ValidateWarn Validate = "warn" // a mismatch is logged
)

// Roots are the roots that a server gets.
type Roots struct {
	// Mode chooses the roots. Default: RootsDefault.
	Mode RootsMode
	// URIs are the roots of RootsList: file URIs.
	URIs []string
}

// A RootsMode chooses the roots that a server gets.
type RootsMode string

// Modes of roots.
const (
	// RootsDefault is RootsPass for a command that one local caller uses, and RootsNone for others.
	RootsDefault RootsMode = ""
	RootsNone    RootsMode = "none" // an empty list
	RootsPass    RootsMode = "pass" // those of the caller
	RootsList    RootsMode = "list" // those of [Roots.URIs]
)

// Limits bound what the processes of a server use together. Zero is no limit.
type Limits struct {
	// Memory is the memory in bytes.
	Memory int64
	// Processes is the number of processes.
	Processes int
	// OpenFiles is the number of open files of each process.
	OpenFiles int
	// CPU is the time of processors: 0.5 is half of one, 2 is two.
	CPU float64
	// BestEffort starts the server also on systems that cannot enforce the limits.
	BestEffort bool
}
