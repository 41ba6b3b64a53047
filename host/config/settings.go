package config

import (
	"time"
)

// Settings are the member patchbay of a configuration file: how a host serves the servers of the
// file. Members that are absent have their defaults.
type Settings struct {
	// Listen is the address at which a gateway listens, as host:port. Default: 127.0.0.1:7777.
	Listen string
	// Names chooses the public names of tools and prompts.
	Names Names
	// Tools chooses how tools are listed.
	Tools ToolListing
	// Servers has the settings of each server of the file, by its name, valid or not.
	Servers map[string]*ServerSettings
	// Profiles are named parts of the servers and tools.
	Profiles map[string]*Profile
}

// Names chooses the public names of tools and prompts.
type Names struct {
	// Mode is when a name has the id of its server as a prefix. Default: NamesPrefix.
	Mode NamesMode
	// Max is the most characters of a public name, from 36 to 128. Default: 48.
	Max int
}

// A NamesMode is when a public name has the id of its server as a prefix.
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
	// Methods are patterns of methods of extensions that are sent to this server if a host serves
	// several; see [Match].
	Methods []string
}

// A Share is which callers use an instance of a server together.
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

// Validate is what happens with a structured result that does not match the output schema.
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
