package config

// Settings are the members of the member patchbay of a configuration file that concern a host. Absent
// members have their defaults. A program with further settings embeds Settings; see [Section].
//
// The tags of these fields are the rules, the defaults and the texts of [Schema]. The formats duration,
// size and rate stand for patterns; see formats.
type Settings struct {
	// Names controls the public names of tools and prompts.
	Names Names `json:"names,omitzero" jsonschema:"public names of tools and prompts"`
	// Tools controls the list of tools.
	Tools ToolListing `json:"tools,omitzero" jsonschema:"how tools are listed"`
	// Servers holds the settings of each server of the file by its name, including invalid servers.
	Servers map[string]*ServerSettings `json:"servers,omitzero" jsonschema:"settings of servers, by name"`
	// Profiles holds named parts of the servers and tools.
	Profiles map[string]*Profile `json:"profiles,omitzero" jsonschema:"named parts of the servers and tools"`
	// Limits limits what a single caller may do.
	Limits CallerLimits `json:"limits,omitzero" jsonschema:"what one caller may do"`
	// Connect configures how the users of callers log in to servers.
	Connect Connect `json:"connect,omitzero" jsonschema:"logins of callers to servers with auth caller"`
}

// A Section is the member patchbay of a file as a program reads it: [*Settings], or a pointer to a
// struct that embeds Settings and declares further members, with tags like those of Settings.
type Section interface {
	// Check completes the decoded settings and reports invalid values. The method of a struct that embeds
	// Settings must call the method of Settings.
	Check(p *Problems)
	base() *Settings // only a struct that embeds Settings declares it
}

func (s *Settings) base() *Settings { return s }

// Problems collects the problems of the settings of a file.
type Problems struct {
	file *File
	text []byte // of the settings
	all  []error
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
