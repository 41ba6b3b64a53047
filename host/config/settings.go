package config

// Settings is the member patchbay of a configuration file: how a host and a gateway serve the servers
// of the file. Absent members have their defaults.
//
// The tags of these fields are the rules, the defaults and the texts of [Schema]. The formats duration,
// size and rate stand for patterns; see formats.
type Settings struct {
	// Listen is the address of a gateway as host:port. Default: 127.0.0.1:7777.
	Listen string `json:"listen" jsonschema:"address of the gateway as host:port,default=127.0.0.1:7777"`
	// Ops is the address as host:port at which a gateway serves metrics, health and readiness over
	// HTTP, without authorization. If it is empty, the gateway does not serve them.
	Ops string `json:"ops,omitzero" jsonschema:"address of metrics and health as host:port"`
	// Pprof serves profiles at the address of Ops, which must be a loopback address.
	Pprof bool `json:"pprof" jsonschema:"serve profiles at the address of ops on loopback,default=false"`
	// TrustTraceContext lets callers choose the trace of their requests, and whether the trace is sampled,
	// even where other machines reach the gateway: at PublicURL, or at an address of Listen that is not
	// loopback. Without it, spans only link to the traces of such callers.
	TrustTraceContext bool `json:"trustTraceContext" jsonschema:"continue traces of other machines,default=false"`
	// Names controls the public names of tools and prompts.
	Names Names `json:"names,omitzero" jsonschema:"public names of tools and prompts"`
	// Tools controls the list of tools.
	Tools ToolListing `json:"tools,omitzero" jsonschema:"how tools are listed"`
	// Servers holds the settings of each server of the file by its name, including invalid servers.
	Servers map[string]*ServerSettings `json:"servers,omitzero" jsonschema:"settings of servers, by name"`
	// Profiles holds named parts of the servers and tools.
	Profiles map[string]*Profile `json:"profiles,omitzero" jsonschema:"named parts of the servers and tools"`
	// Audit configures the log of requests; nil means that the gateway does not log them.
	Audit *Audit `json:"audit,omitzero" jsonschema:"log of all requests; absent for none"`
	// Policy decides what callers may do; nil means no restrictions.
	Policy *Policy `json:"policy,omitzero" jsonschema:"what callers may do"`
	// Approve lists the channels that are asked for approvals, in order: "client", "console" and
	// "webhook". Default: "client", "console".
	Approve []string `json:"approve,omitzero" jsonschema:"how approvals are asked for,enum=client|console|webhook"`
	// Webhook is asked for approvals of the channel "webhook", which requires it.
	Webhook *Webhook `json:"webhook,omitzero" jsonschema:"URL that is asked for approvals"`
	// PublicURL is the URL by which clients reach the gateway, without a path, such as the URL of a
	// reverse proxy. Default: the URL of Listen.
	PublicURL string `json:"publicURL,omitzero" jsonschema:"URL of the gateway for clients,pattern=^https?://"`
	// AllowedHosts lists further names by which clients may reach the gateway; see package mcphttp.
	AllowedHosts []string `json:"allowedHosts,omitzero" jsonschema:"names of the gateway,minLength=1,maxLength=256"`
	// Auth configures the credentials that a gateway accepts over HTTP; nil means keys only.
	Auth *Auth `json:"auth,omitzero" jsonschema:"whom the gateway serves over HTTP"`
	// Limits limits what a single caller may do.
	Limits CallerLimits `json:"limits,omitzero" jsonschema:"what one caller may do"`
	// Connect configures how the users of callers log in to servers.
	Connect Connect `json:"connect,omitzero" jsonschema:"logins of callers to servers with auth caller"`
}

// A Webhook is a URL that receives requests for approval.
type Webhook struct {
	URL string `json:"url" jsonschema:"receives requests for approval by POST,pattern=^https?://"`
	// Secret names the environment variable that contains the key for signing the requests.
	Secret string `json:"secret" jsonschema:"variable with the key of signatures,pattern=^[A-Za-z_][A-Za-z0-9_]*$"`
}

// Names controls the public names of tools and prompts.
type Names struct {
	// Mode controls when a name starts with the ID of its server. Default: NamesPrefix.
	Mode NamesMode `json:"mode" jsonschema:"when names have a prefix,enum=prefix|conflict|none,default=prefix"`
	// Max limits the characters of a public name. It must be from 36 to 128. Default: 48.
	Max int `json:"max" jsonschema:"most characters of a public name,minimum=36,maximum=128,default=48"`
}

// A NamesMode controls when a public name starts with the ID of its server.
type NamesMode string

// Modes of public names.
const (
	NamesPrefix   NamesMode = "prefix"   // always, so that no name depends on other servers
	NamesConflict NamesMode = "conflict" // if another server uses the same name
	NamesNone     NamesMode = "none"     // never: the names of different servers must differ
)

// A ToolListing controls the list of tools.
type ToolListing struct {
	// Mode selects a list of all tools or a search. Default: ListAuto.
	Mode ListMode `json:"mode" jsonschema:"all tools, or a search if there are many,enum=list|search|auto,default=auto"`
	// Keep contains patterns of public names that a search lists as well; see [Match].
	Keep []string `json:"keep,omitzero" jsonschema:"patterns of names that are always listed,minLength=1,maxLength=256"`
}

// A ListMode selects a list of all tools or a search.
type ListMode string

// Modes of lists.
const (
	ListAll    ListMode = "list"   // lists every tool
	ListSearch ListMode = "search" // lists tools that search, describe and call the other tools
	ListAuto   ListMode = "auto"   // ListSearch if the definitions are large, else ListAll
)

// A Profile is a part of the servers and their tools.
type Profile struct {
	// Servers contains names of servers of the file; nil means all servers.
	Servers []string `json:"servers,omitzero" jsonschema:"names of servers; absent for all"`
	// Tools contains patterns of public names of tools; nil means all tools. See [Match].
	Tools []string `json:"tools,omitzero" jsonschema:"patterns of public names of tools,minLength=1,maxLength=256"`
}

// A Connect configures how the users of callers log in to servers with AuthCaller.
type Connect struct {
	// Links shows the login page in the result of a call whose client cannot open the page, so models
	// and logs of clients receive it too. By default, only clients with URL elicitation receive it.
	Links bool `json:"links" jsonschema:"show pages of logins in results,default=false"`
}
