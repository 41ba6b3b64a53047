package catalogue

import (
	"crypto/sha256"
	"encoding/json"
	"sync/atomic"
)

// A Catalogue contains the items of several servers that a caller may see. It is immutable and safe
// for concurrent use.
type Catalogue struct {
	servers  []*member
	byName   map[string]*member // servers
	kinds    [Kinds]section
	problems []Problem
	options  Options
	routes   routes

	// The fields below are built on first use.
	search       func() *index
	instructions func() string
	capabilities func() json.RawMessage
}

// A member is a server in a catalogue.
type member struct {
	Server
	position int
	views    bool                       // some of its tools declare views
	mapped   map[string]string          // holds the public URI or template by the original, if they differ
	hidden   [Kinds]map[string]struct{} // original names of items that the caller may not see
}

// A section contains the visible items of a kind.
type section struct {
	items  []*Item          // in the order of the list
	public map[string]*Item // by public name, URI or template
	hidden map[string]*Item // holds the items that List.Hide hides, by public name, URI or template
}

// An Item is an item of a server with its public form. It is immutable and shared by catalogues.
type Item struct {
	Kind     Kind
	Server   string // the name in the configuration
	ID       string // of the server, in public names
	Original string // the name, URI or template as the server knows it
	Public   string // the name, URI or template as callers know it
	// Raw is the definition as the server sent it.
	Raw json.RawMessage
	// Digest is the SHA-256 digest of Raw in canonical form.
	Digest [sha256.Size]byte

	body    json.RawMessage // the public definition, but with Original: Raw itself without other changes
	options *ServerOptions
	single  bool // only configured changes
	// webhooks means that a type of events is delivered to URLs, too.
	webhooks bool
	view     string // the public URI of a tool's view, if it differs from the original URI
}

// A List contains all items of a kind, as a server sent them. It is immutable and shared by the
// catalogues of all callers. The nil List is empty.
type List struct {
	kind     Kind
	entries  []*entry // sorted by original name
	problems []Problem
	digest   [sha256.Size]byte
	bytes    int                 // of the pages
	hidden   map[string]struct{} // original names
	whole    *List               // the list without hidden items of which this list is a copy, or nil
}

// An entry is an item as sent, with the last public form that was built of it.
type entry struct {
	kind     Kind
	original string
	raw      json.RawMessage
	digest   [sha256.Size]byte
	view     string // the URI of a tool's view, or ""

	names atomic.Pointer[plainNames] // the last result of candidate.plain
	item  atomic.Pointer[Item]       // the last result of build
}

// A NameMode selects the public names that start with the ID of their server.
type NameMode uint8

const (
	// Prefixed names are all server__name. They do not depend on other servers.
	Prefixed NameMode = iota
	// PrefixedConflicts start with the ID only if two servers use the same name.
	PrefixedConflicts
	// Unprefixed names never start with the ID. Two items with equal names are both
	// [Misconfigured]: a server must not take the name of another server's tool.
	Unprefixed
)

// An InstructionMode selects the instructions of a catalogue.
type InstructionMode uint8

const (
	// MergedInstructions contain Options.OwnInstructions, then a section for each server.
	MergedInstructions InstructionMode = iota
	// OnlyOwnInstructions are the own text.
	OnlyOwnInstructions
	// OmittedInstructions are empty.
	OmittedInstructions
)

// An index finds tools by words.
type index struct {
	items    []*Item
	lengths  []float64 // weighted words of each item
	mean     float64
	postings map[string][]posting
}

// A posting says how often a word occurs in an item, weighted.
type posting struct {
	item   int32
	weight float32
}
