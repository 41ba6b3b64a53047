package catalogue

import (
	"encoding/json"
	"slices"
	"strings"
)

// A Server specifies a server of a catalogue, and its items for the caller.
type Server struct {
	// Name is the server's name in the configuration, unique.
	Name string
	// ID is the prefix of its public names. Default: as [IDs] returns it.
	ID string
	// Lists holds the server's lists by kind; a nil list is empty.
	Lists [Kinds]*List
	// Capabilities contains the server's declaration, an object, or nil.
	Capabilities json.RawMessage
	// Instructions is the server's own text.
	Instructions string
	// Options contains the server's settings; nil means the defaults. The settings must not change
	// any more. Catalogues share definitions only if they use the same pointer.
	Options *ServerOptions
}

// ServerOptions specifies the settings of a server's tools. All names are original names.
type ServerOptions struct {
	// Allow contains globs of the tools that may be used; nil means all tools. Deny contains globs
	// of the tools that must not be used. In a glob * stands for any text and ? for a single
	// character; letters match in their own case only.
	Allow, Deny []string
	// Rename maps tools and prompts to new names. The new names get prefixes like original names.
	Rename map[string]string
	// Describe maps tools to new descriptions.
	Describe map[string]string
	// HideArgs maps tools to the arguments that their input schema does not show.
	HideArgs map[string][]string
}

// Options are the settings of a catalogue.
type Options struct {
	// Names is the mode of public names. Default: Prefixed.
	Names NameMode
	// MaxName is the maximum length of public names in bytes. Default: DefaultMaxName. Values beyond
	// MinMaxName and MaxMaxName are changed to these.
	MaxName int
	// Single keeps all names and URIs of the only server, except configured names.
	Single bool
	// Webhooks lists webhooks among the modes of delivery of events. Default: no.
	Webhooks bool
	// ToolGlobs contains globs of the public names of the tools that the caller may see; nil means
	// all tools.
	ToolGlobs []string
	// Visible reports whether the caller may see an item. Default: all items. It must not change
	// its answer while the catalogue is in use.
	Visible func(*Item) bool
	// ReservedNames are public names that no item gets.
	ReservedNames []string
	// Instructions selects the instructions of the catalogue. Default: MergedInstructions.
	Instructions InstructionMode
	// OwnInstructions is the text in front of the servers' instructions.
	OwnInstructions string
	// Extension reports whether the catalogue declares an extension that several servers declare.
	// An extension of a single server is always declared. Default: no.
	Extension func(id string, servers []string) bool
}

// MatchAny reports whether any of the globs matches all of s.
func MatchAny(globs []string, s string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return matchGlob(g, s) })
}

// matchGlob reports whether a glob matches all of s, in time at most len(glob) times len(s).
func matchGlob(glob, s string) bool {
	g, t := []rune(glob), []rune(s)
	i, j, star, from := 0, 0, -1, 0
	for j < len(t) {
		switch {
		case i < len(g) && g[i] == '*':
			star, from = i, j
			i++
		case i < len(g) && (g[i] == '?' || g[i] == t[j]):
			i++
			j++
		case star >= 0: // the last * takes another character
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(string(g[i:]), "*") == ""
}
