// Package catalogue merges the lists of several servers into the lists that a caller sees.
//
// [Parse] reads the pages of a list of a server into a [List]. [Merge] joins the lists of all
// servers into a [Catalogue], which contains public names and URIs, pages, routes and a search
// index. Definitions stay the bytes that the server sent; only names, URIs and configured members
// change.
//
// Lists and catalogues are immutable and safe for concurrent use. The package opens no connections
// and starts no goroutines. Parse parses a definition a single time. The public form of a
// definition is built a single time and shared by all catalogues that give it the same public name.
//
// Servers are not trusted: the package validates their data, and its constants limit the data.
package catalogue

import (
	"strings"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Kind identifies the kind of items that a server lists.
type Kind uint8

// The kinds of items.
const (
	Tools Kind = iota
	Prompts
	Resources
	Templates
	Events // types of events: extension io.modelcontextprotocol/events (SEP-3415)
)

// Kinds is the number of kinds.
const Kinds = 5

var kinds = [Kinds]struct{ method, member, id string }{
	Tools:     {wire.MethodToolsList, "tools", "name"},
	Prompts:   {wire.MethodPromptsList, "prompts", "name"},
	Resources: {wire.MethodResourcesList, "resources", "uri"},
	Templates: {wire.MethodResourcesTemplatesList, "resourceTemplates", "uriTemplate"},
	Events:    {"events/list", "events", "name"},
}

// KindOf returns the kind that a method such as tools/list lists.
func KindOf(method string) (k Kind, ok bool) {
	for k := range kinds {
		if kinds[k].method == method {
			return Kind(k), true
		}
	}
	return 0, false
}

// Method returns the method that lists the kind, such as tools/list.
func (k Kind) Method() string { return kinds[k].method }

// Member returns the member of a list result that holds the items, such as "tools".
func (k Kind) Member() string { return kinds[k].member }

// String returns the name of the kind's member.
func (k Kind) String() string { return kinds[k].member }

// isURI reports whether items of the kind are identified by a URI or a template of URIs.
func (k Kind) isURI() bool { return k == Resources || k == Templates }

// A Problem describes an item that was left out or should be looked at.
type Problem struct {
	Severity Severity
	Server   string // as in the configuration; empty in problems of a List
	Kind     Kind
	Name     string // the original name or URI; empty if the problem concerns a whole list
	Reason   string // from this package, with quoted parts of the server's text
}

// A Severity is the consequence of a [Problem] for its item.
type Severity uint8

const (
	// Flagged items are kept, but may mislead a user: duplicate or confusable names, invisible
	// characters.
	Flagged Severity = iota
	// LeftOut items are invalid or exceed a limit.
	LeftOut
	// Misconfigured items are left out because of the configuration, such as equal names in mode
	// [Unprefixed].
	Misconfigured
)

// String returns the severity as a word.
func (s Severity) String() string {
	return [...]string{"flagged", "left out", "misconfigured"}[s]
}

// Unknown returns the error of a request for an item that does not exist for the caller.
func (k Kind) Unknown(name string) error {
	if k == Events {
		return events.NotFound("event")
	}
	return mcp.Errorf(mcp.CodeInvalidParams, "unknown %s %q", strings.TrimSuffix(k.Member(), "s"), name)
}
